package look

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

func getDeadLettersCommand() *cobra.Command {
	limit := 50
	c := &cobra.Command{
		Use: "deadletters [NUMBER]", Aliases: []string{"deadletter"}, Args: cobra.MaximumNArgs(1),
		Short: "List dead letters, newest first, or show one of them",
		Long: "List the dead letters, newest first, or show one with its headers and its event. They are messages that are\n" +
			"unreadable, that violate the contract, or that a function failed to handle every time. The bus keeps them for 7\n" +
			"days. They do not block other messages.",
		Example: "  rehome get deadletters --since 24h --by PodLifeTime\n" +
			"  rehome get deadletters 3 -o json | jq .event.data",
	}
	s := cmdutil.Settings(c).Bus()
	format := cmdutil.ListFlag(c)
	query := DeadLetterFlags(c)
	c.Flags().IntVar(&limit, "limit", limit, "largest number of rows; 0 means all")
	c.RunE = func(c *cobra.Command, args []string) error {
		q, err := query()
		if err != nil {
			return err
		}
		return cmdutil.WithBus(s.Settings, cmdutil.Operator, func(b *bus.Bus) error {
			if len(args) == 1 {
				return showDeadLetter(c, b, args[0], *format)
			}
			letters, more, err := readDeadLetters(c.Context(), b, q, limit)
			if err != nil {
				return err
			}
			if more > 0 {
				fmt.Fprintf(c.ErrOrStderr(), "%d older ones are hidden; --limit 0 shows all\n", more)
			}
			return DeadLettersTable(time.Now(), letters).Print(c.OutOrStdout(), *format)
		})
	}
	return c
}

// DeadLetterFlags adds the flags that select dead letters to c.
func DeadLetterFlags(c *cobra.Command) func() (bus.DeadQuery, error) {
	var q bus.DeadQuery
	since := cmdutil.Since(c, "letters of this period, such as 24h; the default is all")
	c.Flags().StringVar(&q.Stream, "stream", "", "letters from this stream, such as "+bus.StreamScopes)
	c.Flags().StringVar(&q.By, "by", "", "letters from this strategy, listener, or role")
	return func() (bus.DeadQuery, error) {
		if strings.ContainsAny(q.Stream, " \t\r\n.*>") {
			return q, fmt.Errorf("--stream: want the name of a stream such as %s, got %q", bus.StreamScopes, q.Stream)
		}
		var err error
		q.Since, err = since()
		return q, err
	}
}

// readDeadLetters reads the newest matching dead letters, at most limit unless it is 0, and counts the others.
func readDeadLetters(
	ctx context.Context, b *bus.Bus, q bus.DeadQuery, limit int,
) (letters []bus.DeadLetter, more int, err error) {
	numbers, err := b.DeadNumbers(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	for i, number := range numbers {
		if limit > 0 && len(letters) == limit {
			return letters, len(numbers) - i, nil
		}
		d, err := b.DeadLetter(ctx, number)
		if errors.Is(err, bus.ErrNoDeadLetter) { // it was dropped just now
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		letters = append(letters, d)
	}
	return letters, 0, nil
}

func showDeadLetter(c *cobra.Command, b *bus.Bus, text, format string) error {
	number, err := DeadLetterNumber(text)
	if err != nil {
		return err
	}
	d, err := b.DeadLetter(c.Context(), number)
	switch {
	case err != nil:
		return err
	case format == "json", format == "yaml":
		return cmdutil.PrintObject(c.OutOrStdout(), format, "DeadLetter", LetterOf(d))
	case format == "name":
		return DeadLettersTable(time.Now(), []bus.DeadLetter{d}).Print(c.OutOrStdout(), format)
	}
	return LetterOf(d).Write(c.OutOrStdout(), time.Now())
}

// DeadLetterNumber parses the number of a dead letter.
func DeadLetterNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "deadletter/"), 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("want the number of a dead letter from `rehome get deadletters`, got %q", text)
	}
	return n, nil
}

