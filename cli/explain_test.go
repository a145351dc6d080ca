package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/status"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// sec returns the time that many seconds after clock.
func sec(seconds float64) time.Time { return clock.Add(time.Duration(seconds * float64(time.Second))) }

// local returns a time in the printed format.
func local(at time.Time) string { return at.Local().Format(time.DateTime) }

// explained returns an explanation of a running pod with a history of three chains.
func explained() explain.Explanation {
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
	return explain.Explanation{
		Time: sec(3600), Since: sec(-60),
		Pod: explain.Subject{
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
				{ID: "s", Began: sec(0.017), Without: "no change: everything was evaluated again", Steps: []explain.Step{open}},
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
			{Profile: "p", Strategy: "RemovePodsViolatingNodeAffinity", Vain: true},
			{Profile: "p", Strategy: "RemovePodsViolatingInterPodAntiAffinity", Vain: true, Reason: "its anti-affinity forbids it beside shop/api-2"},
			{Profile: "p", Strategy: "KeepOffSpot", Unknown: "it runs outside of this program"},
		},
		Replacement: "would run on worker-1 again",
		Guards: []simulate.Guard{{Profile: "p", Rules: []schemas.Protection{
			{Rule: "PodsWithLocalStorage", Detail: "its volume scratch is an emptyDir"}, {Rule: "MinReplicas", Detail: "its owner has 1 pod"},
		}}},
		Budgets: []explain.BudgetOver{{Name: "api", Message: "poddisruptionbudget shop/api: 2 of 2 healthy pods needed"}, {Name: "all", Allowed: 1}},
		Held: explain.Held{
			Storm:            []actuator.StormCondition{{Reason: schemas.ReasonStormNodes, Message: "3 of 9 nodes went bad", Since: sec(60)}},
			WorkloadBreakers: []status.WorkloadBreaker{{WorkloadBreaker: breakerOf("api", sec(9000)), Holds: true}},
			Moves:            []actuator.Move{moveOf("api-1", "worker-1", "a replacement that is ready", 0), moveOf("api-2", "worker-1", "the API server", 0)},
			Maintenances: []explain.Block{
				{Maintenance: "firmware", Node: "worker-1", DryRun: true, BlockedPod: v1alpha1.BlockedPod{Reason: "Protected"}},
				{Maintenance: "kernel", Node: "worker-1", Said: sec(31), BlockedPod: v1alpha1.BlockedPod{
					Namespace: "shop", Name: "api-1", Reason: "DisruptionBudget", By: "poddisruptionbudget/shop/api",
					Message: "2 of 2 are needed", Since: &metav1.Time{Time: sec(30)},
				}},
			},
		},
		Unknown: []explain.Unknown{{What: explain.PartWorkload, Why: "replicasets are forbidden"}},
	}
}

func TestExplainPodText(t *testing.T) {
	full := explained()
	full.Held.Moves[0].Pod.UID = "u-1"
	gone := full
	gone.Pod, gone.Since, gone.Unknown = explain.Subject{PodRef: full.Pod.PodRef, There: new(false)}, time.Time{}, nil
	gone.Pod.UID, gone.Opinions, gone.Guards, gone.Budgets, gone.Held = "", nil, nil, nil, explain.Held{}
	gone.History = []explain.Life{{Pod: full.Pod.PodRef, Chains: full.History[0].Chains[1:]}}
	gone.Time = sec(5000)
	again := gone
	again.Pod.UID, again.Pod.There, again.Pod.Phase, again.Pod.Created = "u-2", new(true), "Pending", sec(4990)
	again.History = append(again.History, explain.Life{Pod: schemas.PodRef{Namespace: "shop", Name: "api-1", UID: "u-2"}})
	again.Guards = []simulate.Guard{{Profile: "p"}, {Profile: "q"}}
	again.Opinions = []simulate.Opinion{{Profile: "p", Strategy: "A"}, {Profile: "q", Strategy: "A"}}
	noBus := explain.Explanation{Time: sec(0), Pod: again.Pod, Unknown: []explain.Unknown{
		{What: explain.PartHistory, Why: "bus unix:/x: not connected"}, {What: explain.PartOpinions, Why: "no policy"}, {What: explain.PartHeld, Why: "the same"},
	}}
	for _, c := range []struct {
		name string
		x    explain.Explanation
	}{
		{"pod", full},
		{"a pod that is gone has a history", gone},
		{"a recreated pod and two profiles", again},
		{"without a bus and a policy", noBus},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := (&look.PodPage{Explanation: c.x}).Write(&out); err != nil {
				t.Fatal(err)
			}
			golden(t, "explain/"+c.name+".txt", out.String())
			for line := range strings.Lines(out.String()) {
				if n := len([]rune(line)) - 1; n > look.PageWidth {
					t.Errorf("a line has %d columns, want at most %d: %s", n, look.PageWidth, line)
				}
			}
		})
	}
}

