// Package cli is the command line: what a person types and sees. It parses, calls app or asks the bus, and prints.
//
//	main.go ──▶ root.go: newRoot
//	             ├─ look/     status, loops, events, explain
//	             ├─ act/      request
//	             ├─ dead/     dead letters
//	             ├─ try/      simulate, once, policy, schemas
//	             ├─ run/      run, watcher, functions, dispatcher, actuator, serve, forward, ready
//	             └─ install/  setup, settings, version
//
// command/ holds what they share: flags, arguments, output, and the connection to the bus.
package cli

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

// Main runs the command line until it is done or the process is told to end, and returns the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := newRoot()
	spokenAs(root, typedAs(os.Args[0]))
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitCode(err)
	}
	return 0
}

func exitCode(err error) int {
	if _, ok := errors.AsType[usage.Error](err); ok {
		return exitUsage
	}
	return exitFailure
}
