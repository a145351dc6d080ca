package main

import (
	"bytes"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/expect"
)

func TestQuantile(t *testing.T) {
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

func TestParseBenchmarks(t *testing.T) {
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

func TestReportText(t *testing.T) {
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

func TestReportJSON(t *testing.T) {
	r := report{Rows: []row{{Group: "g", What: "w", Value: 1, Unit: "ms", Target: &target{AtMost: 2}}}}
	var out bytes.Buffer
	if err := r.writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	got := expect.FromJSON[report](t, out.Bytes())
	if !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v, want %+v", got, r)
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		arguments string
		want      string // of the error; empty means none
	}{
		{"", ""},
		{"--parts all", ""},
		{"--nodes 20 --pods 400 --parts start,idle -o json", ""},
		{"--parts taints,dreams", "--parts: want all or some of " + strings.Join(allParts, ",") + `, got "dreams"`},
		{"-o xml", `-o: want text or json, got "xml"`},
		{"--nodes 9", "--nodes: want at least 10, got 9"},
		{"--pods 9000", "--pods: want at least 10 for each of 1000 nodes, got 9000"},
		{"--taints 0", "--taints, --moves, --followed, --changes: want at least 1"},
		{"--idle 1ms", "--idle: want at least 1s, got 1ms"},
		{"more", `want no arguments, got ["more"]`},
		{"--unknown", "flag provided but not defined: -unknown"},
	} {
		got := ""
		if _, err := parse(strings.Fields(c.arguments), io.Discard); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.arguments, got, c.want)
		}
	}
}

func TestSizesForSmallCluster(t *testing.T) {
	o, err := parse([]string{"--nodes", "20", "--pods", "400"}, io.Discard)
	expect.Must(t, err)
	if got, want := [3]int{o.moves, o.followed, o.changes}, [3]int{40, 8, 40}; got != want {
		t.Errorf("moves, followed, changes: got %v, want %v", got, want)
	}
}

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		pods, nodes int
		want        map[string][]int // first and last Deployment of each class, and how many
	}{
		{20000, 1000, map[string][]int{
			"spread": {100, 100, 110}, "plain": {100, 100, 50}, "large": {2000, 2000, 1}, "small": {50, 50, 40},
		}},
		{405, 20, map[string][]int{"spread": {10, 4, 23}, "plain": {10, 1, 11}, "large": {40, 40, 1}, "small": {1, 1, 40}}},
	} {
		got := map[string][]int{}
		for i, n := range divide(c.pods, classes) {
			each := classes[i].replicas(n, c.nodes)
			got[classes[i].name] = []int{each[0], each[len(each)-1], len(each)}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d pods on %d nodes: got %v, want %v", c.pods, c.nodes, got, c.want)
		}
	}
	if !plainPods.has("bench/plain-0100-abc") || plainPods.has("bench/spread-0100-abc") || plainPods.has("bench-follow/plain-0100-abc") {
		t.Error("pods are not told apart by the names of their Deployments")
	}
}

