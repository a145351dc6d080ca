package bus

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/kit/scene"
)

const (
	honestStrategy = "RemovePodsViolatingNodeTaints"
	// blocks is the number of alternations between rounds with and without hostile work, so other load on the machine affects
	// both. rounds is the minimum number of each.
	blocks, rounds = 4, 4
	// floods is the total number of requests of one sender. Each block sends an equal burst with pauses, so the test does not
	// measure the cost of sending.
	floods = 100_000
	bursts = 50
	pauses = 300 * time.Millisecond
)

// drainRound taints the first node, waits until the API server has evicted its pods, and returns the duration.
func drainRound(s *scene.Scene, meanwhile func(map[types.UID]string)) (took time.Duration, moved map[types.UID]string) {
	s.T.Helper()
	before := s.PodsOn(s.Nodes[0])
	from := len(s.Evictions())
	var doing sync.WaitGroup
	doing.Go(func() { meanwhile(before) })
	tainted := time.Now()
	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEmpty(s.Nodes[0])
	got := s.WaitEvicted(from, len(before))
	doing.Wait()
	s.WaitReady("api")
	s.BringBack("api", 4)
	if !reflect.DeepEqual(scene.UIDs(got), before) || len(got) != 4 {
		s.T.Fatalf("evicted %v, want %v", got, before)
	}
	return got[len(got)-1].Time.Sub(tainted), before
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func TestHostileParticipants(t *testing.T) {
	servers := scene.StartNATS(t, 1)
	s := scene.New(t, 3)
	s.AddDeployment("api", 4, scene.PreferNode(s.Nodes[0]), away(s.Nodes[2]))
	s.AddDeployment("victim", 3, scene.OnNode(s.Nodes[2]))
	s.AddPod("guarded", s.Nodes[2], nil)
	h := newAttacker(s, servers)
	s.SetUpBus(servers)
	more := append(h.functions(), "requests: {senders: [{name: flood, namespaces: [elsewhere], perMinute: 60, open: 5}, "+
		"{name: rude, namespaces: [elsewhere], perMinute: 100, open: 5}]}",
		"circuitBreakers: {cluster: {nodes: 0%}, workload: {delay: 0s}}") // the pods return each round, because the scene requires it
	file := s.ProfilesPolicy([]string{`  - name: default
    pluginConfig: [{name: ` + honestStrategy + `}, {name: Hangs}, {name: Babbles}, {name: Steals}]
    plugins: {deschedule: {enabled: [` + honestStrategy + `, Hangs, Babbles, Steals]}}`}, more...)
	processes := map[string]*scene.Process{}
	for _, role := range []string{"watcher", "functions", "dispatcher", "actuator", "maintenance"} {
		processes[role] = s.StartRole(role, file, servers.Setting())
	}

	all := map[types.UID]string{}
	var without, with []time.Duration
	for h.block = range blocks {
		for range rounds {
			without = append(without, round(s, all, func(map[types.UID]string) {}))
		}
		with = append(with, h.during(all)...)
		h.waitProcessed()
	}
	a, b := median(without), median(with)
	t.Logf("until the last of four pods was evicted: without %v, with %v; medians %v and %v, ratio %.2f",
		without, with, a, b, b.Seconds()/a.Seconds())
	s.CheckEvictedOnce(all)
	stayed := h.victims
	stayed[h.guarded] = "guarded"
	if left := s.PodsOn(s.Nodes[2]); !maps.Equal(left, stayed) {
		t.Errorf("on %s are %v, want the original pods, %v", s.Nodes[2], left, stayed)
	}
	h.checkTraces(processes)
}

// round runs one round of normal work, and records the moved pods.
func round(s *scene.Scene, all map[types.UID]string, meanwhile func(map[types.UID]string)) time.Duration {
	s.T.Helper()
	took, moved := drainRound(s, meanwhile)
	maps.Copy(all, moved)
	return took
}

// during runs normal work while the hostile work continues. Two drains or more must end before the hostile work does: a drain that
// waits for the requests of others would end after all of them.
func (h *attacker) during(all map[types.UID]string) (took []time.Duration) {
	h.T.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.attack()
	}()
	defer func() { <-over }() // even if the scene fails: a hostile goroutine must not report to a finished test
	took = append(took, round(h.Scene, all, h.forgeVerdicts))
	ended := 0 // drains that ended while others were hostile
	for raging := true; raging || len(took) < rounds; {
		select {
		case <-over:
			raging = false
		default:
			ended = len(took)
		}
		took = append(took, round(h.Scene, all, func(map[types.UID]string) {}))
	}
	if ended < 2 {
		h.T.Errorf("block %d: %d drains ended while others were hostile, want at least 2", h.block, ended)
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
