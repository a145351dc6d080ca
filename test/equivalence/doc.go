// Package equivalence holds that deciding change by change comes to the same as deciding everything anew.
//
// The test builds random clusters and changes them at random. One watcher without a cluster follows every change and asks
// the strategies only about what the changes concern; another one is given the final objects and asks about everything.
// After each round all answers must be the same: every strategy, every intent, in its order, with its reason.
package equivalence
