// Command supervise is the process between a test and its control plane: it ends the control plane when the test ends, for any
// reason. Package cluster builds and launches it.
//
//	supervise DIR
//
// It reads commands from standard input, replies on standard output, and removes DIR when it ends. The exit code is 0, or 1 if
// the cleanup is incomplete, with the reason on standard error.
package main

import (
	"fmt"
	"os"

	"github.com/rehome-dev/rehome/test/cluster/supervisor"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: supervise DIR")
		os.Exit(2)
	}
	if err := supervisor.Serve(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		os.Exit(1)
	}
}
