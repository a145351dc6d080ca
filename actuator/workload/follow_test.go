package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestAnObjectThatWentUnseenIsGone(t *testing.T) {
	w := newWorld(t)
	w.set(ready("a", owned("Job", "job")))
	w.told()
	w.kinds["Pods"].handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/a", Obj: w.has["Pods shop/a"]})
	check(t, "told", w.told(), []string{"workload job"})
	check(t, "pods", w.Pods("job"), nil)
}

func TestWhatIsPrunedIsPrunedOnce(t *testing.T) {
	w := newWorld(t)
	once := w.pruned(ready("a"))
	again, err := w.kinds["Pods"].transform(once)
	if again != once || err != nil {
		t.Errorf("got %+v, %v, want %+v", again, err, once)
	}
}

func TestAnInformerKnowsWhatIsKeptByItsNameAndVersion(t *testing.T) {
	w := newWorld(t)
	cluster := node("one")
	cluster.ResourceVersion = "7"
	namespaced := ready("a", func(p *corev1.Pod) { p.ResourceVersion = "8" })
	for key, o := range map[string]any{"one": w.pruned(cluster), "shop/a": w.pruned(namespaced)} {
		got, err := cache.MetaNamespaceKeyFunc(o)
		if got != key || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, key)
		}
	}
	check(t, "version", w.pruned(namespaced).(*keptPod).GetObjectMeta().GetResourceVersion(), "8")
}
