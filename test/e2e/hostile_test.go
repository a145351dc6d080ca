package e2e

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	honest = "RemovePodsViolatingNodeTaints"
	// blocks is the number of alternations between rounds with and without hostile work, so other load on the machine affects
	// both. rounds is the minimum number of each.
	blocks, rounds = 4, 4
	// floods is the total number of requests of one sender. Each block sends an equal burst with pauses, so the test does not
	// measure the cost of sending.
	floods = 100_000
	bursts = 50
	pauses = 300 * time.Millisecond
)

// works taints the first node, waits until the API server has evicted its pods, and returns the duration.
func (s *scene) works(meanwhile func(map[types.UID]string)) (took time.Duration, moved map[types.UID]string) {
	s.t.Helper()
	before := s.pods(s.nodes[0])
	from := len(s.evictions())
	var doing sync.WaitGroup
	doing.Go(func() { meanwhile(before) })
	tainted := time.Now()
	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	got := s.evicted(from, len(before))
	doing.Wait()
	s.ready("api")
	s.back("api", 4)
	if !reflect.DeepEqual(uids(got), before) || len(got) != 4 {
		s.t.Fatalf("evicted %v, want %v", got, before)
	}
	return got[len(got)-1].time.Sub(tainted), before
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func TestHostileParticipants(t *testing.T) {
	servers := natsCluster(t, 1)
	s := newScene(t, 3)
	s.deployment("api", 4, preferring(s.nodes[0]), away(s.nodes[2]))
	s.deployment("victim", 3, on(s.nodes[2]))
	s.pod("guarded", s.nodes[2], nil)
	h := newHostility(s, servers)
	s.setUp(servers)
	more := append(h.functions(), "requests: {senders: [{name: flood, namespaces: [elsewhere], perMinute: 60, open: 5}, "+
		"{name: rude, namespaces: [elsewhere], perMinute: 100, open: 5}]}",
		"circuitBreakers: {cluster: {nodes: 0%}, workload: {delay: 0s}}") // the pods return each round, because the scene requires it
	file := s.profiles([]string{`  - name: default
    pluginConfig: [{name: ` + honest + `}, {name: Hangs}, {name: Babbles}, {name: Steals}]
    plugins: {deschedule: {enabled: [` + honest + `, Hangs, Babbles, Steals]}}`}, more...)
	processes := map[string]*process{}
	for _, role := range []string{"watcher", "functions", "dispatcher", "actuator", "maintenance"} {
		processes[role] = s.role(role, file, servers.variable())
	}

	all := map[types.UID]string{}
	var without, with []time.Duration
	for h.block = range blocks {
		for range rounds {
			without = append(without, s.round(all, func(map[types.UID]string) {}))
		}
		with = append(with, h.during(all)...)
		h.settled()
	}
	a, b := median(without), median(with)
	t.Logf("until the last of four pods was evicted: without %v, with %v; medians %v and %v, ratio %.2f",
		without, with, a, b, b.Seconds()/a.Seconds())
	s.evictedOnce(all)
	stayed := h.victims
	stayed[h.guarded] = "guarded"
	if left := s.pods(s.nodes[2]); !maps.Equal(left, stayed) {
		t.Errorf("on %s are %v, want the original pods, %v", s.nodes[2], left, stayed)
	}
	h.leftTraces(processes)
}

// round runs one round of normal work, and records the moved pods.
func (s *scene) round(all map[types.UID]string, meanwhile func(map[types.UID]string)) time.Duration {
	s.t.Helper()
	took, moved := s.works(meanwhile)
	maps.Copy(all, moved)
	return took
}

// during runs normal work while the hostile work continues. Two drains or more must end before the hostile work does: a drain that
// waits for the requests of others would end after all of them.
func (h *hostility) during(all map[types.UID]string) (took []time.Duration) {
	h.t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.rage()
	}()
	defer func() { <-over }() // even if the scene fails: a hostile goroutine must not report to a finished test
	took = append(took, h.round(all, h.forgeVerdicts))
	ended := 0 // drains that ended while others were hostile
	for raging := true; raging || len(took) < rounds; {
		select {
		case <-over:
			raging = false
		default:
			ended = len(took)
		}
		took = append(took, h.round(all, func(map[types.UID]string) {}))
	}
	if ended < 2 {
		h.t.Errorf("block %d: %d drains ended while others were hostile, want at least 2", h.block, ended)
	}
	return took
}

// away keeps the pods off a node.
func away(node string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node},
			}}}},
		}
	}
}
