package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// report is everything that one run has found.
type report struct {
	Environment environment `json:"environment"`
	Rows        []row       `json:"rows"`
}

// environment has the factors that affect the results.
type environment struct {
	CPUs      int       `json:"cpus"`
	Go        string    `json:"go"`
	System    string    `json:"system"`
	Nodes     int       `json:"nodes"`
	Pods      int       `json:"pods"`
	Taints    int       `json:"taints"`
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended"`
	LoadBegan string    `json:"loadBegan,omitempty"` // load averages of 1, 5 and 15 minutes
	LoadEnded string    `json:"loadEnded,omitempty"`
	// MachineBusy is the share of all processors that was in use, 0 to 1; 0 where it is not known.
	MachineBusy float64 `json:"machineBusy,omitempty"`
	// OtherProcesses is how many processors, on average, processes used that have nothing to do with the measurement.
	OtherProcesses float64 `json:"otherProcesses,omitempty"`
}

// row is one figure.
type row struct {
	Group string  `json:"group"`
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Compare is the reference measurement in the same unit, or nil.
	Compare *comparison `json:"compare,omitempty"`
	Target  *target     `json:"target,omitempty"`
	// Allocations and Bytes belong to one operation of a Go benchmark.
	Allocations float64 `json:"allocations,omitempty"`
	Bytes       float64 `json:"bytes,omitempty"`
}

type comparison struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
}

// target is a bound of the design, on the value or on its ratio to the comparison.
type target struct {
	AtMost  float64 `json:"atMost,omitempty"`
	AtLeast float64 `json:"atLeast,omitempty"`
	// Ratio: the bound is on the ratio.
	Ratio bool `json:"ratio,omitempty"`
}

func newReport(o options) *report {
	return &report{Environment: environment{
		CPUs: runtime.NumCPU(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Nodes: o.nodes, Pods: o.pods, Taints: o.taints, Began: time.Now().UTC(), LoadBegan: loadAverage(),
	}}
}

// ratio returns the value over what it compares with; 0 means there is nothing.
func (r row) ratio() float64 {
	if r.Compare == nil || r.Compare.Value == 0 {
		return 0
	}
	return r.Value / r.Compare.Value
}

// met reports whether the target is met.
func (r row) met() bool {
	v := r.Value
	if r.Target.Ratio {
		v = r.ratio()
	}
	return (r.Target.AtMost == 0 || v <= r.Target.AtMost) && (r.Target.AtLeast == 0 || v >= r.Target.AtLeast)
}

func (r *report) write(w io.Writer, format string) error {
	if format == "json" {
		return r.writeJSON(w)
	}
	return r.writeText(w)
}

func (r *report) writeJSON(w io.Writer) error {
	r.Environment.LoadEnded = loadAverage()
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// writeText writes the table for people.
func (r *report) writeText(w io.Writer) error {
	e := r.Environment
	fmt.Fprintf(w, "%d nodes, %d pods; %d CPUs, %s, %s; %s to %s\n", e.Nodes, e.Pods, e.CPUs, e.System, e.Go,
		e.Began.Format(time.RFC3339), e.Ended.Format(time.TimeOnly))
	if e.MachineBusy > 0 {
		fmt.Fprintf(w, "processors %.0f %% busy, %.2f of them with other work; load average %s at the start, %s at the end\n",
			100*e.MachineBusy, e.OtherProcesses, e.LoadBegan, loadAverage())
	}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	group := ""
	for _, x := range r.Rows {
		if x.Group != group {
			group = x.Group
			fmt.Fprintf(table, "\n%s\tMEASURED\tCOMPARED WITH\tRATIO\tTARGET\n", strings.ToUpper(group))
		}
		fmt.Fprintln(table, x.cells())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// cells returns the columns of a row, with tabs between.
func (r row) cells() string {
	measured := quantity(r.Value, r.Unit)
	if r.Allocations > 0 || r.Bytes > 0 {
		measured += fmt.Sprintf(", %.0f allocations, %s", r.Allocations, quantity(r.Bytes, "B"))
	}
	var compare, ratio, goal string
	if r.Compare != nil {
		compare = quantity(r.Compare.Value, r.Unit) + " " + r.Compare.What
		ratio = strconv.FormatFloat(r.ratio(), 'f', 2, 64)
	}
	if t := r.Target; t != nil {
		sign, bound := "≤", t.AtMost
		if bound == 0 {
			sign, bound = "≥", t.AtLeast
		}
		unit := r.Unit
		if t.Ratio {
			unit = "×"
		}
		goal = sign + " " + quantity(bound, unit) + map[bool]string{true: "  met", false: "  MISSED"}[r.met()]
	}
	return strings.Join([]string{r.What, measured, compare, ratio, goal}, "\t")
}

// quantity returns a number with its unit, with three digits that count.
func quantity(v float64, unit string) string {
	switch {
	case unit == "B" && v >= 1<<20:
		v, unit = v/(1<<20), "MiB"
	case unit == "B" && v >= 1<<10:
		v, unit = v/(1<<10), "KiB"
	case unit == "ns" && v >= 1e6:
		v, unit = v/1e6, "ms"
	case unit == "ns" && v >= 1e3:
		v, unit = v/1e3, "µs"
	}
	digits := 0
	switch {
	case v == float64(int64(v)):
	case v < 10:
		digits = 2
	case v < 100:
		digits = 1
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'f', digits, 64) + " " + unit)
}

// loadAverage returns the system's load averages, or nothing where they are unknown.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return ""
	}
	return strings.Join(fields[:3], " ")
}

// sample is a set of measured durations. The zero value is an empty one.
type sample []time.Duration

// quantile returns the nearest rank: the smallest measured duration that is not exceeded by at least the share q of all. It
// returns 0 for an empty sample.
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// milliseconds is d as the reports have it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median of some numbers; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
