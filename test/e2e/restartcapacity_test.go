package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
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
		t.Run(c.name, beside(c.play))
	}
}

// withoutRoom has one pod of a Deployment on a tainted node, and no other node for it. It returns the policy.
func withoutRoom(t *testing.T) (s *scene, file string) {
	t.Helper()
	s = newScene(t, 2)
	s.deploy("api")
	s.available("api")
	s.cordon(s.nodes[1], true)
	file = s.policy("restart: {workloads: All, otherwise: Skip}", noStorm)
	s.taint(s.nodes[0], "dedicated")
	return s, file
}

// noCapacity returns the error in a verdict on the pod of withoutRoom, or "".
func (s *scene) noCapacity(outcome schemas.Outcome, reason schemas.ReasonCode, message string) string {
	words := "deployment " + s.namespace + "/api: no other node would take a second pod: "
	if outcome == schemas.Deferred && reason == schemas.ReasonRestartNoRoom && strings.HasPrefix(message, words) {
		return ""
	}
	return fmt.Sprintf("%s %s: %s, want %s %s: %s...", outcome, reason, message, schemas.Deferred, schemas.ReasonRestartNoRoom, words)
}

func capacityOnce(t *testing.T) {
	s, file := withoutRoom(t)
	got := s.run([]string{"once", "--policy", file, "-o", "json"})
	lines := got.lines(t)
	if len(lines) != 1 || got.code != 0 {
		t.Fatalf("%s", got)
	}
	if wrong := s.noCapacity(lines[0].Outcome, lines[0].Reason, lines[0].Message); wrong != "" {
		t.Error(wrong)
	}
	s.noRestarts()
}

func capacityOfRoles(t *testing.T) {
	servers := natsCluster(t, 1)
	s, file := withoutRoom(t)
	s.setUp(servers)
	for _, role := range []string{"watcher", "functions", "actuator", "maintenance"} {
		s.role(role, file, servers.variable())
	}
	events := record(t, bus.Options{URL: servers.url()})
	first := events.until("the pod has a verdict", func(v []schemas.Verdict) bool { return len(v) > 0 })[0]
	if wrong := s.noCapacity(first.Outcome, first.Reason, first.Message); wrong != "" {
		t.Error(wrong)
	}
	s.noRestarts()
}
