package moves

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
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// lines parses the output of `rehome once -o json`.
func lines(r scene.Result, t *testing.T) []simulate.Line {
	t.Helper()
	var all []simulate.Line
	for text := bufio.NewScanner(strings.NewReader(r.Stdout)); text.Scan(); {
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
	s := scene.New(t, 3)
	s.AddDeployment("api", 12, scene.PreferNode(s.Nodes[0])) // more than the burst of the rate
	s.AddDeployment("held", 1, scene.OnNode(s.Nodes[0]))
	s.AddDeployment("tolerates", 1, scene.OnNode(s.Nodes[0]), tolerating("dedicated"))
	s.AddPod("bare", s.Nodes[0], nil)
	s.AddBudget("keep", "held", 1)
	s.Taint(s.Nodes[0], "dedicated")
	before := s.PodsOn(s.Nodes[0])
	moving := maps.Clone(before)
	maps.DeleteFunc(moving, func(_ types.UID, name string) bool { return !strings.HasPrefix(name, "api-") })
	if len(moving) != 12 {
		t.Fatalf("%d pods of api on %s, want 12", len(moving), s.Nodes[0])
	}
	want := map[string]string{
		"api":  "evicted EvictionAccepted: does not tolerate dedicated:NoSchedule",
		"held": "deferred DisruptionBudget: poddisruptionbudget " + s.Namespace + "/keep: 1 of 1 healthy pods needed",
		"bare": "rejected Protected: FailedBarePods: it has no owner that would replace it",
	}
	policy := s.Policy()

	// A dry run prints the same and changes nothing, not even a lease.
	got := s.Run([]string{"once", "--policy", policy, "-o", "json", "--dry-run"})
	if dry := said(lines(got, t)); got.Code != 0 || !reflect.DeepEqual(dry, want) {
		t.Errorf("dry run: %s\ngot  %v\nwant %v", got, dry, want)
	}
	if after := s.PodsOn(s.Nodes[0]); !reflect.DeepEqual(after, before) {
		t.Errorf("after the dry run there are %v on the node, before %v", after, before)
	}
	leases, err := s.Client.CoordinationV1().Leases(s.Namespace).List(t.Context(), metav1.ListOptions{})
	s.T.Must(err)
	if len(leases.Items) != 0 {
		t.Errorf("a dry run took a lease: %+v", leases.Items)
	}

	// A lease that its holder does not renew is no obstacle.
	long := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	_, err = s.Client.CoordinationV1().Leases(s.Namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "rehome-actuator"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("gone"), LeaseDurationSeconds: new(int32(3)), AcquireTime: &long, RenewTime: &long,
		},
	}, metav1.CreateOptions{})
	s.T.Must(err)
	got = s.Run([]string{"once", "--policy", policy, "-o", "json"})
	lines := lines(got, t)
	if real := said(lines); got.Code != 0 || !reflect.DeepEqual(real, want) {
		t.Errorf("%s\ngot  %v\nwant %v", got, real, want)
	}
	evicted := map[types.UID]string{}
	for _, l := range lines {
		if l.Outcome == schemas.Evicted {
			evicted[l.Pod.UID] = l.Pod.Name
		}
	}
	if audit := scene.UIDs(s.WaitEvicted(0, 12)); !reflect.DeepEqual(evicted, audit) || !reflect.DeepEqual(audit, moving) {
		t.Errorf("printed %v\naudit   %v\nwant    %v", evicted, audit, moving)
	}

	// In a second run, the lease is free, and only the blocked pods remain.
	s.WaitReady("api")
	got = s.Run([]string{"once", "--policy", policy})
	table := strings.Split(strings.TrimSpace(got.Stdout), "\n")
	if len(table) != 4 || table[3] != "done: 0 evicted, 1 deferred, 1 rejected" || got.Code != 0 {
		t.Errorf("%s", got)
	}
}

func TestOnceWithoutSecondNode(t *testing.T) {
	s := scene.New(t, 1)
	s.AddDeployment("api", 1)
	file := s.DeschedulePolicy("PodLifeTime", []string{"{name: PodLifeTime, args: {states: [Running]}}"})
	got := s.Run([]string{"once", "--policy", file, "-o", "json"})
	outcomes := said(lines(got, t))
	want := map[string]string{"api": "rejected Protected: NodeNotUsable: there is no second node that could take a pod"}
	if got.Code != 0 || !reflect.DeepEqual(outcomes, want) {
		t.Errorf("%s\ngot  %v\nwant %v", got, outcomes, want)
	}
	if list := s.Evictions(); !slices.Equal(list, nil) {
		t.Errorf("evicted %v, want none", list)
	}
}
