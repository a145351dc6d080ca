package cluster

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestWorkloadOfPod(t *testing.T) {
	bystander := by("StatefulSet", "db")
	bystander.Controller = nil
	for _, tt := range []struct {
		name    string
		owners  []metav1.OwnerReference
		objects []metav1.Object
		want    schemas.ObjectRef
	}{
		{"a pod without owners belongs to nothing", nil, nil, schemas.ObjectRef{}},
		{"an owner that is not the controller does not count", []metav1.OwnerReference{bystander}, nil, schemas.ObjectRef{}},
		{"a pod of a StatefulSet", []metav1.OwnerReference{by("StatefulSet", "db")}, nil, ref("StatefulSet", "db")},
		{"a pod of an unknown kind", []metav1.OwnerReference{bystander, by("Game", "g")}, nil, ref("Game", "g")},
		{"a pod of an unknown ReplicaSet", []metav1.OwnerReference{by("ReplicaSet", "api-1")}, nil,
			ref("ReplicaSet", "api-1")},
		{"a pod of a ReplicaSet without controller", []metav1.OwnerReference{by("ReplicaSet", "api-1")},
			[]metav1.Object{replicaSet("api-1", 1)}, ref("ReplicaSet", "api-1")},
		{"a pod of a ReplicaSet of a Deployment", []metav1.OwnerReference{by("ReplicaSet", "api-1")},
			[]metav1.Object{replicaSet("api-1", 1, by("Deployment", "api"))}, ref("Deployment", "api")},
		{"a ReplicaSet of another kind of controller is the workload", []metav1.OwnerReference{by("ReplicaSet", "api-1")},
			[]metav1.Object{replicaSet("api-1", 1, by("Rollout", "api"))}, ref("ReplicaSet", "api-1")},
		{"a Deployment of another API is another kind", []metav1.OwnerReference{by("ReplicaSet", "api-1")},
			[]metav1.Object{replicaSet("api-1", 1, metav1.OwnerReference{
				APIVersion: "appsy.example.com/v1", Kind: "Deployment", Name: "api", UID: "api", Controller: new(true),
			})}, ref("ReplicaSet", "api-1")},
		{"a ReplicaSet with that name and another UID is another one", []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "api-1", UID: "before", Controller: new(true)},
		}, []metav1.Object{replicaSet("api-1", 1, by("Deployment", "api"))},
			schemas.ObjectRef{Kind: "ReplicaSet", Namespace: "shop", Name: "api-1", UID: "before"}},
		{"a ReplicaSet with that UID and another name is another one", []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "api-9", UID: "api-1", Controller: new(true)},
		}, []metav1.Object{replicaSet("api-1", 1, by("Deployment", "api"))},
			schemas.ObjectRef{Kind: "ReplicaSet", Namespace: "shop", Name: "api-9", UID: "api-1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.set(tt.objects...)
			w.set(ready("pod", func(p *corev1.Pod) { p.OwnerReferences = tt.owners }))
			want := shown("pod", func(p *Pod) { p.Workload = tt.want })
			got, known := w.Pod("pod")
			expect.Equal(t, "pod", got, want)
			expect.Equal(t, "known", known, true)
			var pods []Pod
			if tt.want.UID != "" {
				pods = []Pod{want}
			}
			expect.Equal(t, "pods of the workload", w.Pods(tt.want.UID), pods)
		})
	}
}

func TestUnknownPod(t *testing.T) {
	w := newWorld(t)
	w.set(ready("api-1-a", owned("ReplicaSet", "api-1")))
	w.gone(ready("api-1-a"))
	got, known := w.Pod("api-1-a")
	expect.Equal(t, "pod", got, Pod{})
	expect.Equal(t, "known", known, false)
	expect.Equal(t, "pods", w.Pods("api-1"), nil)
	expect.Equal(t, "tally", w.Tally("api-1"), Tally{})
}

