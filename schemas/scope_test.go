package schemas_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestContractScopeKinds(t *testing.T) {
	_, node := example[schemas.NodeScope](t, "scope")
	pod := node.Pods[0]
	zone := corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
	}
	used := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourcePods: resource.MustParse("1")}
	of := func(kind schemas.ScopeKind, key string) schemas.ScopeHead {
		head := node.ScopeHead
		head.Kind, head.Key = kind, key
		return head
	}
	for _, p := range []schemas.Payload{
		node,
		schemas.PodScope{ScopeHead: of(schemas.PodKind, "shop/cart"), Pod: pod},
		schemas.WorkloadScope{
			ScopeHead: of(schemas.WorkloadKind, "shop/ReplicaSet/cart"), Pods: []schemas.ScopedPod{pod},
			Nodes: []schemas.NodeGroup{{Labels: map[string]string{"disk": "ssd"}, Names: []string{"worker-1"}}},
		},
		schemas.SpreadScope{
			ScopeHead: of(schemas.SpreadKind, "shop/topology.kubernetes.io/zone/1"), Namespace: "shop", Constraint: zone,
			Domains: []schemas.Domain{
				{Value: "a", Eligible: true, Count: 2, Pods: []schemas.SpreadPod{{ScopedPod: pod, Place: 1, Room: 1, Fits: []string{"b"}}}},
				{Value: "b", Eligible: true},
			},
			Others: []schemas.OtherConstraint{{Constraint: zone, Domains: []schemas.Domain{{Value: "c", Eligible: true, Count: 2}}}},
			Places: []schemas.Place{{0, 0}, {1, 0}}, Room: [][]int{{0, 0}, {0, 1}},
		},
		schemas.DomainScope{
			ScopeHead: of(schemas.DomainKind, "kubernetes.io/hostname=worker-1"), TopologyKey: corev1.LabelHostname,
			Pods: []schemas.ContendingPod{{ScopedPod: pod, Repels: []types.UID{"1"}}},
		},
		schemas.UsageScope{
			ScopeHead: of(schemas.UsageKind, "cluster"),
			Nodes:     []schemas.NodeUsage{{Name: "worker-1", Unschedulable: true, Capacity: used, Used: used}},
			Pods:      []schemas.UsingPod{{ScopedPod: pod, Used: used}},
		},
		schemas.RequestScope{
			ScopeHead: of(schemas.RequestKind, "admin/one"), Pods: []schemas.ScopedPod{pod},
			Request: schemas.Request{
				Sender: "admin", Name: "one", Action: schemas.ActionDeschedule, Reason: "to see it move",
				Target: &schemas.Target{Node: "worker-1"},
			},
		},
	} {
		e := newEvent(t, p, schemas.Event{})
		schematest.Check(t, e)
		decoded, err := schemas.DecodePayload(e)
		if err != nil {
			t.Errorf("scope %s: %v", p.About(), err)
			continue
		}
		expect.Equal(t, "scope "+p.About(), string(newEvent(t, decoded, schemas.Event{}).Data), string(e.Data))
	}
}

func TestScopeLines(t *testing.T) {
	checkLines(t, "scope", map[string]string{
		"scope":         "scope node/worker-7: RemovePodsViolatingNodeTaints: because of node.taints",
		"scope-domain":  "scope domain/kubernetes.io/hostname=worker-2: RemovePodsViolatingInterPodAntiAffinity: because of pod.labels",
		"scope-pod":     "scope pod/batch/report-29387100-kx7wd: RemoveFailedPods: because of due",
		"scope-request": "scope request/admin/drain-worker-9: Request: because of request",
		"scope-spread": "scope spread/shop/topology.kubernetes.io/zone/5f0c9d7a3b21e864: RemovePodsViolatingTopologySpreadConstraint: " +
			"because of pod.deleted",
		"scope-usage":    "scope usage/cluster: LowNodeUtilization: because of resync",
		"scope-workload": "scope workload/web/ReplicaSet/api-5d8f7c9b6d: RemoveDuplicates: because of node.added",
	})
}
