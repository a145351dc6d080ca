package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

// shownDeferred is how many deferred pods a table has at most: a screen. JSON has all of them.
const shownDeferred = 20

func (st status) writeDeferred(w io.Writer) {
	var rows [][]string
	for _, d := range st.Deferred[:min(len(st.Deferred), shownDeferred)] {
		again := "-"
		if !d.Again.IsZero() {
			again = "in " + max(d.Again.Sub(st.Time), 0).Truncate(time.Second).String()
		}
		rows = append(rows, []string{
			d.Pod.String(), d.Strategy, string(d.Reason), age(st.Time, d.Since), age(st.Time, d.Last), again, printable(d.Message),
		})
	}
	const head = "DEFERRED POD\tSTRATEGY\tREASON\tSINCE\tLAST TRY\tNEXT TRY\tMESSAGE"
	cutLast(rows, strings.Split(head, "\t"))
	writeTable(w, head, rows)
	if more := len(st.Deferred) - shownDeferred; more > 0 {
		fmt.Fprintf(w, "and %d more; -o json has all of them\n", more)
	}
}

func (st status) writeRequests(w io.Writer) {
	var rows [][]string
	for _, r := range st.Requests {
		deadline := "-"
		if r.Action == schemas.ActionDeschedule || r.Action == schemas.ActionMaintain {
			deadline = "in " + max(r.ends().Sub(st.Time), 0).Truncate(time.Second).String()
		}
		rows = append(rows, []string{
			r.Sender + "/" + r.Name, ago(st.Time, r.Since), deadline, printable(describeRequest(r.Request)),
		})
	}
	const head = "OPEN REQUEST\tSENT\tDEADLINE\tWANTS"
	cutLast(rows, strings.Split(head, "\t"))
	writeTable(w, head, rows)
}

// ends is when what is left of it is given up.
func (r openRequest) ends() time.Time {
	switch {
	case r.Deadline.IsZero() && r.Action == schemas.ActionMaintain:
		return r.Since.Add(24 * time.Hour)
	case r.Deadline.IsZero():
		return r.Since.Add(time.Hour)
	}
	return r.Deadline
}

// writeStreams writes what the streams hold, how far each strategy has come, and the dead letters.
func (st status) writeStreams(w io.Writer) {
	var rows, workers [][]string
	for _, s := range st.Streams {
		used := ""
		if s.MaxBytes > 0 {
			used = fmt.Sprintf("%d%% of %s", s.Bytes*100/uint64(s.MaxBytes), sizeOf(uint64(s.MaxBytes)))
		}
		rows = append(rows, []string{s.Name, strconv.FormatUint(s.Messages, 10), sizeOf(s.Bytes), used})
		for _, k := range s.Workers {
			if k == (bus.WorkerStatus{Strategy: k.Strategy}) {
				continue // nobody works on it, and there is nothing to work on
			}
			workers = append(workers, []string{
				k.Strategy, strconv.FormatUint(k.Waiting, 10), strconv.Itoa(k.InHand), strconv.Itoa(k.Again), strconv.Itoa(k.Idle),
			})
		}
	}
	writeTable(w, "STREAM\tMESSAGES\tBYTES\tUSED", rows)
	writeTable(w, "SCOPES OF\tWAITING\tIN HAND\tTRIED AGAIN\tIDLE HANDLERS", workers)
	if len(st.DeadLetters) == 0 {
		return
	}
	var dead []string
	for _, of := range slices.Sorted(maps.Keys(st.DeadLetters)) {
		dead = append(dead, fmt.Sprintf("%d from %s", st.DeadLetters[of], of))
	}
	fmt.Fprintf(w, "\ndead letters: %s; see rehome dead list\n", strings.Join(dead, ", "))
}

// sizeOf is a number of bytes as people read it.
func sizeOf(bytes uint64) string {
	const step = 1024
	size, unit := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < step {
			break
		}
		size, unit = size/step, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}
