package functions_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
)

// taintedNode is a scope of which every pod should move.
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
		p := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "web", Name: fmt.Sprintf("api-%d", i), UID: types.UID(fmt.Sprint("uid-", i)), CreationTimestamp: started,
				Labels:          map[string]string{"app": "api", "pod-template-hash": "5d9c7b8f6d"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "api", UID: "rs"}},
			},
			Spec:   corev1.PodSpec{NodeName: "node-0007"},
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
		s.Pods = append(s.Pods, schemas.ScopedPod{Pod: p})
	}
	return s
}

// BenchmarkEvaluate is the host's share: decode the scope, decide, stamp the intents.
func BenchmarkEvaluate(b *testing.B) {
	for _, pods := range []int{20, 110} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			f := functions.All()[0]
			e, err := schemas.NewEvent("/s", taintedNode(pods), time.Now(), schemas.Event{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(e.Data)))
			for b.Loop() {
				if a, err := f.Evaluate(e); err != nil || len(a.Intents) != pods {
					b.Fatal(a, err)
				}
			}
		})
	}
}
