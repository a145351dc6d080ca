// Package utilization is what the strategies about the usage of nodes share: thresholds, the nodes in plain numbers, and
// which pods leave a node until there is no more need or no more room.
//
// Everything here is a pure function of its arguments. Quantities are turned into whole numbers once, since arithmetic on
// them is slow: CPU counts in thousandths, everything else in its own unit, and what is below that is rounded up.
package utilization
