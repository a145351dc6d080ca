package act

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/status"
)

func breakersCommand() *cobra.Command {
	all := false
	c := &cobra.Command{
		Use:   "clear (TYPE NAME | --all)",
		Short: "Close the circuit breakers of a workload, so its pods can move again",
		Long: "Close the circuit breakers of a workload, or of all workloads, so their pods can move again at the next decision.\n" +
			"The leading actuator does this; the command waits for it for up to ten seconds.",
		Example: "  rehome breakers clear deployment/api -n shop\n" +
			"  rehome breakers clear --all",
		Args: func(c *cobra.Command, args []string) error {
			if all {
				return cobra.NoArgs(c, args)
			}
			return cobra.RangeArgs(1, 2)(c, args)
		},
	}
	s := cmdutil.Settings(c).Bus()
	namespaceOf := s.Namespace()
	c.ValidArgsFunction = cmdutil.CompleteResources(s, namespaceOf, cmdutil.KindNames()...)
	c.Flags().BoolVar(&all, "all", false, "close the circuit breakers of all workloads")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := s.RefuseDryRun(); err != nil {
			return err
		}
		var of *schemas.ObjectRef
		if !all {
			kind, name, err := cmdutil.Resource(args)
			if err != nil {
				return err
			}
			namespace, err := namespaceOf()
			if err != nil {
				return err
			}
			of = &schemas.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
		}
		return clearBreakers(c.Context(), s.Settings, of, c.OutOrStdout())
	}
	return cmdutil.Group(&cobra.Command{
		Use: "breakers", Short: "Close circuit breakers of workloads; `rehome get breakers` lists them",
	}, c)
}

const clearWithin = 10 * time.Second

// clearBreakers closes the circuit breakers of a workload, or all circuit breakers if of is nil.
func clearBreakers(ctx context.Context, s settings.Settings, of *schemas.ObjectRef, w io.Writer) error {
	return cmdutil.WithBus(s, cmdutil.Operator, func(b *bus.Bus) error {
		remembered, _, err := status.Ledger(ctx, b)
		if err != nil {
			return err
		}
		chosen, keys := remembered.Loops, []string{actuator.ClearKey("")}
		if of != nil {
			if chosen, err = breakersNamed(remembered.Loops, *of); err != nil {
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
		if err := ask(ctx, b.Ledger(), keys, chosen); err != nil {
			return err
		}
		for _, l := range chosen {
			fmt.Fprintf(w, "cleared: %s on %s for %s\n", nameOf(l), l.Node, l.Strategy)
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

// nameOf falls back to the UID of the workload.
func nameOf(l actuator.WorkloadBreaker) string {
	if l.Name == nil {
		return "UID " + string(l.Workload)
	}
	return l.Name.String()
}

func breakersNamed(all []actuator.WorkloadBreaker, of schemas.ObjectRef) ([]actuator.WorkloadBreaker, error) {
	var known []string
	var chosen []actuator.WorkloadBreaker
	for _, l := range all {
		if l.Name == nil {
			continue
		}
		if of.Namespace == l.Name.Namespace && strings.EqualFold(of.Kind, l.Name.Kind) && of.Name == l.Name.Name {
			chosen = append(chosen, l)
		}
		if !slices.Contains(known, nameOf(l)) {
			known = append(known, nameOf(l))
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s has no circuit breaker; workloads with one: %s", of, cmp.Or(strings.Join(known, ", "), "none"))
	}
	return chosen, nil
}

// ask puts the keys until the actuator has deleted them and the circuit breakers, or ctx ends. An actuator that begins to lead
// can delete a key without the circuit breakers: if its clock is ahead, the request is too old.
func ask(ctx context.Context, l bus.Ledger, keys []string, breakers []actuator.WorkloadBreaker) error {
	for tries := 0; ; tries++ {
		if tries%10 == 0 { // one that begins to lead just now may have missed it
			for _, key := range keys {
				if err := l.Put(ctx, key, actuator.ClearValue(time.Now())); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no actuator answered within %v; is one running, without --dry-run?", clearWithin)
		case <-time.After(200 * time.Millisecond):
		}
		entries, err := l.Entries(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && cleared(entries, keys, breakers) {
			return nil
		}
	}
}

// cleared reports whether the ledger has neither the keys nor the circuit breakers. A newer record of the same workload is not
// the one that was cleared.
func cleared(entries map[string][]byte, keys []string, breakers []actuator.WorkloadBreaker) bool {
	remembered, _ := actuator.ReadLedger(entries)
	waits := func(key string) bool { _, waits := entries[key]; return waits }
	return !slices.ContainsFunc(keys, waits) &&
		!slices.ContainsFunc(breakers, func(b actuator.WorkloadBreaker) bool {
			return slices.ContainsFunc(remembered.Loops, func(l actuator.WorkloadBreaker) bool {
				return l.BreakerKey == b.BreakerKey && l.Last.Equal(b.Last)
			})
		})
}
