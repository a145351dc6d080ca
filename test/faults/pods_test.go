package faults

import (
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// pods are all pods that there were.
type pods struct {
	mu     sync.Mutex
	all    map[types.UID]*seen
	follow bool // the pods at the beginning are all known
}

// seen is a pod that there is or was.
type seen struct {
	workload string
	original bool      // from before the run
	ready    time.Time // to the second, never late; zero: it was not seen to be
}

// followPods knows every pod from now until the end of the test, but those that came and went while the API server was away.
func (r *run) followPods() {
	factory := informers.NewSharedInformerFactoryWithOptions(r.cluster.Client(), 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Pods().Informer()
	note := func(o any) {
		if p, ok := o.(*corev1.Pod); ok {
			r.pods.note(p)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, o any) { note(o) }, DeleteFunc: note,
	})
	r.must(err)
	stop := make(chan struct{})
	factory.Start(stop)
	r.t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	factory.WaitForCacheSync(r.t.Context().Done())
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	r.pods.follow = true
}

func (l *pods) note(p *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.all[p.UID]
	if s == nil {
		s = &seen{workload: workloadOf(p.Name), original: !l.follow}
		l.all[p.UID] = s
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && s.ready.IsZero() {
			s.ready = c.LastTransitionTime.Time
		}
	}
}

// workloadOf is the Deployment of a pod, which is named NAME-HASH-ID.
func workloadOf(pod string) string {
	parts := strings.Split(pod, "-")
	return strings.Join(parts[:max(len(parts)-2, 0)], "-")
}

// replaced is how many pods of a workload were ready at a time that were not there at the beginning. Those that were not
// seen to be ready count.
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
