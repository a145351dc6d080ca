package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/simulate"
)

// sec is so many seconds after clock.
func sec(seconds float64) time.Time { return clock.Add(time.Duration(seconds * float64(time.Second))) }

// local is a time as it is printed.
func local(at time.Time) string { return at.Local().Format(time.DateTime) }

// explained is an explanation of a pod that runs, with a history of three chains.
func explained() look.Explanation {
	api := &schemas.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: "api", UID: "uid-shop"}
	replacement := schemas.PodRef{Namespace: "shop", Name: "api-3", UID: "u-3"}
	wish := explain.Step{
		Time: sec(0.017), Profile: "p", Strategy: "RemovePodsViolatingNodeTaints", Scope: "node/worker-1", Node: "worker-1",
		Why: "does not tolerate gone:NoSchedule", Times: 1, Said: sec(0.14), Last: sec(0.14),
	}
	deferred, evicted, open := wish, wish, wish
	deferred.Outcome, deferred.Reason, deferred.Times, deferred.Last = schemas.Deferred, schemas.ReasonDisruptionBudget, 14, sec(1800)
	deferred.Message, deferred.Again = "poddisruptionbudget shop/api: 2 of 2 healthy pods needed", sec(7200)
	evicted.Outcome, evicted.Message, evicted.Method = schemas.Restarted, "its Deployment gets one more", schemas.MethodSurge
	evicted.Time, evicted.Said, evicted.Instead = sec(1801), sec(1802), &schemas.Instead{
		Method: schemas.MethodRestart, Reason: schemas.ReasonRestartRunning,
	}
	evicted.Settled = &explain.Settled{Time: sec(1805), Reason: schemas.ReasonReplaced, Settlement: schemas.Settlement{
		Replacement: &replacement, Node: "worker-2", Seconds: 3.2,
	}}
	open.Expires, open.Scope, open.Strategy = sec(4000), "pod/shop/api-1", "PodLifeTime"
	return look.Explanation{
		Time: sec(3600), Since: sec(-60),
		Pod: look.Subject{
			PodRef: schemas.PodRef{Namespace: "shop", Name: "api-1", UID: "u-1"}, There: new(true), Node: "worker-1", Phase: "Running",
			Created: sec(-7200), Workload: api,
		},
		History: []explain.Life{{
			Pod:     schemas.PodRef{Namespace: "shop", Name: "api-1", UID: "u-1"},
			CameFor: &schemas.PodRef{Namespace: "shop", Name: "api-0", UID: "u-0"},
			Chains: []explain.Chain{
				{ID: "d", Began: clock, Steps: []explain.Step{deferred, evicted}, Delta: &schemas.Delta{
					Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "worker-1"},
					After: &schemas.State{Taints: []corev1.Taint{{Key: "gone", Effect: corev1.TaintEffectNoSchedule}}},
				}},
				{ID: "s", Began: sec(0.017), Without: "no change: everything was evaluated anew", Steps: []explain.Step{open}},
			},
			Changes: []explain.Changes{
				{Kind: schemas.PodScheduled, Times: 1, First: sec(-1), Last: sec(-1)}, {Kind: schemas.PodLabels, Times: 3, First: clock, Last: sec(1)},
			},
		}},
		Opinions: []simulate.Opinion{
			{Profile: "p", Strategy: "RemovePodsViolatingNodeTaints", Wants: true, Reason: "does not tolerate gone:NoSchedule"},
			{Profile: "p", Strategy: "PodLifeTime", Due: sec(86400)},
			{Profile: "p", Strategy: "RemoveDuplicates", Protected: true, Reason: "2 pods of shop/replicaset/api run on worker-1"},
			{Profile: "p", Strategy: "LowNodeUtilization"},
			{Profile: "p", Strategy: "KeepOffSpot", Unknown: "it is asked outside of this program"},
		},
		Guards: []simulate.Guard{{Profile: "p", Rules: []schemas.Protection{
			{Rule: "PodsWithLocalStorage", Detail: "its volume scratch is an emptyDir"}, {Rule: "MinReplicas", Detail: "its owner has 1 pod"},
		}}},
		Budgets: []look.BudgetOver{{Name: "api", Message: "poddisruptionbudget shop/api: 2 of 2 healthy pods needed"}, {Name: "all", Allowed: 1}},
		Held: look.Held{
			Storm:            []actuator.StormCondition{{Reason: schemas.ReasonStormNodes, Message: "3 of 9 nodes went bad", Since: sec(60)}},
			WorkloadBreakers: []look.WorkloadBreaker{{WorkloadBreaker: breakerOf("api", sec(9000)), Holds: true}},
			Moves:            []actuator.Move{moveOf("api-1", "worker-1", "a replacement that is ready", 0), moveOf("api-2", "worker-1", "the API server", 0)},
			Maintenances: []explain.Block{
				{Maintenance: "firmware", Node: "worker-1", DryRun: true, BlockedPod: v1alpha1.BlockedPod{Reason: "Protected"}},
				{Maintenance: "kernel", Node: "worker-1", Said: sec(31), BlockedPod: v1alpha1.BlockedPod{
					Namespace: "shop", Name: "api-1", Reason: "DisruptionBudget", By: "poddisruptionbudget/shop/api",
					Message: "2 of 2 are needed", Since: &metav1.Time{Time: sec(30)},
				}},
			},
		},
		Unknown: []look.Unknown{{What: look.PartWorkload, Why: "replicasets are forbidden"}},
	}
}

