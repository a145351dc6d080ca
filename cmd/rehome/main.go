// Command rehome is the event-driven descheduler: all roles in one process, one role, or a look at what they do.
//
// It parses, wires, runs and exits. What it does is in the packages that it wires; it is the only one that knows more
// than one role.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // windows of maintenances are written in time zones, and an image need not have them

	"github.com/rehome-dev/rehome/app/usage"
)

// The exit codes of every command.
const (
	exitFailure = 1 // it did not work
	exitUsage   = 2 // it was asked for something that cannot be: a wrong flag, setting or policy
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := newRoot()
	spokenAs(root, typedAs(os.Args[0]))
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitCode(err))
	}
}

func exitCode(err error) int {
	if _, ok := errors.AsType[usage.Error](err); ok {
		return exitUsage
	}
	return exitFailure
}
