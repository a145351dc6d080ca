package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/command"
)

func LoopsCommand() *cobra.Command {
	c := command.Show(&cobra.Command{
		Use:   "loops",
		Short: "List the workload circuit breakers: workloads that are left alone on a node because their pods came back to it",
		Example: "  rehome loops\n" +
			"  rehome loops clear shop/deployment/api    # try again at once",
		Args: command.NoArguments,
	}, func(c *cobra.Command, s settings.Settings) (shown command.Shown, err error) {
		err = command.WithBus(s, command.Reader, func(b *bus.Bus) error {
			remembered, unreadable, err := readLedger(c.Context(), b.Ledger())
			if err != nil {
				return err
			}
			shown = breakers(breakersOf(remembered, time.Now()))
			return errors.Join(unreadable...)
		})
		return shown, err
	})
	c.AddCommand(loopsClearCommand())
	return c
}

type breakers []WorkloadBreaker

// Write implements [command.Shown].
func (list breakers) Write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s, %d of them in force\n", command.Count(len(list), "workload circuit breaker"), inForce(list))
	writeBreakers(w, list)
	return err
}

func inForce(list []WorkloadBreaker) (n int) {
	for _, l := range list {
		if l.Holds {
			n++
		}
	}
	return n
}

func loopsClearCommand() *cobra.Command {
	all := false
	c := &cobra.Command{
		Use:   "clear NAMESPACE/KIND/NAME | --all",
		Short: "Forget the workload circuit breakers of a workload, so that its pods are moved again",
		Long: "Forget the circuit breakers of a workload, or of all, so that their pods are moved again at the next decision.\n" +
			"The actuator that leads does it; it is waited for, for ten seconds. The kind is in capitals or not.",
		Example: "  rehome loops clear shop/deployment/api\n" +
			"  rehome loops clear --all",
	}
	s := command.BindClientFlags(c)
	c.Flags().BoolVar(&all, "all", false, "of all workloads")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		if err := checkWorkload(arguments, all); err != nil {
			return err
		}
		return command.WithSettings(c, s, func(s settings.Settings) error {
			return clearLoops(c.Context(), s, arguments, c.OutOrStdout())
		})
	}
	return c
}

func checkWorkload(arguments []string, all bool) error {
	switch {
	case all && len(arguments) > 0:
		return fmt.Errorf("--all: want it alone or a workload, got both, %q", arguments)
	case all:
		return nil
	case len(arguments) != 1:
		return fmt.Errorf("want one workload such as shop/deployment/api, or --all, got %q", arguments)
	}
	_, err := command.Parts(arguments[0], 3, "a workload such as shop/deployment/api")
	return err
}

const clearWithin = 10 * time.Second

func clearLoops(ctx context.Context, s settings.Settings, arguments []string, w io.Writer) error {
	if err := command.NotDryRun(s, "rehome loops clear", "; `rehome loops` changes nothing"); err != nil {
		return err
	}
	return command.WithBus(s, bus.Participant{Role: bus.RoleOperator}, func(b *bus.Bus) error {
		remembered, _, err := readLedger(ctx, b.Ledger())
		if err != nil {
			return err
		}
		chosen, keys := remembered.Loops, []string{actuator.ClearKey("")}
		if len(arguments) > 0 {
			if chosen, err = breakersNamed(remembered.Loops, arguments[0]); err != nil {
				return err
			}
			keys = clearKeys(chosen)
		}
		if len(chosen) == 0 {
			_, err := fmt.Fprintln(w, "there are no workload circuit breakers")
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, clearWithin)
		defer cancel()
		for _, key := range keys {
			if err := ask(ctx, b.Ledger(), key); err != nil {
				return err
			}
		}
		for _, l := range chosen {
			fmt.Fprintf(w, "cleared: %s on %s for %s\n", nameOfWorkload(l.Name, string(l.Workload)), l.Node, l.Strategy)
		}
		return nil
	})
}

// clearKeys returns one key for each UID: a workload that was created again has several.
func clearKeys(breakers []actuator.WorkloadBreaker) []string {
	var keys []string
	for _, l := range breakers {
		if key := actuator.ClearKey(l.Workload); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// breakersNamed returns the workload circuit breakers of NAMESPACE/KIND/NAME.
func breakersNamed(all []actuator.WorkloadBreaker, workload string) ([]actuator.WorkloadBreaker, error) {
	var known []string
	var chosen []actuator.WorkloadBreaker
	parts := strings.Split(workload, "/")
	for _, l := range all {
		if l.Name == nil {
			continue
		}
		name := l.Name.Namespace + "/" + strings.ToLower(l.Name.Kind) + "/" + l.Name.Name
		if parts[0] == l.Name.Namespace && strings.EqualFold(parts[1], l.Name.Kind) && parts[2] == l.Name.Name {
			chosen = append(chosen, l)
		}
		if !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s has no circuit breaker; those that have one: %s", workload, cmp.Or(strings.Join(known, ", "), "none"))
	}
	return chosen, nil
}

// ask puts the key until the actuator has deleted it. When ctx ends before, ask deletes the key, so that no actuator acts on it
// later.
func ask(ctx context.Context, l bus.Ledger, key string) error {
	for tries := 0; ; tries++ {
		if tries%10 == 0 { // one that begins to lead just now may have missed it
			if err := l.Put(ctx, key, actuator.ClearValue(time.Now())); err != nil && ctx.Err() == nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("no actuator answered within %v; is one running, without --dry-run?", clearWithin)
			return errors.Join(err, l.Delete(context.WithoutCancel(ctx), key))
		case <-time.After(200 * time.Millisecond):
		}
		entries, err := l.Entries(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if _, waits := entries[key]; err == nil && !waits {
			return nil
		}
	}
}
