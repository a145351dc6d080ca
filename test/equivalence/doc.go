// Package equivalence checks that incremental evaluation gives the same decisions as a full evaluation.
//
// The test builds random clusters and changes them at random. One leading watcher follows every change and evaluates only the
// affected scopes. Another one gets the final objects and evaluates everything. After each round all answers must be equal: every
// strategy, every intent in its order, and its reason.
package equivalence
