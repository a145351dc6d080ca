package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func (r *run) addWorkloads() {
	ctx := r.t.Context()
	r.must(r.cluster.AddNamespace(ctx, namespace))
	for i := range workloads {
		name := fmt.Sprint("workload-", i)
		_, err := r.cluster.AddDeployment(ctx, namespace, name, replicas)
		r.must(err)
		if i%2 == 0 { // the policy limits the others
			r.must(r.budget(ctx, name, name))
		}
	}
	_, err := r.cluster.AddDeployment(ctx, refusing, "refused", replicas)
	r.must(err)
	_, err = r.cluster.AddDeployment(ctx, namespace, kept, replicas, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{mark: "true"}
	})
	r.must(err)
	r.must(r.statefulSet(ctx))
	r.waitReady()
	list, err := r.cluster.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + kept})
	r.must(err)
	r.keep = list.Items
	r.followPods()
}

func (r *run) waitReady() {
	r.t.Helper()
	for i := range workloads {
		r.must(r.cluster.WaitReady(r.t.Context(), namespace, fmt.Sprint("workload-", i)))
	}
	r.must(r.cluster.WaitReady(r.t.Context(), namespace, kept))
	r.must(r.cluster.WaitReady(r.t.Context(), refusing, "refused"))
}

// budget allows a workload to lose two pods at a time.
func (r *run) budget(ctx context.Context, workload, name string) error {
	most := intstr.FromInt32(2)
	_, err := r.cluster.Client().PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": workload}}, MaxUnavailable: &most,
		},
	}, metav1.CreateOptions{})
	return err
}

// statefulSet makes one, whose pods keep their names.
func (r *run) statefulSet(ctx context.Context) error {
	labels := map[string]string{"app": stateful}
	_, err := r.cluster.Client().AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: stateful},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(4)), Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

// pods are all pods so far.
type pods struct {
	mu     sync.Mutex
	all    map[types.UID]*seen
	follow bool // false: the first pods are not all known yet
}

// seen is a pod, which may be gone.
type seen struct {
	workload string
	original bool      // from before the run
	created  time.Time // rounded down to the second
	ready    time.Time // rounded down to the second; zero means never, as far as known
}

// followPods records every pod until the end of the test. It misses pods that come and go while the API server is away. An informer
// would wait up to a minute after restarts of the API server.
func (r *run) followPods() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	var following sync.WaitGroup
	listed := make(chan struct{})
	following.Go(func() {
		first := sync.OnceFunc(func() { close(listed) })
		for again := true; again; again = pause(ctx, 100*time.Millisecond) {
			_ = r.watchPods(ctx, first) // the API server can be away
		}
	})
	r.t.Cleanup(func() {
		cancel()
		following.Wait()
	})
	<-listed
}

// watchPods lists all pods, calls listed, and then watches them until the API server ends that.
func (r *run) watchPods(ctx context.Context, listed func()) error {
	all := r.cluster.Client().CoreV1().Pods("")
	list, err := all.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		r.pods.note(&list.Items[i])
	}
	r.pods.begin()
	listed()
	w, err := all.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if p, ok := e.Object.(*corev1.Pod); ok {
			r.pods.note(p)
		}
	}
	return nil
}

// begin ends the time of original pods.
func (l *pods) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follow = true
}

func (l *pods) note(p *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.all[p.UID]
	if s == nil {
		s = &seen{workload: workloadOf(p.Name), original: !l.follow, created: p.CreationTimestamp.Time}
		l.all[p.UID] = s
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && s.ready.IsZero() {
			s.ready = c.LastTransitionTime.Time
		}
	}
}

// since returns a copy. In it, all pods created before a time are original.
func (l *pods) since(at time.Time) *pods {
	l.mu.Lock()
	defer l.mu.Unlock()
	later := &pods{all: map[types.UID]*seen{}, follow: true}
	for uid, s := range l.all {
		one := *s
		one.original = one.original || one.created.Before(at)
		later.all[uid] = &one
	}
	return later
}

// workloadOf returns the Deployment of a pod, which is named NAME-HASH-ID.
func workloadOf(pod string) string {
	parts := strings.Split(pod, "-")
	return strings.Join(parts[:max(len(parts)-2, 0)], "-")
}

// replaced counts the pods of a workload that are newer than the run and were ready at a time. Pods without a known time count.
func (l *pods) replaced(workload string, at time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if !s.original && s.workload == workload && !s.ready.After(at) {
			n++
		}
	}
	return n
}
