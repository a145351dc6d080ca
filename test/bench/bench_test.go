package main

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestAQuantileIsADurationThatWasMeasured(t *testing.T) {
	var hundred sample
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for _, c := range []struct {
		name string
		of   sample
		q    float64
		want time.Duration
	}{
		{"of nothing it is nothing", nil, .5, 0},
		{"of one it is that one", sample{7}, .99, 7},
		{"the median of an even number is the lower of the two in the middle", sample{4, 1, 3, 2}, .5, 2},
		{"the 99th of a hundred is the 99th", hundred, .99, 99},
		{"the highest is the highest", hundred, 1, 100},
		{"the lowest is the lowest", hundred, 0, 1},
	} {
		if got := c.of.quantile(c.q); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func TestTheOutputOfGoBenchmarksIsRead(t *testing.T) {
	out := `goos: linux
pkg: github.com/rehome-dev/rehome/watcher
cpu: some
BenchmarkScopeBuild/pods=20/nodes=200-2   	    6788	     61958 ns/op	   82544 B/op	      10 allocs/op
BenchmarkScopeEncode/pods=20-2  	     464	    406145.5 ns/op	  94.69 MB/s	   66850 B/op	     827 allocs/op
PASS
pkg: github.com/rehome-dev/rehome/functions/rank
BenchmarkCompare 	     100	    12.5 ns/op
pkg: github.com/rehome-dev/rehome/watcher
BenchmarkScopeBuild/pods=20/nodes=200-2   	    6788	     51958 ns/op	   82540 B/op	      10 allocs/op
ok  	github.com/rehome-dev/rehome/functions/rank	49.660s
`
	want := []result{
		{"watcher", "ScopeBuild/pods=20/nodes=200", []float64{61958, 51958}, []float64{82544, 82540}, []float64{10, 10}},
		{"watcher", "ScopeEncode/pods=20", []float64{406145.5}, []float64{66850}, []float64{827}},
		{"functions/rank", "Compare", []float64{12.5}, []float64{0}, []float64{0}},
	}
	if got := parseBenchmarks(out); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestALargeClusterIsComparedWithTheSmallOne(t *testing.T) {
	got := deltaRows([]result{
		{"watcher", "X/nodes=200", []float64{120, 100}, []float64{8}, []float64{1}},
		{"watcher", "X/nodes=2000", []float64{130, 110}, []float64{8}, []float64{1}},
		{"watcher", "DeltaToScope/pods=20/nodes=200", []float64{100}, []float64{8}, []float64{1}},
		{"watcher", "DeltaToScope/pods=20/nodes=2000", []float64{90}, []float64{8}, []float64{1}},
		{"watcher", "Y", []float64{5}, []float64{0}, []float64{0}},
	})
	want := []row{
		{
			Group: "cost of one delta, by step", What: "watcher: X/nodes=2000", Unit: "ns", Value: 110, Allocations: 1, Bytes: 8,
			Compare: &comparison{"with a tenth of the cluster", 100},
		},
		{
			Group: "cost of one delta, by step", What: "watcher: DeltaToScope/pods=20/nodes=2000", Unit: "ns", Value: 90,
			Allocations: 1, Bytes: 8,
			Compare: &comparison{"with a tenth of the cluster", 100}, Target: &target{AtMost: 1.2, Ratio: true},
		},
		{Group: "cost of one delta, by step", What: "watcher: Y", Unit: "ns", Value: 5},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTheReportIsATableForPeople(t *testing.T) {
	r := report{
		Environment: environment{
			CPUs: 2, Go: "go1", System: "linux/amd64", Nodes: 200, Pods: 4000, Began: time.Unix(0, 0).UTC(), Ended: time.Unix(60, 0).UTC(),
		},
		Rows: []row{
			{Group: "one", What: "fast", Value: 12.34, Unit: "ms", Target: &target{AtMost: 20}},
			{Group: "one", What: "slow", Value: 30, Unit: "ms", Compare: &comparison{"calls", 20}, Target: &target{AtMost: 20}},
			{Group: "two", What: "rate", Value: 85, Unit: "/s", Compare: &comparison{"calls", 100}, Target: &target{AtLeast: .9, Ratio: true}},
			{Group: "two", What: "step", Value: 1500, Unit: "ns", Allocations: 3, Bytes: 2048},
		},
	}
	want := `200 nodes, 4000 pods; 2 CPUs, linux/amd64, go1; 1970-01-01T00:00:00Z to 00:01:00

ONE   MEASURED  COMPARED WITH  RATIO  TARGET
fast  12.3 ms                         ≤ 20 ms  met
slow  30 ms     20 ms calls    1.50   ≤ 20 ms  MISSED

TWO   MEASURED                       COMPARED WITH  RATIO  TARGET
rate  85 /s                          100 /s calls   0.85   ≥ 0.90 ×  MISSED
step  1.50 µs, 3 allocations, 2 KiB
`
	var got bytes.Buffer
	if err := r.writeText(&got); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

func TestTheReportIsReadableByMachines(t *testing.T) {
	r := report{Rows: []row{{Group: "g", What: "w", Value: 1, Unit: "ms", Target: &target{AtMost: 2}}}}
	var out bytes.Buffer
	if err := r.writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v, want %+v", got, r)
	}
}

func TestACommandLineThatMakesNoSenseIsRefused(t *testing.T) {
	for _, arguments := range [][]string{
		{"--parts", "taints,dreams"}, {"-o", "xml"}, {"--nodes", "3"}, {"--pods", "10"}, {"--taints", "0"}, {"--drain", "3000"},
		{"--idle", "1ms"}, {"more"}, {"--unknown"},
	} {
		if _, err := parse(arguments, io.Discard); err == nil {
			t.Errorf("%q: no error", arguments)
		}
	}
	if _, err := parse(nil, io.Discard); err != nil {
		t.Errorf("no arguments: %v", err)
	}
}

func TestTheStepsOfATaintFollowEachOther(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	h := history{
		deltas:   map[string][]time.Time{"n": {at(-50), at(5)}},
		answers:  map[string][]answer{"n": {{at(-40), at(-30)}, {at(15), at(20)}}},
		verdicts: map[types.UID]time.Time{"a": at(130), "b": at(150)},
	}
	calls := map[types.UID]call{"a": {at(30), at(120)}, "b": {at(32), at(140)}}
	e := emptied{node: "n", sent: at(0), pods: map[types.UID]string{"a": "a", "b": "b"}}
	s, err := spanOf(calls, e.pods)
	if err != nil {
		t.Fatal(err)
	}
	var want []time.Duration
	for _, ms := range []int{5, 10, 5, 10, 90, -88, 108, 10} {
		want = append(want, time.Duration(ms)*time.Millisecond)
	}
	if got := h.steps(e, s); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	e.pods["c"] = "c"
	if _, err := spanOf(calls, e.pods); err == nil {
		t.Error("a pod that was not evicted is not missed")
	}
}