func TestPodBeforeItsReplicaSet(t *testing.T) {
	w := newWorld(t)
	w.set(deployment("api", 2), ready("api-1-a", owned("ReplicaSet", "api-1")))
	expect.Equal(t, "told first", w.told(), []string{"workload api", "workload api-1"})
	expect.Equal(t, "pods of the ReplicaSet", w.Pods("api-1"), []Pod{shown("api-1-a", in("ReplicaSet", "api-1"))})
	expect.Equal(t, "tally of the ReplicaSet", w.Tally("api-1"), Tally{Wanted: 1, Ready: 1})

	w.set(replicaSet("api-1", 2, by("Deployment", "api")))
	expect.Equal(t, "told then", w.told(), []string{"workload api", "workload api-1"})
	expect.Equal(t, "pods of the Deployment", w.Pods("api"), []Pod{shown("api-1-a", in("Deployment", "api"))})
	expect.Equal(t, "tally of the Deployment", w.Tally("api"), Tally{Wanted: 2, Ready: 1})
	expect.Equal(t, "pods of the ReplicaSet", w.Pods("api-1"), nil)
	expect.Equal(t, "tally of the ReplicaSet", w.Tally("api-1"), Tally{})

	w.gone(replicaSet("api-1", 2))
	expect.Equal(t, "told in the end", w.told(), []string{"workload api", "workload api-1"})
	expect.Equal(t, "pods of the ReplicaSet", w.Pods("api-1"), []Pod{shown("api-1-a", in("ReplicaSet", "api-1"))})
}

func TestPodOrder(t *testing.T) {
	w := newWorld(t)
	w.set(replicaSet("api-1", 0, by("Deployment", "api")), replicaSet("api-2", 0, by("Deployment", "api")))
	for _, p := range []*corev1.Pod{
		ready("d", owned("ReplicaSet", "api-2"), born(2)), ready("c", owned("ReplicaSet", "api-1"), born(2)),
		ready("b", owned("ReplicaSet", "api-1"), born(3)), ready("z", owned("ReplicaSet", "api-2"), born(1)),
		ready("a", owned("ReplicaSet", "api-1"), born(2)), ready("other", owned("ReplicaSet", "other")),
	} {
		w.set(p)
	}
	var got []string
	for _, p := range w.Pods("api") {
		got = append(got, p.Ref.Name)
	}
	expect.Equal(t, "pods", got, []string{"z", "a", "c", "d", "b"})
}

func TestDesiredReplicas(t *testing.T) {
	pods := func(kind, owner string) []metav1.Object {
		return []metav1.Object{
			ready("a", owned(kind, owner)), ready("b", owned(kind, owner), leaving), ready("c", owned(kind, owner), ended),
			ready("d", owned(kind, owner), unready("")),
		}
	}
	for _, tt := range []struct {
		name     string
		kind     string
		objects  []metav1.Object
		workload types.UID
		want     Tally
		empty    int // the desired pods when its pods are gone
	}{
		{"a Deployment says it, whatever its ReplicaSets say", "ReplicaSet",
			[]metav1.Object{deployment("api", 5), replicaSet("own", 7, by("Deployment", "api"))}, "api",
			Tally{Wanted: 5, Ready: 1}, 5},
		{"a Deployment without replicas wants one", "ReplicaSet",
			[]metav1.Object{&appsv1.Deployment{ObjectMeta: meta("api")}, replicaSet("own", 7, by("Deployment", "api"))}, "api",
			Tally{Wanted: 1, Ready: 1}, 1},
		{"an unknown Deployment wants its existing pods", "ReplicaSet",
			[]metav1.Object{replicaSet("own", 7, by("Deployment", "api"))}, "api", Tally{Wanted: 3, Ready: 1}, 0},
		{"its own ReplicaSet says it", "ReplicaSet", []metav1.Object{replicaSet("own", 7)}, "own",
			Tally{Wanted: 7, Ready: 1}, 7},
		{"a StatefulSet says it", "StatefulSet", []metav1.Object{&appsv1.StatefulSet{
			ObjectMeta: meta("own"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(0))},
		}}, "own", Tally{Ready: 1}, 0},
		{"a ReplicationController says it", "ReplicationController", []metav1.Object{&corev1.ReplicationController{
			ObjectMeta: meta("own"), Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(4))},
		}}, "own", Tally{Wanted: 4, Ready: 1}, 4},
		{"any other workload wants its pods that have not ended", "Job", nil, "own", Tally{Wanted: 3, Ready: 1}, 0},
		{"an unknown workload has no pods", "Job", nil, "else", Tally{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.set(tt.objects...)
			w.set(pods(tt.kind, "own")...)
			expect.Equal(t, "tally", w.Tally(tt.workload), tt.want)
			w.gone(pods(tt.kind, "own")...)
			expect.Equal(t, "tally without pods", w.Tally(tt.workload), Tally{Wanted: tt.empty})
		})
	}
}

