package workload

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// manyPods is how many pods the measurements are taken with, in workloads of 20.
const manyPods = 20_000

// wired is a pod as the API server sends it: nothing of it is in memory twice.
func wired(tb testing.TB, i int, changes ...func(*corev1.Pod)) *corev1.Pod {
	tb.Helper()
	set := fmt.Sprintf("frontend-%04d-7d9f8b6c5d", i/20)
	p := ready(fmt.Sprintf("%s-%05d", set, i), born(i), owned("ReplicaSet", set), labelled("app.kubernetes.io/name", set,
		"app.kubernetes.io/instance", "production", "app.kubernetes.io/component", "web", "pod-template-hash", "7d9f8b6c5d"))
	p.UID = types.UID(fmt.Sprintf("6f1c2c1e-0d55-4a53-9b3c-%012d", i))
	p.Namespace, p.Spec.NodeName = fmt.Sprint("team-", i/20%50), fmt.Sprint("node-", i%400)
	p.ResourceVersion = fmt.Sprint(1_000_000 + i)
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.example.com/frontend:v1.2.3"}}
	for _, change := range changes {
		change(p)
	}
	data, err := p.Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	var received corev1.Pod
	if err := received.Unmarshal(data); err != nil {
		tb.Fatal(err)
	}
	return &received
}

// heap is how many bytes are in use. Handles of an earlier test are let go a few collections after it.
func heap() int64 {
	for range 5 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAPodTakesLessThanAKilobyteInAll(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(i int) func(*corev1.Pod)
	}{
		{"with the labels of its workload", func(int) func(*corev1.Pod) { return func(*corev1.Pod) {} }},
		{"with labels of its own", func(i int) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Labels["statefulset.kubernetes.io/pod-name"] = fmt.Sprint("db-", i) }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := heap()
			w := newWorld(t)
			w.changed = func(Change) {}
			informer := cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{})
			for i := range manyPods {
				p := w.pruned(wired(t, i, tt.change(i)))
				if err := informer.Add(p); err != nil {
					t.Fatal(err)
				}
				w.kinds["Pods"].handler.OnAdd(p, true)
			}
			each := (heap() - before) / manyPods
			t.Logf("%d bytes a pod with %d pods, in the informer's store and in the view", each, manyPods)
			if each >= 1024 || len(informer.List()) != manyPods || len(w.pods.pods) != manyPods {
				t.Errorf("%d bytes a pod; %d pods in the informer, %d in the view", each, len(informer.List()), len(w.pods.pods))
			}
			runtime.KeepAlive(w)
		})
	}
}

// BenchmarkAChangeOfAPod changes one of 20,000 pods, as when it gets ready.
func BenchmarkAChangeOfAPod(b *testing.B) {
	x := newIndex()
	var states [2]*keptPod
	for i := range manyPods {
		states = [2]*keptPod{keepPod(wired(b, i)), keepPod(wired(b, i, unready("no")))}
		x.learnPod(nil, states[0])
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		x.learnPod(states[i%2], states[(i+1)%2])
	}
}
