// Package cli is the command line. It parses arguments, calls app or the bus, and prints results.
//
//	main.go: Main ──▶ newRoot
//	             ├─ look/     get, status, explain, events
//	             ├─ act/      move, drain, cordon, uncordon, evaluate, cancel, breakers, deadletters
//	             ├─ try/      simulate, once, policy, schemas
//	             ├─ run/      run, watcher, functions, dispatcher, actuator, maintenance, api, serve, forward, ready
//	             └─ install/  setup, auth, settings, version
//
// cmdutil/ has their common code.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // maintenance windows have time zones, and the image has no time zone files

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/act"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/install"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/cli/run"
	"github.com/rehome-dev/rehome/cli/try"
)

// Main runs the command line until it is done or the process gets a signal, and returns the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := newRoot()
	root.SetIn(standardInput{ctx})
	spokenAs(root, typedAs(os.Args[0]))
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, cmdutil.PrintableLines(err.Error()))
		return 1
	}
	return 0
}

// interrupted is the exit code of a process that an interrupt ended.
const interrupted = 130

// standardInput reads the standard input of the process. A read of a terminal or a pipe cannot be stopped, so the process ends if
// ctx ends meanwhile.
type standardInput struct{ ctx context.Context }

// Read implements [io.Reader].
func (s standardInput) Read(b []byte) (int, error) {
	defer context.AfterFunc(s.ctx, func() { os.Exit(interrupted) })()
	return os.Stdin.Read(b)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "rehome",
		Short: "Move pods that no longer belong on their nodes, as soon as the cluster changes",
		Long: "Rehome is an event-driven descheduler. A watcher turns changes of the cluster into events, functions decide\n" +
			"which pods should move, and an actuator evicts them within limits. Every step is a CloudEvent on NATS.\n\n" +
			"Settings come from environment variables; `rehome settings` lists them. Flags override them.",
		Version:       settings.Version,
		SilenceErrors: true, SilenceUsage: true,
	}
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"look", "Look:", look.Commands()}, {"act", "Act:", act.Commands()}, {"try", "Try, without a running Rehome:", try.Commands()},
		{"run", "Run:", run.Commands()}, {"install", "Install:", install.Commands()},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("install")
	root.SetCompletionCommandGroupID("install")
	return root
}
