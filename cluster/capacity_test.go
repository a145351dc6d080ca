package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestCapacityElsewhere(t *testing.T) {
	pool := labels.SelectorFromSet(labels.Set{"pool": "web"})
	inPool := func(n *corev1.Node) { n.Labels["pool"] = "web" }
	full := func(n *corev1.Node) { n.Status.Allocatable = amount("cpu", "1", "pods", "10") }
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
	}
	asked := guest("asked", "here", asks("2"))
	gated := guest("asked", "here", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} })
	for _, c := range []struct {
		name    string
		objects []runtime.Object
		pod     *corev1.Pod
		nodes   labels.Selector
		want    string // why not; empty means it fits
	}{
		{"another node has room", []runtime.Object{roomy("b", full), roomy("c")}, asked, nil, ""},
		{"its own node does not count", nil, asked, nil, "there is no other node that is ready and not excluded"},
		{"one node has none", []runtime.Object{roomy("b", full)}, asked, nil, "does not fit on the only other node: resource"},
		{"the most frequent reason comes first", []runtime.Object{roomy("b", tainted), roomy("c", full), roomy("d", full)}, asked, nil,
			"fits on none of 3 other nodes: resource on 2, taint on 1"},
		{"of reasons as frequent the first by name", []runtime.Object{roomy("b", tainted), roomy("c", full)}, asked, nil,
			"fits on none of 2 other nodes: resource on 1, taint on 1"},
		{"a node that is not ready does not count", []runtime.Object{roomy("b", conditioned(corev1.ConditionFalse))}, asked, nil,
			"there is no other node that is ready and not excluded"},
		{"a node that is selected counts", []runtime.Object{roomy("b", inPool)}, asked, pool, ""},
		{"a node that is not selected does not", []runtime.Object{roomy("b"), roomy("c", inPool, full)}, asked, pool,
			"does not fit on the only other node: resource"},
		{"none is selected", []runtime.Object{roomy("b")}, asked, pool,
			`there is no other node that is ready, not excluded, and matches "pool=web"`},
		{"a pod that cannot be judged fits nowhere", []runtime.Object{roomy("b")}, gated, nil, "not judged: gated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newCapacity(true)
			for _, o := range append([]runtime.Object{roomy("here"), c.pod}, c.objects...) {
				give(t, r, o)
			}
			fits, _, why := (&Cache{capacity: r}).Elsewhere(c.pod, policy.Targets{Nodes: c.nodes})
			if fits != (c.want == "") || why != c.want {
				t.Errorf("got %v, %q, want %q", fits, why, c.want)
			}
		})
	}
}

func TestCapacityForgetsDeletedObjects(t *testing.T) {
	r := newCapacity(true)
	asked := guest("asked", "here", asks("2"))
	node, other := roomy("there"), guest("other", "there", asks("3"))
	successor := guest("other", "there")
	successor.UID = "successor"
	give(t, r, node)
	steps := []struct {
		name   string
		change func()
		want   string
	}{
		{"a node alone", func() {}, ""},
		{"a pod takes its room", func() { r.pod(nil, other) }, "does not fit on the only other node: resource"},
		{"a pod of the same name that wants nothing replaces it", func() { every(r.pod)(other, successor, false) }, ""},
		{"the node is gone", func() { placement[corev1.Node](r)(node, nil) }, "there is no other node that is ready and not excluded"},
		{"it is back, with its pod", func() {
			placement[corev1.Node](r)(nil, roomy("there", func(n *corev1.Node) { n.Status.Allocatable = amount("cpu", "4", "pods", "1") }))
		},
			"does not fit on the only other node: " + string(fit.PodCount)},
		{"the pod is gone too", func() { r.pod(successor, nil) }, ""},
	}
	for _, step := range steps {
		step.change()
		if fits, _, why := (&Cache{capacity: r}).Elsewhere(asked, policy.Targets{}); fits != (step.want == "") || why != step.want {
			t.Errorf("%s: got %v, %q, want %q", step.name, fits, why, step.want)
		}
	}
}

func TestCapacityChanges(t *testing.T) {
	cache := func(t *testing.T) *Cache {
		t.Helper()
		c, err := NewOffline(PlacementKinds()...)
		expect.Must(t, err)
		for _, o := range []any{roomy("here"), roomy("there"), guest("asked", "here", asks("2")), guest("other", "there")} {
			if err := c.Set(o); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	asked := guest("asked", "here", asks("2"))
	t.Run("do not wait for a question", func(t *testing.T) {
		c := cache(t)
		c.Ask(asked, func(*fit.Question) {
			done := make(chan error)
			go func() {
				c.Release("moved")
				done <- c.Set(guest("other", "there", asks("3")))
			}()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("the change waits for the question")
			}
		})
		if fits, _, _ := c.Elsewhere(asked, policy.Targets{}); fits {
			t.Error("the next question does not know the change")
		}
	})
	t.Run("of the status of a pod are none", func(t *testing.T) {
		c := cache(t)
		c.capacity.mu.Lock() // so that changes stay pending
		ready := func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 3}}
		}
		for _, step := range []struct {
			pod  *corev1.Pod
			want int
		}{
			{guest("other", "there", ready), 0},
			{guest("other", "there", ready, func(p *corev1.Pod) { p.Labels = nil }), 1},
			{guest("other", "there", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), 2},
		} {
			if err := c.Set(step.pod); err != nil {
				t.Fatal(err)
			}
			if got := len(c.capacity.pending); got != step.want {
				t.Errorf("%d changes, want %d", got, step.want)
			}
		}
	})
}
