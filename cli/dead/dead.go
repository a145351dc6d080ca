// Package dead holds the commands for dead letters.
//
//	dead.go    list, show
//	change.go  retry, drop
//	text.go    tables and JSON
package dead

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/command"
)

func Command() *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "dead",
		Short: "Show dead letters, the messages that could not be processed, and retry or drop them",
		Long: "Show the dead letters: messages that are not readable, that violate the contract, or that a function failed on every\n" +
			"time. They are kept for 7 days with their errors, and block no other message. A retry publishes the message again on\n" +
			"its subject, for when the cause is gone.",
		Example: "  rehome dead list --since 24h\n" +
			"  rehome dead show 3\n" +
			"  rehome dead retry 3",
	}, listCommand(), showCommand(), retryCommand(), dropCommand())
}

type letterFilter struct {
	since      time.Duration
	stream, by string
}

func (f *letterFilter) bind(c *cobra.Command) {
	c.Flags().DurationVar(&f.since, "since", 0, "those of this long ago and later, such as 24h; the default is all")
	c.Flags().StringVar(&f.stream, "stream", "", "those from this stream, such as "+bus.StreamScopes)
	c.Flags().StringVar(&f.by, "by", "", "those that this strategy, or this process, failed on")
}

func (f letterFilter) query(now time.Time) (q bus.DeadQuery, err error) {
	if err := command.Since(f.since); err != nil {
		return q, err
	}
	if strings.ContainsAny(f.stream, " \t\r\n.*>") {
		return q, fmt.Errorf("--stream: want the name of a stream such as %s, got %q", bus.StreamScopes, f.stream)
	}
	q = bus.DeadQuery{Stream: f.stream, By: f.by}
	if f.since > 0 {
		q.Since = now.Add(-f.since)
	}
	return q, nil
}

func listCommand() *cobra.Command {
	var filter letterFilter
	limit := 50
	c := &cobra.Command{
		Use:   "list",
		Short: "List the dead letters, newest first",
		Long: "List the dead letters, newest first: number, age, original stream, the strategy or process that failed, type and\n" +
			"subject of the event, and the error, cut to fit. A dash stands for a value of an unreadable event. With -o json each\n" +
			"letter is an object on a line of its own.",
		Example: "  rehome dead list\n" +
			"  rehome dead list --since 24h --by PodLifeTime     # what one strategy failed on since yesterday\n" +
			"  rehome dead list --stream REHOME_INTENTS --limit 0 -o json",
		Args: command.NoArguments,
	}
	filter.bind(c)
	c.Flags().IntVar(&limit, "limit", limit, "at most so many; 0: all")
	return command.Show(c, func(c *cobra.Command, s settings.Settings) (shown command.Shown, err error) {
		if limit < 0 {
			return nil, fmt.Errorf("--limit: want at least 0, got %d", limit)
		}
		now := time.Now()
		query, err := filter.query(now)
		if err != nil {
			return nil, err
		}
		err = command.WithBus(s, operator, func(b *bus.Bus) error {
			letters, total, err := readDead(c.Context(), b, query, limit)
			if err == nil {
				shown = List{letters, total, now}
			}
			return err
		})
		return shown, err
	})
}

// operator is how the commands connect to the bus.
var operator = bus.Participant{Role: bus.RoleOperator}

// readDead reads the newest matching dead letters, at most limit if that is not 0.
func readDead(ctx context.Context, b *bus.Bus, q bus.DeadQuery, limit int) (letters []bus.DeadLetter, total int, err error) {
	numbers, err := b.DeadNumbers(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	total = len(numbers)
	for _, number := range numbers {
		if limit > 0 && len(letters) == limit {
			break
		}
		d, err := b.DeadLetter(ctx, number)
		if errors.Is(err, bus.ErrNoDeadLetter) { // somebody has just dropped it
			total--
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		letters = append(letters, d)
	}
	return letters, total, nil
}

func showCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "show NUMBER",
		Short: "Show a dead letter: its error, its origin, its headers and the event",
		Example: "  rehome dead show 3\n" +
			"  rehome dead show 3 -o json | jq .event.data    # what the event says",
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 {
				return fmt.Errorf("want one number of a dead letter, got %q", arguments)
			}
			_, err := numberOf(arguments[0])
			return err
		},
	}
	return command.Show(c, func(c *cobra.Command, s settings.Settings) (shown command.Shown, err error) {
		number, err := numberOf(c.Flags().Arg(0))
		if err != nil {
			return nil, err
		}
		err = command.WithBus(s, operator, func(b *bus.Bus) error {
			d, err := b.DeadLetter(c.Context(), number)
			if err == nil {
				shown = LetterOf(d, time.Now())
			}
			return err
		})
		return shown, err
	})
}

func numberOf(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("want the number of a dead letter as `rehome dead list` shows it, got %q", text)
	}
	return n, nil
}
