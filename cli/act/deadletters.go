package act

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
)

func deadLettersCommand() *cobra.Command {
	return cmdutil.Group(&cobra.Command{
		Use: "deadletters", Aliases: []string{"deadletter"}, Short: "Retry or drop messages that could not be processed; `rehome get deadletters` lists them",
	}, retryCommand(), dropCommand())
}

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
		Example: "  rehome deadletters retry 3 5\n" +
			"  rehome deadletters retry --all --by PodLifeTime --since 1h    # what one strategy failed on in the last hour",
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
		Example: "  rehome deadletters drop 3 5\n" +
			"  rehome deadletters drop --all --stream REHOME_INTENTS\n" +
			"  rehome deadletters drop --all --yes",
	}, func(ctx context.Context, b *bus.Bus, number uint64) (string, error) {
		return fmt.Sprintf("%d: dropped", number), b.DropDead(ctx, number)
	})
}

type change func(ctx context.Context, b *bus.Bus, number uint64) (done string, err error)

// changeCommand lets c change dead letters by number, or with --all those that match the flags. It refuses what could mean more
// letters than the user expects.
func changeCommand(c *cobra.Command, do change) *cobra.Command {
	all, yes := false, false
	s := cmdutil.Settings(c).Bus()
	query := look.DeadLetterFlags(c)
	c.Flags().BoolVar(&all, "all", false, "all that --since, --stream and --by leave; without any of these it needs --yes")
	c.Flags().BoolVar(&yes, "yes", false, "every single one, with --all")
	c.RunE = func(c *cobra.Command, args []string) error {
		q, err := query()
		filtered := q != bus.DeadQuery{}
		switch {
		case err != nil:
			return err
		case all == (len(args) > 0):
			return fmt.Errorf("want numbers of dead letters or --all, got %q and --all=%v", args, all)
		case all && !filtered && !yes:
			return errors.New("--all: want --since, --stream or --by to say which, or --yes for every single one")
		case !all && (filtered || yes):
			return errors.New("--since, --stream, --by and --yes: want them with --all, got numbers")
		}
		if err := s.RefuseDryRun(); err != nil {
			return err
		}
		var numbers []uint64
		for _, text := range args {
			n, err := look.DeadLetterNumber(text)
			if err != nil {
				return err
			}
			numbers = append(numbers, n)
		}
		return cmdutil.WithBus(s.Settings, cmdutil.Operator, func(b *bus.Bus) error {
			if all {
				if numbers, err = b.DeadNumbers(c.Context(), q); err != nil {
					return err
				}
			}
			return changeDead(c, b, numbers, do)
		})
	}
	return c
}

// changeDead changes one letter after the other and prints each result. The error joins those of the letters that it could not
// change.
func changeDead(c *cobra.Command, b *bus.Bus, numbers []uint64, do change) error {
	if len(numbers) == 0 {
		_, err := fmt.Fprintln(c.OutOrStdout(), "there are no such dead letters")
		return err
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
}
