package dead

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

type brief struct {
	Number   uint64    `json:"number"`
	Time     time.Time `json:"time"`
	Stream   string    `json:"stream"`
	Sequence uint64    `json:"sequence"`
	Channel  string    `json:"channel"`
	By       string    `json:"by"`
	// Type and Subject are those of the event, or empty if it is not readable.
	Type    string `json:"type,omitempty"`
	Subject string `json:"subject,omitempty"`
	Error   string `json:"error"`
	// WholeSize is the size of a body that was cut.
	WholeSize int `json:"wholeSize,omitempty"`
}

// Letter is a whole dead letter, as JSON.
type Letter struct {
	brief
	Headers map[string][]string `json:"headers"`
	// Event is the CloudEvent in structured mode. If it is not readable, Body is the body of the message instead.
	Event json.RawMessage `json:"event,omitempty"`
	Body  []byte          `json:"body,omitempty"`

	letter bus.DeadLetter
	now    time.Time
}

func briefOf(d bus.DeadLetter) brief {
	e, err := d.Event()
	if err != nil {
		e = schemas.Event{}
	}
	return brief{
		Number: d.Number, Time: d.Buried, Stream: d.Stream, Sequence: d.Sequence, Channel: d.Channel, By: d.By,
		Type: e.Type, Subject: e.Subject, Error: d.Error, WholeSize: d.WholeSize,
	}
}

// LetterOf is a dead letter as it is shown at a time.
func LetterOf(d bus.DeadLetter, now time.Time) Letter {
	l := Letter{brief: briefOf(d), Headers: d.Header, letter: d, now: now}
	e, err := d.Event()
	if err == nil {
		l.Event, err = cloudevent.WriteStructured(e)
	}
	if err != nil {
		l.Event, l.Body = nil, d.Body
	}
	return l
}

// List is the newest dead letters of a total.
type List struct {
	Letters []bus.DeadLetter
	Total   int
	Now     time.Time
}

// Each implements [command.Lines].
func (l List) Each(do func(any) error) error {
	for _, d := range l.Letters {
		if err := do(briefOf(d)); err != nil {
			return err
		}
	}
	return nil
}

// Write implements [command.Shown].
func (l List) Write(w io.Writer) error {
	var text strings.Builder
	fmt.Fprint(&text, command.Count(l.Total, "dead letter"))
	if len(l.Letters) < l.Total {
		fmt.Fprintf(&text, ", the newest %d of them; --limit 0 shows all", len(l.Letters))
	}
	fmt.Fprintln(&text)
	var rows [][]string
	for _, d := range l.Letters {
		b := briefOf(d)
		row := []string{strconv.FormatUint(d.Number, 10), command.Age(l.Now, d.Buried), d.Stream, d.By, b.Type, b.Subject, d.Error}
		for i := range row {
			if row[i] = command.Printable(row[i]); row[i] == "" {
				row[i] = "-"
			}
		}
		rows = append(rows, row)
	}
	command.WriteTable(&text, true, "NUMBER\tAGE\tSTREAM\tBY\tTYPE\tSUBJECT\tERROR", rows)
	_, err := io.WriteString(w, text.String())
	return err
}

// Write implements [command.Shown].
func (l Letter) Write(w io.Writer) error {
	d, now := l.letter, l.now
	var text strings.Builder
	fmt.Fprintf(&text, "dead letter %d, buried %s (%s) by %s\n", d.Number, d.Buried.Local().Format(time.DateTime),
		command.Ago(now, d.Buried), command.Printable(d.By))
	fmt.Fprintf(&text, "it was     number %d of %s\n", d.Sequence, command.Printable(d.Stream))
	fmt.Fprintf(&text, "published  on %s\n", command.Printable(d.Channel))
	fmt.Fprintf(&text, "error      %s\n", command.Printable(d.Error))
	if d.WholeSize > 0 {
		fmt.Fprintf(&text, "cut        %d of %d bytes are left: it cannot be retried\n", len(d.Body), d.WholeSize)
	}
	var rows [][]string
	for _, key := range slices.Sorted(maps.Keys(d.Header)) {
		for _, value := range d.Header[key] {
			rows = append(rows, []string{command.Printable(key), command.Printable(value)})
		}
	}
	command.WriteTable(&text, false, "HEADER\tVALUE", rows)
	fmt.Fprintln(&text)
	var pretty bytes.Buffer
	switch {
	case l.Event != nil && json.Indent(&pretty, l.Event, "", "  ") == nil:
		for line := range strings.SplitSeq(pretty.String(), "\n") {
			fmt.Fprintln(&text, command.Printable(line))
		}
	case len(d.Body) == 0:
		fmt.Fprintln(&text, "the message is no event and has no body")
	default:
		fmt.Fprintf(&text, "the message is no event; its body, %d bytes:\n%s\n", len(d.Body), strconv.Quote(string(d.Body)))
	}
	_, err := io.WriteString(w, text.String())
	return err
}