// Brief is a dead letter in a list.
type Brief struct {
	Number   uint64    `json:"number"`
	Time     time.Time `json:"time"`
	Stream   string    `json:"stream"`
	Sequence uint64    `json:"sequence"`
	Channel  string    `json:"channel"`
	By       string    `json:"by"`
	// Type and Subject are from the event, or empty if it is unreadable.
	Type    string `json:"type,omitempty"`
	Subject string `json:"subject,omitempty"`
	Error   string `json:"error"`
	// WholeSize is the size of a body that was cut.
	WholeSize int `json:"wholeSize,omitempty"`
}

// Letter is a whole dead letter, as JSON.
type Letter struct {
	Brief
	Headers map[string][]string `json:"headers"`
	// Event is the CloudEvent in structured mode. If it is unreadable, Body has the body of the message.
	Event json.RawMessage `json:"event,omitempty"`
	Body  []byte          `json:"body,omitempty"`

	letter bus.DeadLetter
}

func briefOf(d bus.DeadLetter) Brief {
	e, err := d.Event()
	if err != nil {
		e = schemas.Event{}
	}
	return Brief{
		Number: d.Number, Time: d.Buried, Stream: d.Stream, Sequence: d.Sequence, Channel: d.Channel, By: d.By,
		Type: e.Type, Subject: e.Subject, Error: d.Error, WholeSize: d.WholeSize,
	}
}

// LetterOf returns a dead letter with its event, or with its body if the event is unreadable.
func LetterOf(d bus.DeadLetter) Letter {
	l := Letter{Brief: briefOf(d), Headers: d.Header, letter: d}
	e, err := d.Event()
	if err == nil {
		l.Event, err = cloudevent.WriteStructured(e)
	}
	if err != nil {
		l.Event, l.Body = nil, d.Body
	}
	return l
}

// Write writes the letter as text.
func (l Letter) Write(w io.Writer, now time.Time) error {
	d := l.letter
	var text strings.Builder
	fmt.Fprintf(&text, "dead letter %d, buried %s (%s) by %s\n", d.Number, d.Buried.Local().Format(time.DateTime),
		cmdutil.Age(now, d.Buried)+" ago", cmdutil.Printable(d.By))
	fmt.Fprintf(&text, "it was     number %d of %s\n", d.Sequence, cmdutil.Printable(d.Stream))
	fmt.Fprintf(&text, "published  on %s\n", cmdutil.Printable(d.Channel))
	fmt.Fprintf(&text, "error      %s\n", cmdutil.Printable(d.Error))
	if d.WholeSize > 0 {
		fmt.Fprintf(&text, "cut        %d of %d bytes are left: it cannot be retried\n", len(d.Body), d.WholeSize)
	}
	if d.HeadersCut > 0 {
		fmt.Fprintf(&text, "cut        headers that are missing: %d; it cannot be retried\n", d.HeadersCut)
	}
	var headers [][]any
	for _, key := range slices.Sorted(maps.Keys(d.Header)) {
		for _, value := range d.Header[key] {
			headers = append(headers, []any{key, value})
		}
	}
	if err := section(&text, "Headers", rows("Header,Value", headers)); err != nil {
		return err
	}
	fmt.Fprintln(&text)
	var pretty bytes.Buffer
	switch {
	case l.Event != nil && json.Indent(&pretty, l.Event, "", "  ") == nil:
		for line := range strings.SplitSeq(pretty.String(), "\n") {
			fmt.Fprintln(&text, cmdutil.Printable(line))
		}
	case len(d.Body) == 0:
		fmt.Fprintln(&text, "the message is no event and has no body")
	default:
		fmt.Fprintf(&text, "the message is no event; its body, %d bytes:\n%s\n", len(d.Body), strconv.Quote(string(d.Body)))
	}
	_, err := io.WriteString(w, text.String())
	return err
}
