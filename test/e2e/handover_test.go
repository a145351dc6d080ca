package e2e

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

// handover has a group of pods, some of them in violation, and two watchers. One of the watchers waits for the lease.
type handover struct {
	drain
	leader, standby *process
	events          *recording
}

// handOver starts every role in a separate process, the watcher twice, and waits until one leads.
func (s *scene) handOver(policy string) handover {
	s.t.Helper()
	servers := natsCluster(s.t, 1)
	h := handover{drain: drain{scene: s, file: policy}}
	h.setUp(servers)
	h.role("functions", servers)
	h.role("actuator", servers).says("lease held")
	h.leader = h.role("watcher", servers)
	h.leader.leads()
	h.standby = h.role("watcher", servers)
	h.events = record(s.t, bus.Options{URL: servers.url()})
	return h
}

// passes kills the leader, repairs the group while no watcher leads, and waits until the other watcher leads.
func (h handover) passes(repair func()) {
	h.t.Helper()
	h.leader.kill()
	repair()
	h.standby.leads()
}

func newLeaderWithdraws(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("quiet", 3, preferring(s.nodes[0]), notBeside("noise", "loud"))
	s.deployment("other", 1, preferring(s.nodes[0]))
	s.placed("quiet", map[string]int{s.nodes[0]: 3})
	s.placed("other", map[string]int{s.nodes[0]: 1})
	other := s.podsOf("other")[0].Name
	h := s.handOver(s.enable("RemovePodsViolatingInterPodAntiAffinity",
		[]string{"{name: RemovePodsViolatingInterPodAntiAffinity}"}, "rate: {evictionsPerSecond: 0.001, burst: 1}"))
	s.patchPod(other, `{"metadata":{"labels":{"noise":"loud"}}}`)
	h.events.until("the first of three pods is evicted", func(v []schemas.Verdict) bool { return len(v) == 1 })
	s.placed("quiet", map[string]int{s.nodes[0]: 2, s.nodes[1]: 1})

	// No pod repels another one any more: the new leader sees no group, except for the pending answer.
	h.passes(func() { s.patchPod(other, `{"metadata":{"labels":{"noise":null}}}`) })
	verdicts := h.events.until("the other two are withdrawn", func(v []schemas.Verdict) bool { return len(v) == 3 })
	for _, v := range verdicts[1:] {
		if v.Outcome != schemas.Withdrawn || v.Reason != schemas.ReasonSuperseded {
			t.Errorf("pod %s: %s %s, want withdrawn Superseded", v.Intent.Pod, v.Outcome, v.Reason)
		}
	}
	s.moved(0, 1)
}

func newLeaderDoesNotMoveWhatWasHeld(t *testing.T) {
	s := newScene(t, 2)
	s.cordon(s.nodes[1], true)
	s.deployment("api", 8)
	s.budget("keep", "api", 8)
	h := s.handOver(s.balance("RemoveDuplicates", "{}"))
	s.cordon(s.nodes[1], false)
	h.events.until("four pods are deferred", func(v []schemas.Verdict) bool { return len(of(schemas.Deferred, v)) == 4 })

	h.passes(func() { s.cordon(s.nodes[1], true) })
	s.changeBudget("keep", 0)
	s.moved(0, 0)
	if got := h.events.verdicts(); len(got) != 4 {
		t.Errorf("verdicts %s, want the four of the first leader", summary(got))
	}
	// The new leader leads, and moves the pods when they must move again.
	s.cordon(s.nodes[1], false)
	s.moved(0, 4)
	s.placed("api", map[string]int{s.nodes[0]: 4, s.nodes[1]: 4})
}

// TestPausedLeader pauses the leading actuator during a drain with a limit over a window, and continues it when another one
// leads. Together they respect the limit.
func TestPausedLeader(t *testing.T) {
	const most = 6
	s := newScene(t, 2)
	s.deployment("api", 3*most, preferring(s.nodes[0]))
	servers := natsCluster(t, 1)
	d := drain{scene: s, file: s.policy(fmt.Sprintf("maxNoOfPodsToEvictTotal: %d", most), "limits: {window: 1h, unavailable: 100%}",
		"rate: {evictionsPerSecond: 1, burst: 1}")}
	d.setUp(servers)
	d.role("functions", servers)
	paused := d.role("actuator", servers)
	paused.says("lease held")
	other := d.role("actuator", servers)
	d.role("watcher", servers).leads()
	s.taint(s.nodes[0], "dedicated")
	s.evicted(0, 2)
	s.t.Must(paused.Signal(syscall.SIGSTOP))
	t.Logf("paused after %d evictions", len(s.evictions()))
	other.says("lease held")
	s.evicted(0, most-1)
	s.t.Must(paused.Signal(syscall.SIGCONT))
	paused.says("lease lost")
	s.moved(0, most)
}