// TestExplanationOfAPI checks that an explanation from the API is the same as one from the bus.
func TestExplanationOfAPI(t *testing.T) {
	want := explained()
	text := expect.ToJSON(t, want)
	var got explain.Explanation
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func TestPrintExplanation(t *testing.T) {
	workload := explain.WorkloadExplanation{
		Time: sec(0), Workload: *deploymentOf("api"), Held: explained().Held,
		Pods: []explain.WorkloadPod{
			{Name: "api-1", Node: "worker-1", Phase: "Running", Replacement: "worker-2", Guards: explained().Guards, Budgets: explained().Budgets},
			{Name: "api-2", Phase: "Pending"},
		},
		Limits:  []explain.LimitUse{{Limit: "maxInFlight.perWorkload", Most: 1, Used: 1}},
		Unknown: []explain.Unknown{{What: explain.PartOpinions, Why: "no policy"}},
	}
	for _, format := range []string{"", "json", "yaml"} {
		var text bytes.Buffer
		if err := cmdutil.Show(&text, format, "WorkloadExplanation", look.WorkloadPage{WorkloadExplanation: workload}); err != nil {
			t.Fatal(err)
		}
		golden(t, "explain/workload."+cmp.Or(format, "txt"), text.String())
		if format == "" {
			continue
		}
		var out bytes.Buffer
		if err := cmdutil.PrintObject(&out, format, "PodExplanation", explained()); err != nil {
			t.Fatal(err)
		}
		golden(t, "explain/pod."+format, out.String())
	}
}

func TestExplainWithoutCluster(t *testing.T) {
	b := busOf(t)
	d := eventOf(t, "d1", schemas.Delta{Kind: schemas.NodeReady, Object: schemas.ObjectRef{Kind: "Node", Name: "worker-1"}})
	v := eventOf(t, "v1", schemas.Verdict{
		Outcome: schemas.Rejected, Reason: schemas.ReasonProtected, Message: "MinReplicas: its owner has 1 pod", Profile: "p", Strategy: "PodLifeTime",
		Scope:  schemas.ScopeRef{Kind: schemas.PodKind, Key: "shop/api-1", Event: "s1"},
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "shop", Name: "api-1", UID: "u"}, Node: "worker-1", Reason: "older than 1h"},
	})
	v.CorrelationID, v.CausationID = "d1", "a1"
	bustest.Publish(t, b, d, v)
	got, err := execute(t, "explain", "pod", "api-1", "-n", "shop")
	want := `pod shop/api-1

History
  ` + local(clock) + `.000  node/worker-1 ready
    +0.000s  PodLifeTime (p, pod/shop/api-1) wants it off worker-1: older than 1h
      +0.000s  rejected: Protected: MinReplicas: its owner has 1 pod

Unknown
  current pod: no cluster to connect to: `
	if err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("error %v\ngot\n%s\nwant\n%s", err, got, want)
	}
	got, err = execute(t, "explain", "po/other", "-n", "shop")
	if err == nil || got != "" ||
		!strings.HasPrefix(err.Error(), "pod shop/other: not found: no cluster to connect to: ") ||
		!strings.HasSuffix(err.Error(), "; the history has no events about it") {
		t.Errorf("got %q, error %v", got, err)
	}
}

func TestExplainWithoutSources(t *testing.T) {
	t.Setenv("REHOME_STORE_DIR", t.TempDir())
	t.Setenv("KUBECONFIG", "none")
	got, err := execute(t, "explain", "pod", "api-1", "-n", "shop")
	if got != "" || !errors.Is(err, bus.ErrNotConnected) || !strings.Contains(err.Error(), "no cluster to connect to") {
		t.Errorf("got %q, error %v; want both", got, err)
	}
}
