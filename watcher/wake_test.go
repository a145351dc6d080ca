package watcher

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// age are the arguments of a strategy that moves pods one hour after their creation, and never moves pods without a
// creation time.
type age struct{ anything }

func (age) Due(p *corev1.Pod) (time.Time, bool) {
	return p.CreationTimestamp.Add(time.Hour), !p.CreationTimestamp.IsZero()
}

// agePolicy enables one strategy that evaluates pods.
func agePolicy() policy.Policy {
	p := taintPolicy("")
	s := &p.Profiles[0].Strategies[0].Strategy
	s.Scope, s.NewArgs = schemas.PodKind, func() policy.Args { return &age{} }
	s.Facts = []policy.Fact{policy.FactDue}
	s.Wakes = []schemas.DeltaKind{schemas.NodeReady, schemas.PodScheduled, schemas.PodLabels}
	return p
}

func TestObserveEnqueues(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	created := func(ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-ago)) }
	}
	pods := []*corev1.Pod{
		placed("old", "n1", created(2*time.Hour)), placed("young", "n1", created(10*time.Minute)), placed("never", "n1"),
		placed("elsewhere", "n2", created(2*time.Hour)),
	}
	onNode := func(kind schemas.DeltaKind) schemas.Delta {
		return schemas.Delta{Kind: kind, Object: schemas.ObjectRef{Kind: "Node", Name: "n1"}}
	}
	onPod := func(kind schemas.DeltaKind, name, node string) schemas.Delta {
		return schemas.Delta{Kind: kind, Node: node, Object: *refTo("Pod", placed(name, node))}
	}
	at, due := now.Add(time.Second), now.Add(50*time.Minute)
	for _, c := range []struct {
		name   string
		policy policy.Policy
		delta  schemas.Delta
		want   map[string]time.Time
	}{
		{"a node wakes its own scope", taintPolicy(""), onNode(schemas.NodeTaints), map[string]time.Time{"n1": at}},
		{"a pod wakes the scope of its node", taintPolicy(""), onPod(schemas.PodScheduled, "old", "n2"), map[string]time.Time{"n2": at}},
		{"a pod without a node wakes none", taintPolicy(""), onPod(schemas.PodScheduled, "old", ""), map[string]time.Time{}},
		{"a delta that no strategy is woken by wakes none", taintPolicy(""), onNode(schemas.NodeLabels), map[string]time.Time{}},
		{"a node that is gone wakes none", taintPolicy(""), onNode(schemas.NodeRemoved), map[string]time.Time{}},
		{"a node enqueues the scopes of its pods that become due, at that time", agePolicy(),
			onNode(schemas.NodeReady), map[string]time.Time{"web/old": at, "web/young": due}},
		{"a pod that was bound wakes its scope when it is due", agePolicy(), onPod(schemas.PodScheduled, "young", "n1"), map[string]time.Time{"web/young": due}},
		{"a pod that was bound and is never due wakes none", agePolicy(), onPod(schemas.PodScheduled, "never", "n1"), map[string]time.Time{}},
		{"a pod that changed wakes its scope at once, since an answer may have to be withdrawn", agePolicy(),
			onPod(schemas.PodLabels, "never", "n1"), map[string]time.Time{"web/never": at}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := view(t, c.policy, []*corev1.Node{named("n1"), named("n2")}, pods)
			w := testWatcher(s, &collected{})
			w.now, w.config.Debounce = func() time.Time { return now }, at.Sub(now)
			l := testSession(t.Context(), w)
			l.Observe([]schemas.Delta{c.delta}, nil, c.delta.Object)
			expect.Equal(t, "due times", dueTimes(l), c.want)
		})
	}
}

func TestQueueAfterPodDeletion(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	aged := func(uid string, ago time.Duration) *corev1.Pod {
		return placed("young", "n1", func(p *corev1.Pod) {
			p.UID, p.CreationTimestamp = types.UID(uid), metav1.NewTime(now.Add(-ago))
		})
	}
	old := placed("old", "n1", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour)) })
	young, newer := aged("first", 10*time.Minute), aged("second", time.Minute)
	labelled := young.DeepCopy()
	labelled.Labels = map[string]string{"app": "other"}
	at, due := now.Add(time.Second), now.Add(50*time.Minute)
	for _, c := range []struct {
		name    string
		changes [][2]*corev1.Pod // each from the first to the second
		want    map[string]time.Time
	}{
		{"another_pod_is_gone", [][2]*corev1.Pod{{placed("third", "n1"), nil}}, map[string]time.Time{"web/old": at, "web/young": due}},
		{"a_pod_that_is_due_later", [][2]*corev1.Pod{{young, nil}}, map[string]time.Time{"web/old": at}},
		{"a_pod_that_is_due_now", [][2]*corev1.Pod{{old, nil}}, map[string]time.Time{"web/old": at, "web/young": due}},
		{"a_pod_that_changed_just_before", [][2]*corev1.Pod{{young, labelled}, {labelled, nil}},
			map[string]time.Time{"web/old": at, "web/young": at}},
		{"a_newer_pod_has_its_name", [][2]*corev1.Pod{{young, newer}}, map[string]time.Time{"web/old": at, "web/young": now.Add(59 * time.Minute)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := view(t, agePolicy(), []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{old, young})
			w := testWatcher(s, &collected{})
			w.now, w.config.Debounce = func() time.Time { return now }, at.Sub(now)
			l := testSession(t.Context(), w)
			l.evaluateAll()
			for _, change := range c.changes {
				if change[1] != nil {
					put(t, s.cluster, change[1])
				}
				w.podChanged(change[0], change[1], false)
			}
			expect.Equal(t, "due times", dueTimes(l), c.want)
		})
	}
}

// dueTimes returns when the keys in the queue of a session are due, by their names.
func dueTimes(s *session) map[string]time.Time {
	due := map[string]time.Time{}
	for key, item := range s.queue.items {
		due[key.Name] = item.due
	}
	return due
}

// The control plane adds the taint of a cordon after the cordon, and removes it after the uncordon.
func TestScopesAfterCordon(t *testing.T) {
	const name = "RemovePodsViolatingNodeTaints"
	all := functions.All()
	strategy := all[slices.IndexFunc(all, func(f functions.Function) bool { return f.Strategy.Name == name })].Strategy
	n1 := func(cordoned bool, taints ...corev1.Taint) *corev1.Node {
		return named("n1", alone, func(n *corev1.Node) { n.Spec.Unschedulable, n.Spec.Taints = cordoned, taints })
	}
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	synctest.Test(t, func(t *testing.T) {
		leadingOver(t, with("", strategy), []metav1.Object{n1(false), named("n2"), guest("a", "n1")}, func(d *driven, bus *collected) {
			for _, step := range []struct {
				name string
				node *corev1.Node
				want []string
			}{
				{"cordon without the taint", n1(true), nil},
				{"taint of the cordon", n1(true, taint), []string{name + " n1: node.taints node/n1"}},
				{"uncordon with the taint", n1(false, taint), []string{name + " n1: node.unschedulable node/n1"}},
				{"second cordon with the taint", n1(true, taint), []string{name + " n1: node.unschedulable node/n1"}},
				{"second uncordon with the taint", n1(false, taint), []string{name + " n1: node.unschedulable node/n1"}},
				{"no taint", n1(false), nil},
			} {
				d.set(step.node)
				expect.Equal(t, step.name, scopesOf(t, bus), step.want)
			}
		})
	})
}
