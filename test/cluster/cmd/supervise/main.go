// Command supervise is the process between a test and the control plane that the
// test started: it ends the control plane when the test ends, however it ends.
// It is built and launched by package cluster and is of no use by hand.
//
//	supervise DIR
//
// It takes commands from standard input, answers on standard output, and removes
// DIR when it ends. The exit code is 0, or 1 if something could not be cleaned
// up, with the reason on standard error.
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
