package functions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// taintedNode returns the scope of a tainted node. Every pod should move.
func taintedNode(pods int) schemas.NodeScope {
	started := metav1.NewTime(time.Unix(1_790_000_000, 0))
	s := schemas.NodeScope{
		ScopeHead: schemas.ScopeHead{
			Kind: schemas.NodeKind, Key: "node-0007", Profile: "default", Strategy: "RemovePodsViolatingNodeTaints",
			Now: started.Time, Causes: []schemas.Cause{{Kind: schemas.CauseResync, Time: started.Time}},
		},
		Node: corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-0007"},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}},
		},
	}
	for i := range pods {
		s.Pods = append(s.Pods, schemas.ScopedPod{Pod: typicalPod(i, "node-0007")})
	}
	return s
}

// typicalPod returns a Deployment pod as in a scope: two containers, five conditions.
func typicalPod(i int, node string) corev1.Pod {
	started := metav1.NewTime(time.Unix(1_790_000_000, 0))
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: fmt.Sprintf("api-%d", i), UID: types.UID(fmt.Sprint("uid-", i)), CreationTimestamp: started,
			Labels:          map[string]string{"app": "api", "pod-template-hash": "5d9c7b8f6d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "api", UID: "rs"}},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started, QOSClass: corev1.PodQOSBurstable},
	}
	for _, c := range []string{"main", "proxy"} {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: c, Image: "registry.example.com/" + c + ":1.2.3", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		})
	}
	for _, c := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: started})
	}
	return p
}

// unevenSpread returns a scope of pods in many domains. Every third domain is empty, and the others have equally many
// pods.
func unevenSpread(key string, domains, pods int) schemas.SpreadScope {
	now := time.Unix(1_790_000_000, 0)
	constraint := corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}},
	}
	s := schemas.SpreadScope{
		ScopeHead: schemas.ScopeHead{
			Kind: schemas.SpreadKind, Key: "web/" + key + "/5d9c7b8f6d", Profile: "default",
			Strategy: "RemovePodsViolatingTopologySpreadConstraint", Now: now, Causes: []schemas.Cause{{Kind: schemas.CauseResync, Time: now}},
		},
		Namespace: "web", Constraint: constraint,
	}
	value := func(i int) string { return fmt.Sprintf("domain-%04d", i) }
	room, empty := make([]int, domains), 0
	for i := 2; i < domains; i += 3 {
		room[i] = pods
		empty++
	}
	s.Room = [][]int{room}
	each := pods / (domains - empty)
	for i := range domains {
		d := schemas.Domain{Value: value(i), Eligible: true}
		if i%3 != 2 {
			for range each {
				p := typicalPod(d.Count+i*each, value(i))
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{constraint}
				d.Pods = append(d.Pods, schemas.SpreadPod{ScopedPod: schemas.ScopedPod{Pod: p}})
				d.Count++
			}
		}
		s.Domains = append(s.Domains, d)
	}
	return s
}

// BenchmarkEvaluate measures the host: decode the scope, decide, complete the intents.
func BenchmarkEvaluate(b *testing.B) {
	for _, pods := range []int{20, 110} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			f := named(b, "RemovePodsViolatingNodeTaints")
			e := schematest.Event(b, "/s", taintedNode(pods), time.Now(), schemas.Event{})
			b.SetBytes(int64(len(e.Data)))
			for b.Loop() {
				if a, err := f.Evaluate(e); err != nil || len(a.Intents) != pods {
					b.Fatal(a, err)
				}
			}
		})
	}
}

// BenchmarkEvaluateSpread does the same for a spread, most of it decoding: a small and a large Deployment over zones, a
// Deployment over hosts, and one that fills a cluster.
func BenchmarkEvaluateSpread(b *testing.B) {
	for _, c := range []struct {
		key           string
		domains, pods int
	}{
		{corev1.LabelTopologyZone, 3, 30}, {corev1.LabelTopologyZone, 3, 600}, {corev1.LabelTopologyZone, 3, 5000},
		{corev1.LabelHostname, 30, 60}, {corev1.LabelHostname, 1000, 5000},
	} {
		_, word, _ := strings.Cut(c.key, "/")
		b.Run(fmt.Sprintf("%ss=%d/pods=%d", word, c.domains, c.pods), func(b *testing.B) {
			f := named(b, "RemovePodsViolatingTopologySpreadConstraint")
			e := schematest.Event(b, "/s", unevenSpread(c.key, c.domains, c.pods), time.Now(), schemas.Event{})
			b.SetBytes(int64(len(e.Data)))
			b.ReportAllocs()
			moves := 0
			for b.Loop() {
				a, err := f.Evaluate(e)
				if err != nil || len(a.Intents) == 0 {
					b.Fatal(len(a.Intents), err)
				}
				moves = len(a.Intents)
			}
			b.ReportMetric(float64(moves), "moves/op")
			b.ReportMetric(float64(len(e.Data)), "bytes/scope")
		})
	}
}

func named(b *testing.B, strategy string) functions.Function {
	b.Helper()
	for _, f := range functions.All() {
		if f.Strategy.Name == strategy {
			return f
		}
	}
	b.Fatalf("no strategy %s", strategy)
	return functions.Function{}
}
