package watcher

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/watcher/load"
)

// benchPolicy has one strategy that evaluates a node when the node changes.
func benchPolicy(b *testing.B) policy.Policy {
	b.Helper()
	text := "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: [{name: default, " +
		"pluginConfig: [{name: S}], plugins: {deschedule: {enabled: [S]}}}]\n"
	p, err := policy.Parse("bench", []byte(text), []policy.Strategy{{
		Name: "S", Point: policy.Deschedule, Scope: schemas.NodeKind,
		Wakes:   []schemas.DeltaKind{schemas.NodeTaints, schemas.PodScheduled},
		NewArgs: func() policy.Args { return &noArgs{} },
	}})
	expect.Must(b, err)
	return p
}

type noArgs struct{}

func (noArgs) Validate() error { return nil }

// nowhere is a bus that discards everything.
type nowhere struct{}

func (nowhere) PublishAll(context.Context, []schemas.Event) error { return nil }

func (nowhere) AnsweredScopes(context.Context) ([]schemas.ScopeHead, error) { return nil, nil }

func (nowhere) Verdicts(context.Context, time.Time, func(schemas.Event)) error { return nil }

func (nowhere) FollowVerdicts(context.Context, time.Time, func(schemas.Event)) error { return nil }

// busy is the number of the node whose scope is measured.
const busy = 7

// benchLead returns the session of a leading watcher with filled caches and no goroutines. Every node has 20 pods,
// except the busy node, which has 110.
func benchLead(b *testing.B, nodes int) *session {
	b.Helper()
	w := newWatcher(Config{Source: "/clusters/bench/watcher", Debounce: time.Nanosecond, Resync: time.Hour, Bus: nowhere{}, Cluster: offline(b)})
	w.source = func(policy.Load, policy.Metrics) (load.Source, error) { return nil, nil }
	expect.Must(b, w.SetPolicy(benchPolicy(b)))
	for i := range nodes {
		n := benchNode(i)
		put(b, w.cluster, n)
		onNode := 20
		if i == busy {
			onNode = 110
		}
		for k := range onNode {
			put(b, w.cluster, benchPod(i, k))
		}
	}
	return testSession(b.Context(), w)
}

// benchNode returns a node as a cloud provider creates it, with a dozen labels and four conditions.
func benchNode(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("node-%04d", i), UID: types.UID(fmt.Sprintf("6f1d3c52-0000-4000-8000-%012d", i)),
		Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(time.Unix(1_790_000_000, 0)),
	}}
	for k := range 12 {
		n.Labels[fmt.Sprintf("example.com/label-%d", k)] = fmt.Sprintf("value-%d", k)
	}
	for _, c := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: corev1.ConditionFalse})
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("32"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110"),
	}
	n.Status.Capacity = n.Status.Allocatable.DeepCopy()
	return n
}

// benchPod returns a pod as the API server stores it: two containers with environment variables and probes, projected
// tokens, and conditions.
func benchPod(node, i int) *corev1.Pod {
	name := fmt.Sprintf("api-5d9c7b8f6d-%04d-%03d", node, i)
	started := metav1.NewTime(time.Unix(1_790_000_000, 0))
	controller := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: name, UID: types.UID(fmt.Sprintf("0b6a7d1e-0000-4000-8000-%06d%06d", node, i)),
			ResourceVersion: "123456", GenerateName: "api-5d9c7b8f6d-", CreationTimestamp: started,
			Labels: map[string]string{"app": "api", "pod-template-hash": "5d9c7b8f6d", "team": "web"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "api-5d9c7b8f6d", UID: "rs-uid", Controller: &controller,
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 2000))}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%04d", node), ServiceAccountName: "default", SchedulerName: "default-scheduler",
			Volumes: []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started, QOSClass: corev1.PodQOSBurstable},
	}
	for _, c := range []string{"main", "proxy"} {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: c, Image: "registry.example.com/" + c + ":1.2.3", Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi"),
			}},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		})
	}
	for _, c := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: c, Status: corev1.ConditionTrue, LastTransitionTime: started,
		})
	}
	return p
}

// BenchmarkNodeScope builds the scope of a node with 110 pods. The cost must not depend on the size of the cluster.
func BenchmarkNodeScope(b *testing.B) {
	for _, nodes := range []int{100, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			l := benchLead(b, nodes)
			key, causes := l.policy.Strategies[0].Key("node-0007"), []schemas.Cause{{Kind: schemas.CauseResync}}
			b.ReportAllocs()
			for b.Loop() {
				if s, err := l.scopes.Build(key, causes, time.Now()); err != nil || s.Scope == nil {
					b.Fatal(s, err)
				}
			}
		})
	}
}
