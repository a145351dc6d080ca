package schemas_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/schematest"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

func TestAScopeOfEveryKindIsPartOfTheContract(t *testing.T) {
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
				{Value: "a", Eligible: true, Count: 2, Pods: []schemas.SpreadPod{{ScopedPod: pod, Fits: []string{"b"}}}},
				{Value: "b", Eligible: true},
			},
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
		schemas.MaintenanceScope{
			ScopeHead: of(schemas.MaintenanceKind, "kernel"), InWindow: true,
			Maintenance: v1alpha1.NodeMaintenance{
				ObjectMeta: metav1.ObjectMeta{Name: "kernel", UID: "1"},
				Spec:       v1alpha1.NodeMaintenanceSpec{Nodes: v1alpha1.NodeSet{Names: []string{"worker-1"}}, Reason: "why"},
			},
			Nodes: []schemas.MaintainedNode{{
				Node: node.Node, Meant: true, Pods: []schemas.MaintainedPod{{ScopedPod: pod, Moving: true}},
				Gates: []schemas.GateFact{{Name: "g", Open: true}}, Locks: []schemas.NodeLock{{Tool: "t", Sign: "s"}},
			}},
			Cluster:    schemas.ClusterFacts{Nodes: 3},
			Others:     []schemas.OtherMaintenance{{Name: "o", Stage: v1alpha1.Idle, Nodes: map[string]v1alpha1.NodeStage{"worker-1": v1alpha1.Waiting}}},
			Rules:      []schemas.DrainRuleFact{{Name: "r", Spec: v1alpha1.ClusterDrainRuleSpec{DrainRuleSpec: v1alpha1.DrainRuleSpec{Behavior: v1alpha1.SkipPods}}}},
			Namespaces: map[string]map[string]string{"shop": {"team": "a"}, "web": nil},
		},
	} {
		e := newEvent(t, p, schemas.Event{})
		schematest.Check(t, e)
		decoded, err := schematest.Payload(e)
		if err != nil {
			t.Errorf("scope %s: %v", p.About(), err)
			continue
		}
		same(t, "scope "+p.About(), string(newEvent(t, decoded, schemas.Event{}).Data), string(e.Data))
	}
}