func TestParseMetrics(t *testing.T) {
	const text = `# HELP rehome_scopes_total Evaluations that were asked for.
# TYPE rehome_scopes_total counter
rehome_scopes_total{profile="default",strategy="A"} 30
rehome_scopes_total{profile="default",strategy="B b"} 12
rehome_pending_evaluations 0
rehome_bus_stream_messages{stream="REHOME_SCOPES"} 3
go_memstats_heap_inuse_bytes 2.5e+08
`
	got, err := parseMetrics(strings.NewReader(text))
	expect.Must(t, err)
	want := figures{
		"rehome_scopes_total": 42, `rehome_scopes_total{profile="default",strategy="A"}`: 30,
		`rehome_scopes_total{profile="default",strategy="B b"}`: 12, "rehome_pending_evaluations": 0, "rehome_bus_stream_messages": 3,
		`rehome_bus_stream_messages{stream="REHOME_SCOPES"}`: 3, "go_memstats_heap_inuse_bytes": 2.5e8,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got.evaluated(40) {
		t.Error("everything is evaluated although three scopes have no answer")
	}
	got[`rehome_bus_stream_messages{stream="REHOME_SCOPES"}`] = 0
	if !got.evaluated(40) || got.evaluated(100) {
		t.Error("40 nodes are evaluated, 100 are not")
	}
}

func TestIdleShareSubtraction(t *testing.T) {
	for _, c := range []struct {
		before, after, elapsed time.Duration
		idle                   float64
		want                   time.Duration
	}{
		{time.Second, 3 * time.Second, 20 * time.Second, .005, 1900 * time.Millisecond},
		{time.Second, time.Second, 20 * time.Second, .005, 0},
		{0, time.Second, time.Second, 0, time.Second},
	} {
		if got := above(c.before, c.after, c.elapsed, c.idle); got != c.want {
			t.Errorf("from %v to %v in %v: got %v, want %v", c.before, c.after, c.elapsed, got, c.want)
		}
	}
}

func TestTapCountsByKind(t *testing.T) {
	tap := tap{found: map[string]traffic{}}
	for subject, bytes := range map[string]int{
		"rehome.delta.pod.labels": 60, "rehome.scope.RemoveDuplicates.workload.a": 400, "rehome.scope.RemoveDuplicates.workload.b": 300,
		"rehome.verdict.x": 20, "$KV.REHOME_LEDGER.a": 30,
	} {
		tap.add(&nats.Msg{Subject: subject, Data: make([]byte, bytes-len(subject))})
	}
	if messages, bytes := tap.count(2); messages != 2.5 || bytes != 405 {
		t.Errorf("got %v messages and %v bytes for each of two changes, want 2.5 and 405", messages, bytes)
	}
	const want = "rehome.scope.RemoveDuplicates 1.00 × 350 B, rehome.delta 0.50 × 60 B, $KV.REHOME_LEDGER 0.50 × 30 B, rehome.verdict 0.50 × 20 B"
	if got := tap.kinds(2); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestReportRows(t *testing.T) {
	label, node, replaced := changeNames[0], changeNames[1], changeNames[2]
	uids := func(n int) map[types.UID]string {
		pods := map[types.UID]string{}
		for i := range n {
			pods[types.UID(strconv.Itoa(i))] = "bench/plain"
		}
		return pods
	}
	drains := []drained{
		{nodes: 2, pods: uids(3), processor: 30 * time.Millisecond}, {nodes: 2, pods: uids(3), processor: 18 * time.Millisecond},
	}
	var got bytes.Buffer
	r := report{Rows: slices.Concat(
		changeRows(costs{label: {.5, 1, 2048}, node: {2, 2, 3072}, replaced: {1, 1.5, 0}})[:6],
		scaleRows(costs{label: {2, 0, 0}, node: {1, 0, 0}, replaced: {1, 0, 0}}, costs{label: {2.4, 0, 0}, node: {2, 0, 0}, replaced: {1, 0, 0}}),
		moveRows(drains, rate{flow: 50, total: 44, parallel: 8, call: 20}, rate{flow: 50, total: 50, parallel: 10, call: 30}),
		[]row{followRow(2000, []int{50, 50, 50}, drains[:1], drains[1:])},
	)}
	if err := r.writeText(&got); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(got.String(), "\n\n")
	const want = `COST OF ONE CHANGE WHEN NO ANSWER CAN CHANGE  MEASURED  COMPARED WITH  RATIO  TARGET
one pod label change, processor time          0.50 ms                         ≤ 1 ms  met
one pod label change, messages on the bus     1                               ≤ 1  met
one pod label change, bytes on the bus        2 KiB                           ≤ 2 KiB  met
one node label change, processor time         2 ms                            ≤ 1 ms  MISSED
one node label change, messages on the bus    2                               ≤ 1  MISSED
one node label change, bytes on the bus       3 KiB                           ≤ 2 KiB  MISSED

COST OF ONE DELTA AT TEN TIMES THE CLUSTER          MEASURED  COMPARED WITH                RATIO  TARGET
one pod label change, processor time                2.40 ms   2 ms a tenth of the cluster  1.20   ≤ 1.20 ×  met
one node label change, processor time               2 ms      1 ms a tenth of the cluster  2.00   ≤ 1.20 ×  MISSED
one pod replaced by its ReplicaSet, processor time  1 ms      1 ms a tenth of the cluster  1.00   ≤ 1.20 ×  met

3 PODS OFF 2 TAINTED NODES, RATE LIFTED                             MEASURED  COMPARED WITH     RATIO  TARGET
evictions per second, from the first taint sent to the last answer  44 /s     50 /s bare calls  0.88   ≥ 0.90 ×  MISSED
evictions per second, from the first call to the last answer        50 /s     50 /s bare calls  1.00
calls inside the API server at once, mean                           8         10 bare calls     0.80
one call inside the API server, mean                                20 ms     30 ms bare calls  0.67
one complete move, processor time, bus included                     8 ms                               ≤ 6 ms  MISSED

PROCESSOR TIME TO MOVE AND FOLLOW MANY PODS AT ONCE  MEASURED  COMPARED WITH                      RATIO  TARGET
each of 3 moves of one workload of 2000              10 ms     6 ms 3 moves of 3 workloads of 50  1.67   ≤ 1.10 ×  MISSED
`
	if table != want {
		t.Errorf("got:\n%s\nwant:\n%s", table, want)
	}
}

func TestTaintSteps(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	h := history{
		deltas:   map[string][]time.Time{"n": {at(-50), at(5)}},
		answers:  map[string][]answer{"n": {{at(-40), at(-30)}, {at(15), at(20)}}},
		verdicts: map[types.UID]time.Time{"a": at(130), "b": at(150)},
	}
	calls := map[types.UID]call{"a": {at(30), at(120)}, "b": {at(32), at(140)}}
	e := emptied{node: "n", sent: at(0), pods: map[types.UID]string{"a": "a", "b": "b"}}
	s, err := spanOf(calls, e.pods)
	expect.Must(t, err)
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
