package bus

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// TestNewLeaderWithdrawsIntents kills the leading watcher while pods of a group wait for their turn. When its standby leads, no pod
// repels another one any more, so the new leader sees no group, except for the pending answer.
func TestNewLeaderWithdrawsIntents(t *testing.T) {
	t.Parallel()
	s := scene.New(t, 2)
	s.AddDeployment("quiet", 3, scene.PreferNode(s.Nodes[0]), scene.NotBeside("noise", "loud"))
	s.AddDeployment("other", 1, scene.PreferNode(s.Nodes[0]))
	s.WaitPlaced("quiet", map[string]int{s.Nodes[0]: 3})
	s.WaitPlaced("other", map[string]int{s.Nodes[0]: 1})
	other, servers := s.PodsOf("other")[0].Name, scene.StartNATS(t, 1)
	file := s.DeschedulePolicy("RemovePodsViolatingInterPodAntiAffinity",
		[]string{"{name: RemovePodsViolatingInterPodAntiAffinity}"}, "rate: {evictionsPerSecond: 0.001, burst: 1}")
	s.SetUpBus(servers)
	s.StartRole("functions", file, servers.Setting())
	s.StartRole("actuator", file, servers.Setting()).WaitLog("lease held")
	leader := s.StartRole("watcher", file, servers.Setting())
	leader.WaitLeads()
	standby := s.StartRole("watcher", file, servers.Setting())
	events := scene.Record(t, bus.Options{URL: servers.URL()})
	s.PatchPod(other, `{"metadata":{"labels":{"noise":"loud"}}}`)
	events.WaitVerdicts("the first of three pods is evicted", func(v []schemas.Verdict) bool { return len(v) == 1 })
	s.WaitPlaced("quiet", map[string]int{s.Nodes[0]: 2, s.Nodes[1]: 1})

	leader.Kill()
	s.PatchPod(other, `{"metadata":{"labels":{"noise":null}}}`)
	standby.WaitLeads()
	for _, v := range events.WaitVerdicts("the other two are withdrawn", func(v []schemas.Verdict) bool { return len(v) == 3 })[1:] {
		if v.Outcome != schemas.Withdrawn || v.Reason != schemas.ReasonSuperseded {
			t.Errorf("pod %s: %s %s, want withdrawn Superseded", v.Intent.Pod, v.Outcome, v.Reason)
		}
	}
	s.CheckMoved(0, 1)
}

// TestPausedLeader pauses the leading actuator during a drain with a limit over a window, and continues it when another one
// leads. Together they respect the limit.
func TestPausedLeader(t *testing.T) {
	const most = 6
	s := scene.New(t, 2)
	s.AddDeployment("api", 3*most, scene.PreferNode(s.Nodes[0]))
	servers := scene.StartNATS(t, 1)
	file := s.Policy(fmt.Sprintf("maxNoOfPodsToEvictTotal: %d", most), "limits: {window: 1h, unavailable: 100%}",
		"rate: {evictionsPerSecond: 1, burst: 1}")
	s.SetUpBus(servers)
	s.StartRole("functions", file, servers.Setting())
	paused := s.StartRole("actuator", file, servers.Setting())
	paused.WaitLog("lease held")
	other := s.StartRole("actuator", file, servers.Setting())
	s.StartRole("watcher", file, servers.Setting()).WaitLeads()
	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEvicted(0, 2)
	s.T.Must(paused.Signal(syscall.SIGSTOP))
	t.Logf("paused after %d evictions", len(s.Evictions()))
	other.WaitLog("lease held")
	s.WaitEvicted(0, most-1)
	s.T.Must(paused.Signal(syscall.SIGCONT))
	paused.WaitLog("lease lost")
	s.CheckMoved(0, most)
}