func TestPodMessages(t *testing.T) {
	unplaced := func(message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeName = ""
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message},
			}
		}
	}
	for _, tt := range []struct {
		name      string
		pod, want func(*corev1.Pod, *Pod)
	}{
		{"it is ready and stays", func(*corev1.Pod, *Pod) {}, func(_ *corev1.Pod, _ *Pod) {}},
		{"there is no why for one that is ready", func(p *corev1.Pod, _ *Pod) {
			podCondition(p, corev1.PodReady).Message = "all containers are ready"
		}, func(_ *corev1.Pod, _ *Pod) {}},
		{"one that is being deleted is not ready", func(p *corev1.Pod, _ *Pod) { leaving(p) },
			func(_ *corev1.Pod, s *Pod) { s.Ready, s.Leaving = false, true }},
		{"one that has succeeded has ended", func(p *corev1.Pod, _ *Pod) { p.Status.Phase = corev1.PodSucceeded },
			func(_ *corev1.Pod, s *Pod) { s.Ready, s.Ended = false, true }},
		{"one that has failed has ended", func(p *corev1.Pod, _ *Pod) { p.Status.Phase = corev1.PodFailed },
			func(_ *corev1.Pod, s *Pod) { s.Ready, s.Ended = false, true }},
		{"one that says nothing is not ready", func(p *corev1.Pod, _ *Pod) { p.Status = corev1.PodStatus{} },
			func(_ *corev1.Pod, s *Pod) { s.Ready, s.Cost = false, costOf(nil, corev1.PodQOSBestEffort) }},
		{"its priority", func(p *corev1.Pod, _ *Pod) { p.Spec.Priority = new(int32(7)) },
			func(_ *corev1.Pod, s *Pod) { s.Cost = costOf(new(int32(7)), corev1.PodQOSBurstable) }},
		{"without a node: the scheduler's message", func(p *corev1.Pod, _ *Pod) { unplaced("0/3 nodes are available")(p) },
			func(_ *corev1.Pod, s *Pod) { s.Node, s.Ready, s.Why = "", false, "0/3 nodes are available" }},
		{"without a node and words: the reason", func(p *corev1.Pod, _ *Pod) { unplaced("")(p) },
			func(_ *corev1.Pod, s *Pod) { s.Node, s.Ready, s.Why = "", false, "Unschedulable" }},
		{"on a node: the first container that waits", func(p *corev1.Pod, _ *Pod) {
			unready("containers with unready status: [b c]")(p)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				running(), waiting("ImagePullBackOff", "back-off pulling image b"), waiting("ContainerCreating", ""),
			}
		}, func(_ *corev1.Pod, s *Pod) { s.Ready, s.Why = false, "ImagePullBackOff: back-off pulling image b" }},
		{"a container that waits without words", func(p *corev1.Pod, _ *Pod) {
			unready("containers with unready status: [a]")(p)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{waiting("ContainerCreating", "")}
		}, func(_ *corev1.Pod, s *Pod) { s.Ready, s.Why = false, "ContainerCreating" }},
		{"an init container before the others", func(p *corev1.Pod, _ *Pod) {
			unready("")(p)
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{waiting("CrashLoopBackOff", "")}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{waiting("PodInitializing", "")}
		}, func(_ *corev1.Pod, s *Pod) { s.Ready, s.Why = false, "CrashLoopBackOff" }},
		{"no container waits: the condition", func(p *corev1.Pod, _ *Pod) {
			unready("the status of gate is not true")(p)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{running()}
		}, func(_ *corev1.Pod, s *Pod) { s.Ready, s.Why = false, "the status of gate is not true" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, want := ready("pod", owned("Job", "job")), shown("pod", in("Job", "job"))
			tt.pod(p, nil)
			tt.want(nil, &want)
			w := newWorld(t)
			w.set(p)
			expect.Equal(t, "pods", w.Pods("job"), []Pod{want})
		})
	}
}

