package look

import (
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
)

// ShownDeferred is how many deferred pods a table has at most: a screen. JSON has all of them.
const ShownDeferred = 20

func (st Status) writeDeferred(w io.Writer) {
	var rows [][]string
	for _, d := range st.Deferred[:min(len(st.Deferred), ShownDeferred)] {
		again := "-"
		if !d.Again.IsZero() {
			again = "in " + max(d.Again.Sub(st.Time), 0).Truncate(time.Second).String()
		}
		rows = append(rows, []string{
			d.Pod.String(), d.Strategy, string(d.Reason), command.Age(st.Time, d.Since), command.Age(st.Time, d.Last), again,
			command.Printable(d.Message),
		})
	}
	const head = "DEFERRED POD\tSTRATEGY\tREASON\tSINCE\tLAST TRY\tNEXT TRY\tMESSAGE"
	command.CutLast(rows, strings.Split(head, "\t"))
	command.WriteTable(w, head, rows)
	if more := len(st.Deferred) - ShownDeferred; more > 0 {
		fmt.Fprintf(w, "and %d more; -o json has all of them\n", more)
	}
}

func (st Status) writeRequests(w io.Writer) {
	var rows [][]string
	for _, r := range st.Requests {
		deadline := "-"
		if r.Action == schemas.ActionDeschedule || r.Action == schemas.ActionMaintain {
			deadline = "in " + max(r.ends().Sub(st.Time), 0).Truncate(time.Second).String()
		}
		rows = append(rows, []string{
			r.Sender + "/" + r.Name, command.Ago(st.Time, r.Since), deadline, command.Printable(DescribeRequest(r.Request)),
		})
	}
	const head = "OPEN REQUEST\tSENT\tDEADLINE\tWANTS"
	command.CutLast(rows, strings.Split(head, "\t"))
	command.WriteTable(w, head, rows)
}

// ends is when what is left of it is given up.
func (r OpenRequest) ends() time.Time {
	switch {
	case r.Deadline.IsZero() && r.Action == schemas.ActionMaintain:
		return r.Since.Add(24 * time.Hour)
	case r.Deadline.IsZero():
		return r.Since.Add(time.Hour)
	}
	return r.Deadline
}

// writeStreams writes what the streams hold, how far each strategy has come, and the dead letters.
func (st Status) writeStreams(w io.Writer) {
	var rows, workers [][]string
	for _, s := range st.Streams {
		used := ""
		if s.MaxBytes > 0 {
			used = fmt.Sprintf("%d%% of %s", s.Bytes*100/uint64(s.MaxBytes), command.SizeOf(uint64(s.MaxBytes)))
		}
		rows = append(rows, []string{s.Name, strconv.FormatUint(s.Messages, 10), command.SizeOf(s.Bytes), used})
		for _, k := range s.Workers {
			if k == (bus.WorkerStatus{Strategy: k.Strategy}) {
				continue // nobody works on it, and there is nothing to work on
			}
			workers = append(workers, []string{
				k.Strategy, strconv.FormatUint(k.Waiting, 10), strconv.Itoa(k.InHand), strconv.Itoa(k.Again), strconv.Itoa(k.Idle),
			})
		}
	}
	command.WriteTable(w, "STREAM\tMESSAGES\tBYTES\tUSED", rows)
	command.WriteTable(w, "SCOPES OF\tWAITING\tIN HAND\tTRIED AGAIN\tIDLE HANDLERS", workers)
	if len(st.DeadLetters) == 0 {
		return
	}
	var dead []string
	for _, of := range slices.Sorted(maps.Keys(st.DeadLetters)) {
		dead = append(dead, fmt.Sprintf("%d from %s", st.DeadLetters[of], of))
	}
	fmt.Fprintf(w, "\ndead letters: %s; see rehome dead list\n", strings.Join(dead, ", "))
}
