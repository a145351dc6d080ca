package dead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/command"
)

func retryCommand() *cobra.Command {
	return changeCommand(&cobra.Command{
		Use:   "retry NUMBER... | --all",
		Short: "Publish the messages of dead letters again, each where it was, and remove the letters",
		Long: "Publish the messages of dead letters again, each where it was, and remove the letters. Do it when the cause is gone;\n" +
			"else they come back as new letters. With --all the newest goes first, since the newest scope and answer of a key stand.\n\n" +
			"A letter stays when its message was too large and was cut, when a newer message has taken its place, when it belongs\n" +
			"to a request or a maintenance, and when its writer could not have published it there. A retry that was interrupted\n" +
			"can be repeated at once: nothing is published twice.\n\n" +
			"The exit code is 0 when all were published.",
		Example: "  rehome dead retry 3 5\n" +
			"  rehome dead retry --all --by PodLifeTime --since 1h    # what one strategy failed on in the last hour",
	}, func(ctx context.Context, b *bus.Bus, number uint64) (string, error) {
		sequence, err := b.RetryDead(ctx, number)
		return fmt.Sprintf("%d: published again, as number %d", number, sequence), err
	})
}

func dropCommand() *cobra.Command {
	return changeCommand(&cobra.Command{
		Use:   "drop NUMBER... | --all",
		Short: "Remove dead letters for good",
		Long: "Remove dead letters for good.\n\n" +
			"The exit code is 0 when all were removed.",
		Example: "  rehome dead drop 3 5\n" +
			"  rehome dead drop --all --stream REHOME_INTENTS\n" +
			"  rehome dead drop --all --yes",
	}, func(ctx context.Context, b *bus.Bus, number uint64) (string, error) {
		return fmt.Sprintf("%d: dropped", number), b.DropDead(ctx, number)
	})
}

type change func(ctx context.Context, b *bus.Bus, number uint64) (done string, err error)

// changeCommand lets c change dead letters by number, or with --all those that match the filter.
func changeCommand(c *cobra.Command, do change) *cobra.Command {
	var chosen choice
	s := command.BindClientFlags(c)
	chosen.filter.bind(c)
	c.Flags().BoolVar(&chosen.all, "all", false, "all that --since, --stream and --by leave; without any of these it needs --yes")
	c.Flags().BoolVar(&chosen.yes, "yes", false, "every single one, with --all")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		var err error
		if chosen.query, err = chosen.filter.query(time.Now()); err != nil {
			return err
		}
		if err := chosen.read(arguments); err != nil {
			return err
		}
		return command.WithSettings(c, s, func(s settings.Settings) error { return changeDead(c, s, chosen, do) })
	}
	return c
}

// choice is the dead letters to change: the numbers, or all that match the query.
type choice struct {
	filter   letterFilter
	all, yes bool
	numbers  []uint64
	query    bus.DeadQuery
}

// read refuses arguments that could mean more letters than the user expects.
func (d *choice) read(arguments []string) error {
	filtered := d.filter != letterFilter{}
	switch {
	case d.all && len(arguments) > 0:
		return fmt.Errorf("--all: want it alone or numbers, got both, %q", arguments)
	case d.all && !filtered && !d.yes:
		return fmt.Errorf("--all: want --since, --stream or --by to say which, or --yes for every single one")
	case !d.all && len(arguments) == 0:
		return fmt.Errorf("want numbers of dead letters, or --all, got none")
	case !d.all && (filtered || d.yes):
		return fmt.Errorf("--since, --stream, --by and --yes: want them with --all, got numbers")
	}
	for _, text := range arguments {
		n, err := numberOf(text)
		if err != nil {
			return err
		}
		d.numbers = append(d.numbers, n)
	}
	return nil
}

// changeDead changes one letter after the other and prints each result. The error joins those of the letters that it could not
// change.
func changeDead(c *cobra.Command, s settings.Settings, chosen choice, do change) error {
	if err := command.NotDryRun(s, c.CommandPath(), "; `rehome dead list` changes nothing"); err != nil {
		return err
	}
	return command.WithBus(s, operator, func(b *bus.Bus) (err error) {
		numbers := chosen.numbers
		if chosen.all {
			if numbers, err = b.DeadNumbers(c.Context(), chosen.query); err != nil {
				return err
			}
			if len(numbers) == 0 {
				_, err := fmt.Fprintln(c.OutOrStdout(), "there are no such dead letters")
				return err
			}
		}
		var failed []error
		for _, number := range numbers {
			done, err := do(c.Context(), b, number)
			if err == nil {
				_, err = fmt.Fprintln(c.OutOrStdout(), done)
			}
			if failed = append(failed, err); errors.Is(err, bus.ErrNotConnected) {
				break
			}
		}
		return errors.Join(failed...)
	})
}
