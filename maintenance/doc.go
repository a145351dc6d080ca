// Package maintenance holds the rules of maintenances that the watcher and the drain function share: which nodes a
// maintenance means, when its window is open, which gates are open, which drain rule counts for a pod, and when to look
// again. It is pure: the time is an argument.
//
// The five fields of cron are read here and by no library. What decides is the change of the clocks: the usual libraries
// let a time that comes twice count twice, and some run a time that does not exist at another one. A window must do neither.
package maintenance
