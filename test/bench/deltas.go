package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// benchmarked are the packages whose benchmarks are the steps of one delta, in the order of its way.
var benchmarked = []string{"./watcher", "./schemas", "./bus", "./functions/...", "./actuator"}

// The element of a benchmark's name that says how large its cluster is.
const (
	smallCluster = "nodes=200"
	largeCluster = "nodes=2000"
)

// wholeDelta is the benchmark of the watcher's whole share of a delta, which the target speaks of. The others are parts
// of it; the shortest of them show the garbage collector and the caches of the processor more than themselves.
const wholeDelta = "DeltaToScope"

// replaced is a benchmark's name with one element replaced, and whether it has that element.
func replaced(name, element, by string) (string, bool) {
	elements := strings.Split(name, "/")
	i := slices.Index(elements, element)
	if i < 0 {
		return name, false
	}
	elements[i] = by
	return strings.Join(elements, "/"), true
}

// turns is how often each benchmark runs. The fastest run counts: what makes another slower is the rest of the machine.
// One turn is all benchmarks of a package, so that the small cluster and the large one meet the same machine.
const turns = 5

// measureDeltas runs the Go benchmarks.
func measureDeltas(ctx context.Context, o options, p *progress) ([]row, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	var all []result
	for _, pkg := range benchmarked {
		p.say("benchmarks of %s", pkg)
		var output strings.Builder
		for range turns {
			c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchmem", "-count", "1", "-benchtime", o.benchtime, pkg)
			c.Dir = root
			out, err := c.CombinedOutput()
			if err != nil {
				return nil, fmt.Errorf("benchmarks of %s: %w\n%s", pkg, err, out)
			}
			output.Write(out)
		}
		all = append(all, parseBenchmarks(output.String())...)
	}
	return deltaRows(all), nil
}

// result is one benchmark with all of its runs.
type result struct {
	pkg, name                      string
	nanoseconds, bytes, allocation []float64
}

// line is a line of `go test -bench -benchmem`, as golang.org/design/14313-benchmark-format has it.
var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op(?:.*?\s([\d.]+) B/op\s+([\d.]+) allocs/op)?`)

// parseBenchmarks reads the output of go test, in the order in which each benchmark first comes.
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

// number is 0 for what is not one: a column that is not there.
func number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return v
}

// deltaRows makes a row of each benchmark. One in the large cluster is compared with the same in the small one, which
// has no row of its own.
func deltaRows(all []result) []row {
	small := map[string]float64{} // by the name in the large cluster
	for _, r := range all {
		if name, ok := replaced(r.name, smallCluster, largeCluster); ok {
			small[name] = slices.Min(r.nanoseconds)
		}
	}
	var rows []row
	for _, r := range all {
		if _, ok := replaced(r.name, smallCluster, largeCluster); ok {
			continue
		}
		x := row{
			Group: "cost of one delta, by step", What: r.pkg + ": " + r.name, Unit: "ns", Value: slices.Min(r.nanoseconds),
			Allocations: slices.Min(r.allocation), Bytes: slices.Min(r.bytes),
		}
		if before, ok := small[r.name]; ok {
			x.Compare = &comparison{"with a tenth of the cluster", before}
			if strings.HasPrefix(r.name, wholeDelta) {
				x.Target = &target{AtMost: 1.2, Ratio: true}
			}
		}
		rows = append(rows, x)
	}
	return rows
}
