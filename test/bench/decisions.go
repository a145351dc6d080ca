package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// decision is a Go benchmark of something that has a target.
type decision struct {
	pkg  string
	name string // a regular expression that matches the whole name
	most time.Duration
	// once: a single operation takes so long that it is not repeated.
	once bool
}

// decisions returns the figures and their targets.
func decisions() []decision {
	const node, fit = time.Millisecond, 2 * time.Millisecond
	return []decision{
		{pkg: "./functions/nodetaints", name: "Decide", most: node},
		{pkg: "./functions/toomanyrestarts", name: "Decide", most: node},
		{pkg: "./functions/podlifetime", name: "Decide", most: node},
		{pkg: "./functions/failedpods", name: "Decide", most: node},
		{pkg: "./functions/nodeaffinity", name: "Decide", most: node},
		{pkg: "./functions/podantiaffinity", name: "Decide", most: node},
		{pkg: "./functions/duplicates", name: "Decide", most: node},
		{pkg: "./functions/topologyspread", name: "Decide/hosts=1000/pods=5000", most: 50 * time.Millisecond},
		{pkg: "./functions/topologyspread", name: "Decide/zones=3/pods=5000", most: 50 * time.Millisecond},
		{pkg: "./functions/utilization", name: "Decide/low,_5000_nodes,_100_over-used", most: 20 * time.Millisecond},
		{pkg: "./functions/utilization", name: "Decide/low,_5000_nodes,_500_over-used", most: 20 * time.Millisecond},
		{pkg: "./functions/utilization", name: "Decide/high,_5000_nodes,_1350_under-used", most: 20 * time.Millisecond},
		{pkg: "./simulate", name: "Decision/(RemovePodsViolatingNode.*|RemovePodsHaving.*|PodLifeTime|RemoveFailedPods)", most: 2 * time.Millisecond},
		{pkg: "./simulate", name: "Decision/(RemoveDuplicates|.*InterPodAntiAffinity|.*NodeUtilization)", most: 50 * time.Millisecond},
		{pkg: "./simulate", name: "Decision/RemovePodsViolatingTopologySpreadConstraint", most: 50 * time.Millisecond},
		{pkg: "./fit", name: "Elsewhere", most: fit},
		{pkg: "./watcher", name: "NodeScope", most: node},
		{pkg: "./simulate", name: "Simulate", most: 5 * time.Second, once: true},
	}
}

// measureDecisions runs the benchmarks and makes a row of each. The fastest of several runs counts.
func measureDecisions(ctx context.Context, o options, p *progress) ([]row, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, d := range decisions() {
		p.say("benchmark %s of %s", d.name, d.pkg)
		count, benchtime := "3", o.benchtime
		if d.once {
			count, benchtime = "2", "1x"
		}
		c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^Benchmark"+anchored(d.name), "-benchmem",
			"-count", count, "-benchtime", benchtime, d.pkg)
		c.Dir = root
		out, err := c.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("benchmark %s of %s: %w\n%s", d.name, d.pkg, err, out)
		}
		found := parseBenchmarks(string(out))
		if len(found) == 0 {
			return nil, fmt.Errorf("benchmark %s of %s: there is none of this name\n%s", d.name, d.pkg, out)
		}
		rows = append(rows, decisionRows(d, found)...)
	}
	return rows, nil
}

// decisionRows makes a row of each benchmark that a name stands for.
func decisionRows(d decision, found []result) []row {
	var rows []row
	for _, r := range found {
		rows = append(rows, row{
			Group: "cost of one decision", What: r.pkg + ": " + r.name, Unit: "ns", Value: slices.Min(r.nanoseconds),
			Allocations: slices.Min(r.allocation), Bytes: slices.Min(r.bytes),
			Target: &target{AtMost: float64(d.most.Nanoseconds())},
		})
	}
	return rows
}

// anchored makes each element of a benchmark's name match as a whole.
func anchored(name string) string { return strings.ReplaceAll(name, "/", "$/^") + "$" }

// result is one benchmark with all of its runs.
type result struct {
	pkg, name                      string
	nanoseconds, bytes, allocation []float64
}

// line is a line of `go test -bench -benchmem`, as golang.org/design/14313-benchmark-format has it.
var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op(?:.*?\s([\d.]+) B/op\s+([\d.]+) allocs/op)?`)

// parseBenchmarks reads the output of go test. It keeps the order of the benchmarks.
func parseBenchmarks(out string) []result {
	var all []result
	pkg := ""
	for text := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(text, "pkg: "); ok {
			pkg = strings.TrimPrefix(strings.TrimSpace(rest), "github.com/rehome-dev/rehome/")
		}
		m := line.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		i := slices.IndexFunc(all, func(r result) bool { return r.pkg == pkg && r.name == m[1] })
		if i < 0 {
			i = len(all)
			all = append(all, result{pkg: pkg, name: m[1]})
		}
		r := &all[i]
		r.nanoseconds = append(r.nanoseconds, number(m[2]))
		r.bytes = append(r.bytes, number(m[3]))
		r.allocation = append(r.allocation, number(m[4]))
	}
	return all
}

// number returns 0 for a column that is missing.
func number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return v
}
