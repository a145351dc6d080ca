package main

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
	"unicode"
	"unicode/utf8"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

const (
	// lineWidth is how wide a line of a list gets at most: as wide as two files beside each other on a common screen.
	lineWidth = 160
	// leastError is how much of an error is shown however long the rest of the line is.
	leastError = 40
)

// deadBrief is a dead letter in a list, as JSON.
type deadBrief struct {
	Number   uint64    `json:"number"`
	Time     time.Time `json:"time"`
	Stream   string    `json:"stream"`
	Sequence uint64    `json:"sequence"`
	Channel  string    `json:"channel"`
	By       string    `json:"by"`
	// Type and Subject are those of the event. Empty: it cannot be read.
	Type    string `json:"type,omitempty"`
	Subject string `json:"subject,omitempty"`
	Error   string `json:"error"`
	// WholeSize is how many bytes the body had when it had to be cut.
	WholeSize int `json:"wholeSize,omitempty"`
}

// deadWhole is all of a dead letter, as JSON.
type deadWhole struct {
	deadBrief
	Headers map[string][]string `json:"headers"`
	// Event is the event as a CloudEvent in structured mode. Absent: it cannot be read; then Body is the body of the message.
	Event json.RawMessage `json:"event,omitempty"`
	Body  []byte          `json:"body,omitempty"`
}

func briefOf(d bus.DeadLetter) deadBrief {
	e, err := d.Event()
	if err != nil {
		e = schemas.Event{}
	}
	return deadBrief{
		Number: d.Number, Time: d.Buried, Stream: d.Stream, Sequence: d.Sequence, Channel: d.Channel, By: d.By,
		Type: e.Type, Subject: e.Subject, Error: d.Error, WholeSize: d.WholeSize,
	}
}

func wholeOf(d bus.DeadLetter) deadWhole {
	whole := deadWhole{deadBrief: briefOf(d), Headers: d.Header}
	var err error
	if whole.Event, err = structured(d); err != nil {
		whole.Body = d.Body
	}
	return whole
}

// structured is the event of the letter in structured mode.
func structured(d bus.DeadLetter) ([]byte, error) {
	e, err := d.Event()
	if err != nil {
		return nil, err
	}
	return cloudevent.WriteStructured(e)
}

// writeDeadList writes dead letters as a table, of which there are total.
func writeDeadList(w io.Writer, letters []bus.DeadLetter, total int, now time.Time) error {
	var text strings.Builder
	fmt.Fprint(&text, count(total, "dead letter"))
	if len(letters) < total {
		fmt.Fprintf(&text, ", the newest %d of them; --limit 0 shows all", len(letters))
	}
	fmt.Fprintln(&text)
	var rows [][]string
	for _, d := range letters {
		b := briefOf(d)
		row := []string{strconv.FormatUint(d.Number, 10), age(now, d.Buried), d.Stream, d.By, b.Type, b.Subject, d.Error}
		for i := range row {
			if row[i] = printable(row[i]); row[i] == "" {
				row[i] = "-"
			}
		}
		rows = append(rows, row)
	}
	const head = "NUMBER\tAGE\tSTREAM\tBY\tTYPE\tSUBJECT\tERROR"
	cutLast(rows, strings.Split(head, "\t"))
	writeTable(&text, head, rows)
	_, err := io.WriteString(w, text.String())
	return err
}

// cutLast cuts the last cell of each row to what the columns before it leave of a line.
func cutLast(rows [][]string, head []string) {
	last := len(head) - 1
	room := lineWidth
	for i := range last {
		width := len(head[i])
		for _, row := range rows {
			width = max(width, utf8.RuneCountInString(row[i]))
		}
		room -= width + len("   ")
	}
	room = max(room, leastError)
	for _, row := range rows {
		if text := []rune(row[last]); len(text) > room {
			row[last] = string(text[:room-1]) + "…"
		}
	}
}

// writeDead writes all of a dead letter for people.
func writeDead(w io.Writer, d bus.DeadLetter, now time.Time) error {
	var text strings.Builder
	fmt.Fprintf(&text, "dead letter %d, buried %s (%s) by %s\n", d.Number, d.Buried.Local().Format(time.DateTime),
		ago(now, d.Buried), printable(d.By))
	fmt.Fprintf(&text, "it was     number %d of %s\n", d.Sequence, printable(d.Stream))
	fmt.Fprintf(&text, "published  on %s\n", printable(d.Channel))
	fmt.Fprintf(&text, "error      %s\n", printable(d.Error))
	if d.WholeSize > 0 {
		fmt.Fprintf(&text, "cut        %d of %d bytes are left: it cannot be retried\n", len(d.Body), d.WholeSize)
	}
	var rows [][]string
	for _, key := range slices.Sorted(maps.Keys(d.Header)) {
		for _, value := range d.Header[key] {
			rows = append(rows, []string{printable(key), printable(value)})
		}
	}
	writeTable(&text, "HEADER\tVALUE", rows)
	fmt.Fprintln(&text)
	writeMessage(&text, d)
	_, err := io.WriteString(w, text.String())
	return err
}

// writeMessage writes the event, or the body of what is none.
func writeMessage(w io.Writer, d bus.DeadLetter) {
	var pretty bytes.Buffer
	line, err := structured(d)
	if err == nil {
		err = json.Indent(&pretty, line, "", "  ")
	}
	switch {
	case err == nil:
		for line := range strings.SplitSeq(pretty.String(), "\n") {
			fmt.Fprintln(w, printable(line))
		}
	case len(d.Body) == 0:
		fmt.Fprintln(w, "the message is no event and has no body")
	default:
		fmt.Fprintf(w, "the message is no event; its body, %d bytes:\n%s\n", len(d.Body), strconv.Quote(string(d.Body)))
	}
}

// printable is text that cannot move the cursor of a terminal: what anybody wrote stands in dead letters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, text)
}
