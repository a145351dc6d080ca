package simulate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/simulate"
)

// restarted returns a pod of a ReplicaSet that was restarted that often.
func restarted(name string, restarts int, annotations string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: a, uid: u-%[1]s, annotations: {%[3]s}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: r}]}
spec: {nodeName: n1, priority: 0}
status: {phase: Running, containerStatuses: [{name: c, restartCount: %[2]d}]}
---`, name, restarts, annotations)
}

// A limit must let the first pods move.
func TestEvictionOrder(t *testing.T) {
	found := cluster(t, node("n1", 4), node("n2", 4),
		restarted("a", 11, ""), restarted("b", 900, `descheduler.alpha.kubernetes.io/prefer-no-eviction: ""`), restarted("c", 500, ""),
		restarted("d", 400, `controller.kubernetes.io/pod-deletion-cost: "-7"`), restarted("e", 500, ""))
	p := parse(t, profile("p", "{}", "RemovePodsHavingTooManyRestarts {podRestartThreshold: 10}"))
	var order []string
	for limit := range uint(5) {
		p.Limits.Total = new(limit + 1)
		var moved []string
		for _, line := range round(t, simulate.Config{Policy: p}, found) {
			if fields := strings.Fields(line); len(fields) > 4 && fields[4] == "evicted" && !slices.Contains(order, fields[1]) {
				moved = append(moved, fields[1])
			}
		}
		order = append(order, moved...)
	}
	if want := []string{"d", "c", "e", "a", "b"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q: cheap pods first, then pods with many restarts", order, want)
	}
}

// There is room for one replacement. A pod with two forbidden neighbors must move, although n1 comes before n2.
func TestMostConflictsFirst(t *testing.T) {
	var pods []string
	for i, on := range []string{"n1", "n1", "n2", "n2", "n2"} {
		pods = append(pods, pod(fmt.Sprint("p", i), on, "1", apart))
	}
	got := moved(t, "RemovePodsViolatingInterPodAntiAffinity", cluster(t, node("n1", 4), node("n2", 4), node("n3", 4), strings.Join(pods, "")))
	if want := []string{"p2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
