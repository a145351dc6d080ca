package cluster

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// manyPods is the number of pods in the measurements, in workloads of 20.
const manyPods = 20_000

// wired returns a pod as decoded from the API server: no part of it is shared.
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
	expect.Must(tb, err)
	var received corev1.Pod
	if err := received.Unmarshal(data); err != nil {
		tb.Fatal(err)
	}
	return &received
}

// heap returns the bytes in use. Handles of an earlier test are released a few collections after it.
func heap() int64 {
	for range 5 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestMemory(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(i int) func(*corev1.Pod)
		most   int64 // bytes for one pod
	}{
		{"pods_with_the_labels_of_their_workload", func(int) func(*corev1.Pod) { return func(*corev1.Pod) {} }, 4096},
		{"pods_with_labels_of_their_own", func(i int) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Labels["statefulset.kubernetes.io/pod-name"] = fmt.Sprint("db-", i) }
		}, 4608},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := heap()
			c, err := NewOffline(append(PlacementKinds(), WorkloadKinds()...)...)
			expect.Must(t, err)
			for i := range manyPods {
				if err := c.Set(wired(t, i, tt.change(i))); err != nil {
					t.Fatal(err)
				}
			}
			each := (heap() - before) / manyPods
			t.Logf("%d bytes a pod with %d pods", each, manyPods)
			if each >= tt.most || len(c.AllPods()) != manyPods {
				t.Errorf("%d bytes a pod, want fewer than %d; %d pods", each, tt.most, len(c.AllPods()))
			}
			runtime.KeepAlive(c)
		})
	}
}

// BenchmarkPodChanged changes one of 20,000 pods, as when it gets ready.
func BenchmarkPodChanged(b *testing.B) {
	w := newWorkloads(time.Now)
	var states [2]*corev1.Pod
	for i := range manyPods {
		states = [2]*corev1.Pod{wired(b, i), wired(b, i, unready("no"))}
		w.podChanged(nil, states[0])
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		w.podChanged(states[i%2], states[(i+1)%2])
	}
}
