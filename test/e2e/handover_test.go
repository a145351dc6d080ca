package e2e

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

// TestNewLeaderWithdrawsIntents kills the leading watcher while pods of a group wait for their turn. When its standby leads, no pod
// repels another one any more, so the new leader sees no group, except for the pending answer.
func TestNewLeaderWithdrawsIntents(t *testing.T) {
	t.Parallel()
	s := newScene(t, 2)
	s.deployment("quiet", 3, preferring(s.nodes[0]), notBeside("noise", "loud"))
	s.deployment("other", 1, preferring(s.nodes[0]))
	s.placed("quiet", map[string]int{s.nodes[0]: 3})
	s.placed("other", map[string]int{s.nodes[0]: 1})
	other, servers := s.podsOf("other")[0].Name, natsCluster(t, 1)
	file := s.enable("RemovePodsViolatingInterPodAntiAffinity",
		[]string{"{name: RemovePodsViolatingInterPodAntiAffinity}"}, "rate: {evictionsPerSecond: 0.001, burst: 1}")
	s.setUp(servers)
	s.role("functions", file, servers.variable())
	s.role("actuator", file, servers.variable()).says("lease held")
	leader := s.role("watcher", file, servers.variable())
	leader.leads()
	standby := s.role("watcher", file, servers.variable())
	events := record(t, bus.Options{URL: servers.url()})
	s.patchPod(other, `{"metadata":{"labels":{"noise":"loud"}}}`)
	events.until("the first of three pods is evicted", func(v []schemas.Verdict) bool { return len(v) == 1 })
	s.placed("quiet", map[string]int{s.nodes[0]: 2, s.nodes[1]: 1})

	leader.Kill()
	s.patchPod(other, `{"metadata":{"labels":{"noise":null}}}`)
	standby.leads()
	for _, v := range events.until("the other two are withdrawn", func(v []schemas.Verdict) bool { return len(v) == 3 })[1:] {
		if v.Outcome != schemas.Withdrawn || v.Reason != schemas.ReasonSuperseded {
			t.Errorf("pod %s: %s %s, want withdrawn Superseded", v.Intent.Pod, v.Outcome, v.Reason)
		}
	}
	s.moved(0, 1)
}

// TestPausedLeader pauses the leading actuator during a drain with a limit over a window, and continues it when another one
// leads. Together they respect the limit.
func TestPausedLeader(t *testing.T) {
	const most = 6
	s := newScene(t, 2)
	s.deployment("api", 3*most, preferring(s.nodes[0]))
	servers := natsCluster(t, 1)
	file := s.policy(fmt.Sprintf("maxNoOfPodsToEvictTotal: %d", most), "limits: {window: 1h, unavailable: 100%}",
		"rate: {evictionsPerSecond: 1, burst: 1}")
	s.setUp(servers)
	s.role("functions", file, servers.variable())
	paused := s.role("actuator", file, servers.variable())
	paused.says("lease held")
	other := s.role("actuator", file, servers.variable())
	s.role("watcher", file, servers.variable()).leads()
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
