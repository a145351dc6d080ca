package cli

import (
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/schematest"
)

func TestExampleEventLines(t *testing.T) {
	type line struct{ noun, about, text string }
	want := map[string]line{
		"delta": {"delta", "node/worker-7", "taints: none → dedicated=gpu:NoSchedule"},
		"scope": {"scope", "node/worker-7", "RemovePodsViolatingNodeTaints: because of node.taints"},
		"intents": {
			"intents", "node/worker-7",
			"RemovePodsViolatingNodeTaints: move 3: shop/cart-0, web/api-5d8f7c9b6d-2xkqv, web/login-6f9c7d8b54-vt8zn",
		},
		"verdict-deferred": {
			"verdict", "pod/shop/cart-0",
			"deferred: DisruptionBudget: PodDisruptionBudget shop/cart allows no disruption: 3 of 3 pods must be available",
		},
		"verdict-restarted": {
			"verdict", "pod/web/login-6f9c7d8b54-vt8zn",
			"restarted from worker-7 by rollout-restart: does not tolerate dedicated=gpu:NoSchedule",
		},
		"verdict-settled": {
			"verdict", "pod/web/api-5d8f7c9b6d-2xkqv",
			"settled Replaced web/api-5d8f7c9b6d-2xkqv on worker-3 after 3.2s: replacement api-5d8f7c9b6d-q9h4s",
		},
		"verdict":   {"verdict", "pod/web/api-5d8f7c9b6d-2xkqv", "evicted from worker-7: does not tolerate dedicated=gpu:NoSchedule"},
		"delta-pod": {"delta", "pod/web/api-5d8f7c9b6d-2xkqv", "deleted"},
		"scope-pod": {"scope", "pod/batch/report-29387100-kx7wd", "RemoveFailedPods: because of due"},
		"scope-workload": {
			"scope", "workload/web/ReplicaSet/api-5d8f7c9b6d", "RemoveDuplicates: because of node.added",
		},
		"scope-spread": {
			"scope", "spread/shop/topology.kubernetes.io/zone/5f0c9d7a3b21e864",
			"RemovePodsViolatingTopologySpreadConstraint: because of pod.deleted",
		},
		"scope-domain": {
			"scope", "domain/kubernetes.io/hostname=worker-2",
			"RemovePodsViolatingInterPodAntiAffinity: because of pod.labels",
		},
		"intents-maintenance": {"intents", "maintenance/kernel", "Maintenance: move 2: shop/cart-0, shop/search-0"},
		"request-maintain": {
			"request", "spot/i-0a1b2c3d4e5f67890",
			"maintain node with provider ID i-0a1b2c3d4e5f67890: Drain within 2m0s: the cloud takes the machine back in two minutes",
		},
		"scope-usage":   {"scope", "usage/cluster", "LowNodeUtilization: because of resync"},
		"scope-request": {"scope", "request/admin/drain-worker-9", "Request: because of request"},
		"request": {
			"request", "admin/drain-worker-9",
			"deschedule node worker-9: its fan is replaced at noon, by Robin of the platform team",
		},
		"receipt":          {"receipt", "admin/drain-worker-9", "accepted: Accepted: 1 of 2 pods is to move, 1 is protected"},
		"receipt-finished": {"receipt", "admin/drain-worker-9", "finished: Done: 1 of 2 pods is gone"},
		"maintenance": {
			"maintenance", "kernel", "node worker-3 Draining  0/2 nodes, 2 pods left, 1 blocked: cannot move shop/cart-0 on worker-3: " +
				"PodDisruptionBudget cart allows no disruption: 2 of 2 pods have to stay available",
		},
		"maintenance-refused": {
			"maintenance", "firmware", "node worker-1 Waiting, node worker-2 Waiting, node worker-3 Waiting  0/3 nodes, no pod left: " +
				"refused: AllNodes: spec.nodes: means all 3 nodes of the cluster; if that is what you want, add AllNodes to spec.force",
		},
	}
	got := map[string]line{}
	for _, e := range schematest.Examples(t) {
		noun, about, text := look.Describe(e.Event)
		got[e.Name] = line{noun, about, text}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDescribe(t *testing.T) {
	yes, no := true, false
	rolling := schemas.Maintenance{Summary: v1alpha1.Summary{Nodes: "2/30", PodsLeft: 41}}
	node := func(names ...string) (list []v1alpha1.NodeStatus) {
		for _, name := range names {
			list = append(list, v1alpha1.NodeStatus{Name: name, Stage: v1alpha1.IsDrained})
		}
		return list
	}
	maintenance := func(change func(*schemas.Maintenance)) schemas.Maintenance {
		m := rolling
		change(&m)
		return m
	}
	intent := schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "api"}, Node: "n1", Reason: "does not tolerate x"}
	scope := schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"}
	for _, c := range []struct {
		name    string
		payload schemas.Payload
		want    string
	}{
		{"a delta without values", schemas.Delta{Kind: schemas.PodScheduled, Object: schemas.ObjectRef{Kind: "Pod"}}, "scheduled"},
		{
			"a delta with values",
			schemas.Delta{
				Kind: schemas.NodeUnschedulable, Object: schemas.ObjectRef{Kind: "Node"},
				Before: &schemas.State{Unschedulable: &no}, After: &schemas.State{Unschedulable: &yes},
			}, `unschedulable: "unschedulable":false → "unschedulable":true`,
		},
		{"an answer", schemas.Intents{Strategy: "S", Scope: scope, Intents: []schemas.Intent{intent}}, "S: move 1: web/api"},
		{
			"an answer with many pods", schemas.Intents{Strategy: "S", Scope: scope, Intents: []schemas.Intent{intent, intent, intent, intent}},
			"S: move 4: web/api, web/api, web/api and 1 more",
		},
		{"an answer that withdraws", schemas.Intents{Strategy: "S", Scope: scope}, "S: nothing should move any more"},
		{"an eviction", schemas.Verdict{Outcome: schemas.Evicted, Intent: intent}, "evicted from n1: does not tolerate x"},
		{
			"an eviction that was not one", schemas.Verdict{Outcome: schemas.Evicted, Intent: intent, DryRun: true},
			"evicted (dry run) from n1: does not tolerate x",
		},
		{
			"a deferral", schemas.Verdict{Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget, Message: "m", Intent: intent},
			"deferred: DisruptionBudget: m",
		},
		{
			"an eviction in place of a restart",
			schemas.Verdict{
				Outcome: schemas.Evicted, Intent: intent, Method: schemas.MethodEviction,
				Instead: &schemas.Instead{Method: schemas.MethodRestart, Reason: schemas.ReasonRestartVolume},
			}, "evicted from n1 instead of rollout-restart (RestartVolume): does not tolerate x",
		},
		{
			"a request", schemas.Verdict{Outcome: schemas.Requested, Intent: intent, Method: schemas.MethodBackground},
			"requested from n1 by background-eviction: does not tolerate x",
		},
		{
			"the end of a move before its replacement has a node",
			schemas.Verdict{
				Outcome: schemas.Settled, Reason: schemas.ReasonReplacementPending, Intent: intent,
				Settlement: &schemas.Settlement{Replacement: &schemas.PodRef{Namespace: "web", Name: "api-2"}, Seconds: 600},
			}, "settled ReplacementPending web/api after 600.0s: replacement api-2",
		},
		{
			"the end of a move without a replacement",
			schemas.Verdict{
				Outcome: schemas.Settled, Reason: schemas.ReasonNotReplaced, Message: "m", Intent: intent,
				Settlement: &schemas.Settlement{Seconds: 60.04},
			}, "settled NotReplaced web/api after 60.0s: m",
		},
		{
			"the end of a move that does not say how", schemas.Verdict{Outcome: schemas.Settled, Reason: "New", Message: "m", Intent: intent},
			"settled: New: m",
		},
		{"a maintenance with new numbers", rolling, "2/30 nodes, 41 pods left"},
		{
			"a node of a maintenance", maintenance(func(m *schemas.Maintenance) { m.Nodes = node("worker-3") }),
			"node worker-3 Drained  2/30 nodes, 41 pods left",
		},
		{
			"as many nodes as are named", maintenance(func(m *schemas.Maintenance) { m.Nodes = node("a", "b", "c") }),
			"node a Drained, node b Drained, node c Drained  2/30 nodes, 41 pods left",
		},
		{
			"more nodes than are named", maintenance(func(m *schemas.Maintenance) { m.Nodes, m.More = node("a", "b", "c", "d"), 7 }),
			"node a Drained, node b Drained, node c Drained, 8 more  2/30 nodes, 41 pods left",
		},
		{
			"a node that was cordoned again, in a dry run", maintenance(func(m *schemas.Maintenance) {
				m.DryRun, m.Changes = true, []schemas.NodeChange{{Name: "a", Message: "uncordoned meanwhile"}}
			}), "(dry run) node a: uncordoned meanwhile  2/30 nodes, 41 pods left",
		},
		{
			"a maintenance in a dry run", maintenance(func(m *schemas.Maintenance) { m.DryRun = true }),
			"(dry run)  2/30 nodes, 41 pods left",
		},
		{
			"a blocked maintenance", maintenance(func(m *schemas.Maintenance) {
				m.Summary.PodsBlocked, m.Summary.Message = 2, "cannot move shop/cart-0"
			}), "2/30 nodes, 41 pods left, 2 blocked: cannot move shop/cart-0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := expect.ToJSON(t, c.payload)
			_, _, got := look.Describe(schemas.Event{Type: c.payload.EventType(), Data: data})
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
	t.Run("an event that is not readable, by its type", func(t *testing.T) {
		noun, about, text := look.Describe(schemas.Event{Type: schemas.DeltaType, Subject: "nodes/n1", Data: []byte("{")})
		if noun != "event" || about != "nodes/n1" || text != schemas.DeltaType {
			t.Errorf("got %q, %q, %q", noun, about, text)
		}
	})
}
