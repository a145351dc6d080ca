// Command cluster runs a real Kubernetes control plane on this machine, without
// containers, to try things on: see "cluster --help".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// The exit codes.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitNotRunning = 3
)

// errUsage marks an invalid command line.
var errUsage = errors.New("usage")

// errNotRunning is the result of status if there is no cluster.
var errNotRunning = errors.New("not running")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errNotRunning):
		return exitNotRunning
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "cluster: %v\nTry: cluster --help\n", err)
		return exitUsage
	}
	fmt.Fprintln(stderr, "cluster:", err)
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "cluster",
		Short: "A real Kubernetes control plane on this machine, without containers",
		Long: `A real Kubernetes control plane on this machine, without containers: etcd, the
API server, the controller manager, the scheduler, and kwok for the nodes.

Everything it makes is in the folder .build of the repository. It listens on
loopback only, and its data are lost when it stops.

Exit codes: 0 done; 1 failed; 2 the command line makes no sense; 3 from
"status": no such cluster runs.`,
		Example: `  cluster build                        build the programs (six minutes, once)
  cluster up                           start a cluster with 20 nodes
  cluster up --name big --nodes 1000   start another one beside it
  cluster status
  cluster down`,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newBuild(), newUp(), newDown(), newStatus())
	return root
}

// usageArgs marks the errors of check as usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return nil
	}
}

// nameFlag adds --name to a command.
func nameFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("name", "default", "name of the cluster, for running several")
}

// directory returns the directory of a cluster.
func directory(name string) (string, error) {
	odd := func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-", r) }
	if name == "" || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, odd) {
		return "", fmt.Errorf("%w: name %q: use small letters, digits and dashes", errUsage, name)
	}
	root, err := binaries.Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, ".build", "clusters", name), nil
}
