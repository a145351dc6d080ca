package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
)

// lines parses the output of `rehome once -o json`.
func (r result) lines(t *testing.T) []simulate.Line {
	t.Helper()
	var all []simulate.Line
	for text := bufio.NewScanner(strings.NewReader(r.stdout)); text.Scan(); {
		var l simulate.Line
		if err := json.Unmarshal(text.Bytes(), &l); err != nil {
			t.Fatalf("%v in %s", err, r)
		}
		all = append(all, l)
	}
	return all
}

// said returns the lines by the workload of the pod.
func said(lines []simulate.Line) map[string]string {
	all := map[string]string{}
	for _, l := range lines {
		workload, _, _ := strings.Cut(l.Pod.Name, "-")
		all[workload] = fmt.Sprintf("%s %s: %s", l.Outcome, l.Reason, l.Message)
	}
	return all
}

func TestOnceDrainsTaintedNode(t *testing.T) {
	s := newScene(t, 3)
	s.deployment("api", 12, preferring(s.nodes[0])) // more than the burst of the rate
	s.deployment("held", 1, on(s.nodes[0]))
	s.deployment("tolerates", 1, on(s.nodes[0]), tolerating("dedicated"))
	s.pod("bare", s.nodes[0], nil)
	s.budget("keep", "held", 1)
	s.taint(s.nodes[0], "dedicated")
	before := s.pods(s.nodes[0])
	moving := maps.Clone(before)
	maps.DeleteFunc(moving, func(_ types.UID, name string) bool { return !strings.HasPrefix(name, "api-") })
	if len(moving) != 12 {
		t.Fatalf("%d pods of api on %s, want 12", len(moving), s.nodes[0])
	}
	want := map[string]string{
		"api":  "evicted EvictionAccepted: does not tolerate dedicated:NoSchedule",
		"held": "deferred DisruptionBudget: poddisruptionbudget " + s.namespace + "/keep: 1 of 1 healthy pods needed",
		"bare": "rejected Protected: FailedBarePods: it has no owner that would replace it",
	}
	policy := s.policy()

	// A dry run prints the same and changes nothing, not even a lease.
	got := s.run([]string{"once", "--policy", policy, "-o", "json", "--dry-run"})
	if dry := said(got.lines(t)); got.code != 0 || !reflect.DeepEqual(dry, want) {
		t.Errorf("dry run: %s\ngot  %v\nwant %v", got, dry, want)
	}
	if after := s.pods(s.nodes[0]); !reflect.DeepEqual(after, before) {
		t.Errorf("after the dry run there are %v on the node, before %v", after, before)
	}
	leases, err := s.client.CoordinationV1().Leases(s.namespace).List(t.Context(), metav1.ListOptions{})
	s.t.Must(err)
	if len(leases.Items) != 0 {
		t.Errorf("a dry run took a lease: %+v", leases.Items)
	}

	// A lease that its holder does not renew is no obstacle.
	long := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	_, err = s.client.CoordinationV1().Leases(s.namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "rehome-actuator"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("gone"), LeaseDurationSeconds: new(int32(3)), AcquireTime: &long, RenewTime: &long,
		},
	}, metav1.CreateOptions{})
	s.t.Must(err)
	got = s.run([]string{"once", "--policy", policy, "-o", "json"})
	lines := got.lines(t)
	if real := said(lines); got.code != 0 || !reflect.DeepEqual(real, want) {
		t.Errorf("%s\ngot  %v\nwant %v", got, real, want)
	}
	evicted := map[types.UID]string{}
	for _, l := range lines {
		if l.Outcome == schemas.Evicted {
			evicted[l.Pod.UID] = l.Pod.Name
		}
	}
	if audit := uids(s.evicted(0, 12)); !reflect.DeepEqual(evicted, audit) || !reflect.DeepEqual(audit, moving) {
		t.Errorf("printed %v\naudit   %v\nwant    %v", evicted, audit, moving)
	}

	// In a second run, the lease is free, and only the blocked pods remain.
	s.ready("api")
	got = s.run([]string{"once", "--policy", policy})
	table := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if len(table) != 4 || table[3] != "done: 0 evicted, 1 deferred, 1 rejected" || got.code != 0 {
		t.Errorf("%s", got)
	}
}

func TestOnceWithoutSecondNode(t *testing.T) {
	s := newScene(t, 1)
	s.deployment("api", 1)
	file := s.enable("PodLifeTime", []string{"{name: PodLifeTime, args: {states: [Running]}}"})
	got := s.run([]string{"once", "--policy", file, "-o", "json"})
	outcomes := said(got.lines(t))
	want := map[string]string{"api": "rejected Protected: NodeNotUsable: there is no second node that could take a pod"}
	if got.code != 0 || !reflect.DeepEqual(outcomes, want) {
		t.Errorf("%s\ngot  %v\nwant %v", got, outcomes, want)
	}
	if list := s.evictions(); !slices.Equal(list, nil) {
		t.Errorf("evicted %v, want none", list)
	}
}
