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

func WholeOf(d bus.DeadLetter) deadWhole {
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

// WriteDeadList writes dead letters as a table, of which there are total.
func WriteDeadList(w io.Writer, letters []bus.DeadLetter, total int, now time.Time) error {
	var text strings.Builder
	fmt.Fprint(&text, command.Count(total, "dead letter"))
	if len(letters) < total {
		fmt.Fprintf(&text, ", the newest %d of them; --limit 0 shows all", len(letters))
	}
	fmt.Fprintln(&text)
	var rows [][]string
	for _, d := range letters {
		b := briefOf(d)
		row := []string{strconv.FormatUint(d.Number, 10), command.Age(now, d.Buried), d.Stream, d.By, b.Type, b.Subject, d.Error}
		for i := range row {
			if row[i] = command.Printable(row[i]); row[i] == "" {
				row[i] = "-"
			}
		}
		rows = append(rows, row)
	}
	const head = "NUMBER\tAGE\tSTREAM\tBY\tTYPE\tSUBJECT\tERROR"
	command.CutLast(rows, strings.Split(head, "\t"))
	command.WriteTable(&text, head, rows)
	_, err := io.WriteString(w, text.String())
	return err
}

// WriteDead writes all of a dead letter for people.
func WriteDead(w io.Writer, d bus.DeadLetter, now time.Time) error {
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
	command.WriteTable(&text, "HEADER\tVALUE", rows)
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
			fmt.Fprintln(w, command.Printable(line))
		}
	case len(d.Body) == 0:
		fmt.Fprintln(w, "the message is no event and has no body")
	default:
		fmt.Fprintf(w, "the message is no event; its body, %d bytes:\n%s\n", len(d.Body), strconv.Quote(string(d.Body)))
	}
}
