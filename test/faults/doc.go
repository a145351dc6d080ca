// Package faults runs rehome while its processes are killed, and its bus and its API server go away, and checks that nothing
// is moved twice and nothing is lost. It is a test of the whole on a real control plane, one minute long, or as long as a slow
// machine needs to restart everything twice and to wish for enough:
//
//	go test ./test/faults
//	go test ./test/faults -timeout 30m -args -minutes 10 -seed 7
//
// The seed decides what is killed when. What the processes make of it differs from run to run.
package faults
