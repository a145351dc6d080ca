package moves

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// TestRestartCapacity runs the watcher and the actuator in separate processes, and has no other node for a second pod.
func TestRestartCapacity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		play func(*testing.T)
	}{
		{"once", capacityOnce},
		{"separate_roles", capacityOfRoles},
	} {
		t.Run(c.name, parallel(c.play))
	}
}

// withoutRoom has one pod of a Deployment on a tainted node, and no other node for it. It returns the policy.
func withoutRoom(t *testing.T) (s *scene.Scene, file string) {
	t.Helper()
	s = scene.New(t, 2)
	s.AddSingle("api")
	s.WaitAvailable("api")
	s.Cordon(s.Nodes[1], true)
	file = s.Policy("restart: {workloads: All, otherwise: Skip}")
	s.Taint(s.Nodes[0], "dedicated")
	return s, file
}

// noCapacity returns the error in a verdict on the pod of withoutRoom, or "".
func noCapacity(s *scene.Scene, outcome schemas.Outcome, reason schemas.ReasonCode, message string) string {
	words := "deployment " + s.Namespace + "/api: no other node would take a second pod: "
	if outcome == schemas.Deferred && reason == schemas.ReasonRestartNoRoom && strings.HasPrefix(message, words) {
		return ""
	}
	return fmt.Sprintf("%s %s: %s, want %s %s: %s...", outcome, reason, message, schemas.Deferred, schemas.ReasonRestartNoRoom, words)
}

func capacityOnce(t *testing.T) {
	s, file := withoutRoom(t)
	got := s.Run([]string{"once", "--policy", file, "-o", "json"})
	lines := lines(got, t)
	if len(lines) != 1 || got.Code != 0 {
		t.Fatalf("%s", got)
	}
	if wrong := noCapacity(s, lines[0].Outcome, lines[0].Reason, lines[0].Message); wrong != "" {
		t.Error(wrong)
	}
	noRestarts(s)
}

func capacityOfRoles(t *testing.T) {
	servers := scene.StartNATS(t, 1)
	s, file := withoutRoom(t)
	s.SetUpBus(servers)
	for _, role := range []string{"watcher", "functions", "actuator", "maintenance"} {
		s.StartRole(role, file, servers.Setting())
	}
	events := scene.Record(t, bus.Options{URL: servers.URL()})
	first := events.WaitVerdicts("the pod has a verdict", func(v []schemas.Verdict) bool { return len(v) > 0 })[0]
	if wrong := noCapacity(s, first.Outcome, first.Reason, first.Message); wrong != "" {
		t.Error(wrong)
	}
	noRestarts(s)
}