func TestReasonTruncation(t *testing.T) {
	for text, want := range map[string]string{
		"short":                              "short",
		"a" + strings.Repeat("ä", 79) + "ä":  "a" + strings.Repeat("ä", 79) + "…",
		strings.Repeat("a", 160):             strings.Repeat("a", 160),
		strings.Repeat("a", 160) + "b":       strings.Repeat("a", 160) + "…",
		strings.Repeat("ä", 80):              strings.Repeat("ä", 80),
		strings.Repeat("ä", 80) + "and more": strings.Repeat("ä", 80) + "…",
	} {
		expect.Equal(t, text, cut(text), want)
	}
}

func TestUnchangedObjectsNotReported(t *testing.T) {
	w := newWorld(t)
	pod := func(changes ...func(*corev1.Pod)) *corev1.Pod {
		return ready("a", append(changes, owned("ReplicaSet", "api-1"))...)
	}
	for _, tt := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"a ReplicaSet of a Deployment is no workload", func() { w.set(replicaSet("api-1", 1, by("Deployment", "api"))) }, nil},
		{"a Deployment came", func() { w.set(deployment("api", 1)) }, []string{"workload api"}},
		{"a pod came", func() { w.set(pod()) }, []string{"workload api"}},
		{"a pod without workload came", func() { w.set(ready("alone")) }, nil},
		{"a pod changed in an unreported field", func() {
			w.set(pod(labelled("app", "api"), func(p *corev1.Pod) {
				p.ResourceVersion, p.Annotations = "2", map[string]string{"a": "b"}
			}))
		}, nil},
		{"a pod is not ready any more", func() { w.set(pod(unready(""))) }, []string{"workload api"}},
		{"a ReplicaSet of a Deployment is scaled", func() { w.set(replicaSet("api-1", 2, by("Deployment", "api"))) }, nil},
		{"a Deployment is scaled", func() { w.set(deployment("api", 2)) }, []string{"workload api"}},
		{"an unchanged Deployment", func() { w.set(deployment("api", 2)) }, nil},
		{"a ReplicaSet lost its Deployment", func() { w.set(replicaSet("api-1", 2)) }, []string{"workload api", "workload api-1"}},
		{"a pod was let go", func() { w.set(ready("a")) }, []string{"workload api-1"}},
		{"a pod was adopted", func() { w.set(pod()) }, []string{"workload api-1"}},
		{"a pod went", func() { w.gone(pod()) }, []string{"workload api-1"}},
		{"a Deployment went", func() { w.gone(deployment("api", 0)) }, []string{"workload api"}},
	} {
		tt.change()
		expect.Equal(t, tt.name, w.told(), tt.want)
	}
}

func TestRecreatedPod(t *testing.T) {
	w := newWorld(t)
	anew := ready("db-0", owned("StatefulSet", "db"), born(9))
	anew.UID = "anew"
	w.set(ready("db-0", owned("StatefulSet", "db")), anew)
	expect.Equal(t, "pods", w.Pods("db"), []Pod{shown("db-0", in("StatefulSet", "db"), func(p *Pod) {
		p.Ref.UID, p.Created = "anew", anew.CreationTimestamp.Time
	})})
	_, known := w.Pod("db-0")
	expect.Equal(t, "the one before is known", known, false)
	expect.Equal(t, "told", w.told(), []string{"workload db", "workload db", "workload db"})
}

func TestObserverSeesReportedChange(t *testing.T) {
	w := newWorld(t)
	var got []Pod
	w.OnChange(func(c Change) { got = append(got, w.Pods(c.Workload)...) })
	w.set(ready("a", owned("Job", "job")))
	expect.Equal(t, "pods", got, []Pod{shown("a", in("Job", "job"))})
}

func TestPodNumbers(t *testing.T) {
	w := newWorld(t)
	expect.Equal(t, "the latest of none", w.Latest(), uint64(0))
	w.set(ready("b", born(3600)))
	w.set(ready("a"))
	w.set(ready("b", born(3600), labelled("changed", "yes")))
	expect.Equal(t, "numbers", []uint64{w.Seen("b"), w.Seen("a"), w.Seen("other"), w.Latest()}, []uint64{1, 2, 0, 2})
}
