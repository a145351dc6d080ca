package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rehome-dev/rehome/schemas"
)

// Line is one verdict in the output, which programs may rely on. New versions only add fields.
type Line struct {
	Pod schemas.PodRef `json:"pod"`
	// Node is the node of the pod.
	Node     string `json:"node"`
	Strategy string `json:"strategy"`
	Profile  string `json:"profile"`
	// Outcome is the outcome of the move. In a simulation or a dry run no pod moves.
	Outcome schemas.Outcome `json:"outcome"`
	// Reason is the reason of the outcome, for programs.
	Reason schemas.ReasonCode `json:"reason"`
	// Message explains why the pod moves or does not.
	Message string `json:"message"`
}

// LineOf returns the line of a verdict.
func LineOf(v schemas.Verdict) Line {
	l := Line{
		Pod: v.Intent.Pod, Node: v.Intent.Node, Strategy: v.Strategy, Profile: v.Profile,
		Outcome: v.Outcome, Reason: v.Reason, Message: v.Message,
	}
	if v.Outcome.Moves() {
		l.Message = v.Intent.Reason
	}
	return l
}

// Output prints verdicts. Only one goroutine calls its methods.
type Output interface {
	// Verdicts prints the verdicts of one turn.
	Verdicts([]schemas.Verdict) error
	// End is called after the last turn.
	End() error
}

// NewJSON prints each verdict as a [Line] in JSON on one line, and nothing else.
func NewJSON(w io.Writer) Output {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return jsonOutput{e}
}

type jsonOutput struct{ lines *json.Encoder }

func (o jsonOutput) Verdicts(list []schemas.Verdict) error {
	for _, v := range list {
		if err := o.lines.Encode(LineOf(v)); err != nil {
			return err
		}
	}
	return nil
}

func (jsonOutput) End() error { return nil }

// NewTable prints a table for users, and then the number of pods by outcome. title comes before the counts. Outcomes
// without pods are omitted, except evicted, deferred, and rejected. The columns of a turn are at least as wide as in
// earlier turns. printable replaces control characters, which other programs may have put into names.
func NewTable(w io.Writer, title string, printable func(string) string) Output {
	return &table{w: w, title: title, printable: printable, counts: map[schemas.Outcome]int{}}
}

type table struct {
	w         io.Writer
	title     string
	printable func(string) string
	widths    [6]int
	begun     bool
	counts    map[schemas.Outcome]int
}

func (t *table) Verdicts(list []schemas.Verdict) error {
	var rows [][6]string
	if !t.begun && len(list) > 0 {
		t.begun = true
		rows = append(rows, [6]string{"NAMESPACE", "POD", "NODE", "STRATEGY", "OUTCOME", "REASON"})
	}
	for _, v := range list {
		l := LineOf(v)
		t.counts[l.Outcome]++
		reason := l.Message
		if !l.Outcome.Moves() {
			reason = string(l.Reason) + ": " + l.Message
		}
		rows = append(rows, [6]string{l.Pod.Namespace, l.Pod.Name, l.Node, l.Strategy, string(l.Outcome), reason})
	}
	for r := range rows {
		for i, cell := range rows[r] {
			rows[r][i] = t.printable(cell)
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(rows[r][i]))
		}
	}
	for _, row := range rows {
		if err := t.row(row); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) row(row [6]string) error {
	var line strings.Builder
	for i, cell := range row {
		line.WriteString(cell)
		if i < len(row)-1 {
			line.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+3))
		}
	}
	_, err := fmt.Fprintln(t.w, line.String())
	return err
}

func (t *table) End() error {
	var counts []string
	for _, o := range schemas.Outcomes() {
		if n := t.counts[o]; n > 0 || slices.Contains([]schemas.Outcome{schemas.Evicted, schemas.Deferred, schemas.Rejected}, o) {
			counts = append(counts, fmt.Sprintf("%d %s", n, o))
		}
	}
	_, err := fmt.Fprintf(t.w, "%s: %s\n", t.title, strings.Join(counts, ", "))
	return err
}
