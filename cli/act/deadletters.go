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
		Use: "deadletters", Aliases: []string{"deadletter"},
		Short: "Retry or drop messages that could not be processed; `rehome get deadletters` lists them",
	}, retryCommand(), dropCommand())
}

func retryCommand() *cobra.Command {
	return changeCommand(&cobra.Command{
		Use:   "retry NUMBER... | --all",
		Short: "Publish the messages of dead letters again and remove the letters",
		Long: "Publish the messages of dead letters again, each on its original subject, and remove the letters. Do this after you\n" +
			"have fixed the cause. Otherwise the messages come back as new letters. With --all, the newest letter is first,\n" +
			"because only the newest scope and answer of a key count.\n\n" +
			"A letter stays if its message was too large and was cut, if a newer message has replaced it, if it belongs to a\n" +
			"request or a maintenance, or if its writer lacked the right to publish it there. You can repeat an interrupted\n" +
			"retry: nothing is published twice.\n\n" +
			"The exit code is 0 if all messages were published.",
		Example: "  rehome deadletters retry 3 5\n" +
			"  rehome deadletters retry --all --by PodLifeTime --since 1h    # failures of one strategy in the last hour",
	}, func(ctx context.Context, b *bus.Bus, number uint64) (string, error) {
		sequence, err := b.RetryDead(ctx, number)
		return fmt.Sprintf("%d: published again, as number %d", number, sequence), err
	})
}

func dropCommand() *cobra.Command {
	return changeCommand(&cobra.Command{
		Use:   "drop NUMBER... | --all",
		Short: "Remove dead letters permanently",
		Long: "Remove dead letters permanently.\n\n" +
			"The exit code is 0 if all letters were removed.",
		Example: "  rehome deadletters drop 3 5\n" +
			"  rehome deadletters drop --all --stream REHOME_INTENTS\n" +
			"  rehome deadletters drop --all --yes",
	}, func(ctx context.Context, b *bus.Bus, number uint64) (string, error) {
		return fmt.Sprintf("%d: dropped", number), b.DropDead(ctx, number)
	})
}

type change func(ctx context.Context, b *bus.Bus, number uint64) (done string, err error)

// changeCommand makes c change dead letters by number, or with --all the letters that match the flags. It refuses flags that
// could select more letters than the user expects.
func changeCommand(c *cobra.Command, do change) *cobra.Command {
	all, yes := false, false
	s := cmdutil.Settings(c).Bus()
	query := look.DeadLetterFlags(c)
	c.Flags().BoolVar(&all, "all", false, "all letters that match --since, --stream, and --by; requires one of them, or --yes")
	c.Flags().BoolVar(&yes, "yes", false, "with --all: all letters, without a filter")
	c.RunE = func(c *cobra.Command, args []string) error {
		q, err := query()
		filtered := q != bus.DeadQuery{}
		switch {
		case err != nil:
			return err
		case all == (len(args) > 0):
			return fmt.Errorf("want numbers of dead letters or --all, got %q and --all=%v", args, all)
		case all && !filtered && !yes:
			return errors.New("--all: want --since, --stream, or --by to select letters, or --yes for all letters")
		case !all && (filtered || yes):
			return errors.New("--since, --stream, --by, and --yes: want them with --all, got numbers")
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

// changeDead changes the letters one by one and prints each result. It joins the errors of letters that it could not change.
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