func TestAnExplanationIsATreeOfWhatHappenedAndWhatHoldsNow(t *testing.T) {
	full := explained()
	full.Held.Moves[0].Pod.UID = "u-1"
	gone := full
	gone.Pod, gone.Since, gone.Unknown = look.Subject{PodRef: full.Pod.PodRef, There: new(false)}, time.Time{}, nil
	gone.Pod.UID, gone.Opinions, gone.Guards, gone.Budgets, gone.Held = "", nil, nil, nil, look.Held{}
	gone.History = []explain.Life{{Pod: full.Pod.PodRef, Chains: full.History[0].Chains[1:]}}
	gone.Time = sec(5000)
	again := gone
	again.Pod.UID, again.Pod.There, again.Pod.Phase, again.Pod.Created = "u-2", new(true), "Pending", sec(4990)
	again.History = append(again.History, explain.Life{Pod: schemas.PodRef{Namespace: "shop", Name: "api-1", UID: "u-2"}})
	again.Guards = []simulate.Guard{{Profile: "p"}, {Profile: "q"}}
	again.Opinions = []simulate.Opinion{{Profile: "p", Strategy: "A"}, {Profile: "q", Strategy: "A"}}
	noBus := look.Explanation{Time: sec(0), Pod: again.Pod, Unknown: []look.Unknown{
		{What: look.PartHistory, Why: "bus unix:/x: not connected"}, {What: look.PartOpinions, Why: "no policy"}, {What: look.PartHeld, Why: "the same"},
	}}
	for _, c := range []struct {
		name string
		x    look.Explanation
		want string
	}{
		{"everything", full, `pod shop/api-1 is on worker-1, Running, 3h0m0s old, of deployment/shop/api

What happened to it since ` + local(sec(-60)) + `
  It came in the place of shop/api-0, which was moved.
  ` + local(clock) + `.000  node/worker-1 taints: none → gone:NoSchedule
    +0.017s  RemovePodsViolatingNodeTaints (p, node/worker-1) wants it off worker-1: does not tolerate gone:NoSchedule
      +0.140s  deferred 14 times: DisruptionBudget: poddisruptionbudget shop/api: 2 of 2 healthy pods needed; last at
               ` + local(sec(1800)) + `; again at ` + local(sec(7200)) + ` at the earliest
    +30m1s   RemovePodsViolatingNodeTaints (p, node/worker-1) wants it off worker-1: does not tolerate gone:NoSchedule
      +30m2s   restarted by surge instead of rollout-restart (RestartRunning): its Deployment gets one more
        +30m5s   settled after 3.2s: Replaced: replacement api-3 on worker-2
  ` + local(clock) + `.017  no change: everything was evaluated anew
    +0.000s  PodLifeTime (p, pod/shop/api-1) wants it off worker-1: does not tolerate gone:NoSchedule
               no verdict yet
  Changes of it that led to nothing: scheduled at ` + local(sec(-1)) + `; labels 3 times, last at ` + local(sec(1)) + `

What would move it now
  RemovePodsViolatingNodeTaints   wants it moved: does not tolerate gone:NoSchedule
  PodLifeTime                     will want it moved at ` + local(sec(86400)) + `, unless it changes
  RemoveDuplicates                would want it moved if nothing protected it: 2 pods of shop/replicaset/api run on
                                  worker-1
  LowNodeUtilization              leaves it where it is
  KeepOffSpot                     not known: it is asked outside of this program

What protects it
  profile p: PodsWithLocalStorage: its volume scratch is an emptyDir
  profile p: MinReplicas: its owner has 1 pod
  poddisruptionbudget shop/api: 2 of 2 healthy pods needed
  poddisruptionbudget shop/all: allows 1 disruption now
  More than one budget is over it: the API server evicts no such pod.
  the cluster circuit breaker holds everything since ` + local(sec(60)) + `: StormNodes: 3 of 9 nodes went bad
  a workload circuit breaker keeps PodLifeTime from the pods of deployment/shop/api on worker-1 until ` +
			strings.Replace(local(sec(9000)), " ", "\n  ", 1) + `: pods came back 2 times
  it is on the move itself since ` + local(clock) + `, and waits for a replacement that is ready
  shop/api-2 of its workload is on the move since ` + local(clock) + `, and waits for the API server
  maintenance firmware (dry run) would want it off worker-1 and could not move it: Protected
  maintenance kernel wants it off worker-1 and cannot move it, since ` + local(sec(30)) + `: DisruptionBudget:
  poddisruptionbudget/shop/api: 2 of 2 are needed

What is not known
  what it belongs to: replicasets are forbidden
`},
		{"a pod that is gone has a history", gone, `pod shop/api-1 is not in the cluster

What happened to it
  ` + local(clock) + `.017  no change: everything was evaluated anew
    +0.000s  PodLifeTime (p, pod/shop/api-1) wants it off worker-1: does not tolerate gone:NoSchedule
               no verdict is known; the wish ended at ` + local(sec(4000)) + `
`},
		{"a pod that was made anew, and two profiles", again, `pod shop/api-1 has no node, Pending, 10s old

What happened to it
  The pod of this name with the UID u-1
  ` + local(clock) + `.017  no change: everything was evaluated anew
    +0.000s  PodLifeTime (p, pod/shop/api-1) wants it off worker-1: does not tolerate gone:NoSchedule
               no verdict is known; the wish ended at ` + local(sec(4000)) + `
  The pod of this name with the UID u-2, the one that is there now

What would move it now
  p: A   leaves it where it is
  q: A   leaves it where it is

What protects it
  profile p: nothing
  profile q: nothing
`},
		{"without a bus and a policy", noBus, `pod shop/api-1 has no node, Pending, 0s old

What protects it
  nothing that is known

What is not known
  what happened to it: bus unix:/x: not connected
  what would move it, and what protects it: no policy
  what holds it: the same
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := c.x.Write(&out); err != nil || out.String() != c.want {
				t.Errorf("error %v\ngot\n%s\nwant\n%s", err, &out, c.want)
			}
			for line := range strings.Lines(out.String()) {
				if n := len([]rune(line)) - 1; n > look.PageWidth {
					t.Errorf("a line has %d columns, want at most %d: %s", n, look.PageWidth, line)
				}
			}
		})
	}
}

func TestAnExplanationAsJSONIsOneObjectThatSaysTheSame(t *testing.T) {
	x := explained()
	x.Held.Maintenances = x.Held.Maintenances[1:]
	x.History, x.Opinions = x.History[:0], x.Opinions[1:2]
	x.Held.Storm, x.Held.Moves = nil, nil
	got, err := json.Marshal(x)
	const want = `{"time":"2026-03-01T13:00:00Z","pod":{"namespace":"shop","name":"api-1","uid":"u-1","there":true,"node":"worker-1",` +
		`"phase":"Running","created":"2026-03-01T10:00:00Z",` +
		`"workload":{"kind":"Deployment","namespace":"shop","name":"api","uid":"uid-shop"}},"since":"2026-03-01T11:59:00Z",` +
		`"opinions":[{"profile":"p","strategy":"PodLifeTime","wants":false,"due":"2026-03-02T12:00:00Z"}],` +
		`"guards":[{"profile":"p","rules":[{"rule":"PodsWithLocalStorage","detail":"its volume scratch is an emptyDir"},` +
		`{"rule":"MinReplicas","detail":"its owner has 1 pod"}]}],` +
		`"budgets":[{"name":"api","allowed":0,"message":"poddisruptionbudget shop/api: 2 of 2 healthy pods needed"},{"name":"all","allowed":1}],` +
		`"held":{"workloadBreakers":[{"workload":"uid-shop","strategy":"PodLifeTime","node":"worker-1","returns":2,` +
		`"returned":"2026-03-01T14:29:00Z","last":"2026-03-01T14:29:00Z",` +
		`"name":{"kind":"Deployment","namespace":"shop","name":"api","uid":"uid-shop"},"until":"2026-03-01T14:30:00Z","holds":true}],` +
		`"maintenances":[{"maintenance":"kernel","node":"worker-1","namespace":"shop","name":"api-1","reason":"DisruptionBudget",` +
		`"by":"poddisruptionbudget/shop/api","message":"2 of 2 are needed","since":"2026-03-01T12:00:30Z","said":"2026-03-01T12:00:31Z"}]},` +
		`"unknown":[{"what":"what it belongs to","why":"replicasets are forbidden"}]}`
	if err != nil || string(got) != want {
		t.Errorf("error %v\n got %s\nwant %s", err, got, want)
	}
}

func TestWithoutAClusterThereIsTheHistoryAlone(t *testing.T) {
	b := busOf(t)
	d := eventOf(t, "d1", schemas.Delta{Kind: schemas.NodeReady, Object: schemas.ObjectRef{Kind: "Node", Name: "worker-1"}})
	v := eventOf(t, "v1", schemas.Verdict{
		Outcome: schemas.Rejected, Reason: schemas.ReasonProtected, Message: "MinReplicas: its owner has 1 pod", Profile: "p", Strategy: "PodLifeTime",
		Scope:  schemas.ScopeRef{Kind: schemas.PodKind, Key: "shop/api-1", Event: "s1"},
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "shop", Name: "api-1", UID: "u"}, Node: "worker-1", Reason: "older than 1h"},
	})
	v.CorrelationID, v.CausationID = "d1", "a1"
	for _, e := range []schemas.Event{d, v} {
		if _, err := b.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := execute(t, "explain", "pod", "shop/api-1")
	want := `pod shop/api-1

What happened to it
  ` + local(clock) + `.000  node/worker-1 ready
    +0.000s  PodLifeTime (p, pod/shop/api-1) wants it off worker-1: older than 1h
      +0.000s  rejected: Protected: MinReplicas: its owner has 1 pod

What is not known
  whether it is there: no cluster to connect to: `
	if err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("error %v\ngot\n%s\nwant\n%s", err, got, want)
	}
	got, err = execute(t, "explain", "pod", "shop/other")
	if err == nil || got != "" ||
		!strings.HasPrefix(err.Error(), "pod shop/other: nothing is known of it: no cluster to connect to: ") ||
		!strings.HasSuffix(err.Error(), "; the history has no event of it") {
		t.Errorf("got %q, error %v", got, err)
	}
}

func TestWithoutABusAndAClusterNothingIsExplained(t *testing.T) {
	t.Setenv("REHOME_STORE_DIR", t.TempDir())
	t.Setenv("KUBECONFIG", "none")
	got, err := execute(t, "explain", "pod", "shop/api-1")
	if got != "" || !errors.Is(err, bus.ErrNotConnected) || !strings.Contains(err.Error(), "no cluster to connect to") {
		t.Errorf("got %q, error %v; want both", got, err)
	}
}
