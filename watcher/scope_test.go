package watcher

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// view returns a cluster with these objects, as the watcher sees it.
func view(t *testing.T, p policy.Policy, nodes []*corev1.Node, pods []*corev1.Pod) fixture {
	t.Helper()
	var objects []metav1.Object
	for _, n := range nodes {
		objects = append(objects, n)
	}
	for _, p := range pods {
		objects = append(objects, p)
	}
	return newFixture(t, compiled(t, p), objects...)
}

// taintPolicy enables one strategy that evaluates nodes.
func taintPolicy(selector string) policy.Policy {
	return policy.Policy{NodeSelector: selector, Profiles: []policy.Profile{{
		Name: "p",
		Strategies: []policy.Enabled{{
			Strategy: policy.Strategy{
				Name: "s", Scope: schemas.NodeKind, NewArgs: func() policy.Args { return &anything{} },
				Wakes: []schemas.DeltaKind{schemas.NodeTaints, schemas.NodeRemoved, schemas.PodScheduled},
			},
			Args: json.RawMessage(`{"a":1}`),
		}},
	}}}
}

// anything is arguments of any shape.
type anything map[string]any

func (*anything) Validate() error { return nil }

func compiled(t testing.TB, p policy.Policy) *scope.CompiledPolicy {
	t.Helper()
	pl, err := scope.Compile(p)
	expect.Must(t, err)
	return pl
}

func named(name string, change ...func(*corev1.Node)) *corev1.Node {
	return node(append(change, func(n *corev1.Node) { n.Name = name })...)
}

func placed(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	return pod(append(change, func(p *corev1.Pod) {
		p.Name, p.Spec.NodeName = name, node
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "rs"}}
	})...)
}

func TestNodeScope(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	causes := []schemas.Cause{{Kind: schemas.CauseResync, Time: now.Add(-time.Second)}}
	head := schemas.ScopeHead{
		Kind: schemas.NodeKind, Key: "n1", Profile: "p", Strategy: "s", Args: json.RawMessage(`{"a":1}`),
		Now: now, Since: now.Add(-time.Second), Causes: causes,
	}
	critical := int32(policy.SystemCritical)
	n2 := named("n2")
	pods := []*corev1.Pod{
		placed("b", "n1"), placed("a", "n1"), placed("elsewhere", "n2"),
		placed("ended", "n1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		placed("critical", "n1", func(p *corev1.Pod) { p.Spec.Priority = &critical }),
	}
	for _, c := range []struct {
		name     string
		selector string
		nodes    []*corev1.Node
		key      string
		want     schemas.Payload
	}{
		{"has the node's pods that have not ended, by name, with what protects them", "",
			[]*corev1.Node{named("n1"), n2}, "n1",
			schemas.NodeScope{ScopeHead: head, Node: *named("n1"), Pods: []schemas.ScopedPod{
				{Pod: *pods[1]}, {Pod: *pods[0]}, {Pod: *pods[4], Protected: policy.Evictor{}.Protects(pods[4], now, nil)},
			}}},
		{"has no pods when the policy does not look at the node", "zone=b",
			[]*corev1.Node{named("n1"), n2}, "n1",
			schemas.NodeScope{ScopeHead: head, Node: *named("n1"), Pods: []schemas.ScopedPod{}}},
		{"has no pods when the node is not ready", "",
			[]*corev1.Node{named("n1", conditioned(corev1.ConditionFalse)), n2, named("n3")}, "n1",
			schemas.NodeScope{ScopeHead: head, Node: *named("n1", conditioned(corev1.ConditionFalse)), Pods: []schemas.ScopedPod{}}},
		{"has no pods when there is no second node to move them to", "",
			[]*corev1.Node{named("n1"), named("n2", conditioned(corev1.ConditionFalse))}, "n1",
			schemas.NodeScope{ScopeHead: head, Node: *named("n1"), Pods: []schemas.ScopedPod{}}},
		{"is none when the node is gone", "", []*corev1.Node{n2}, "n1", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := view(t, taintPolicy(c.selector), c.nodes, pods)
			got, err := s.scopes.Build(key(c.key), causes, now)
			if err != nil || !reflect.DeepEqual(got.Scope, c.want) {
				t.Errorf("error %v\ngot  %+v\nwant %+v", err, got.Scope, c.want)
			}
		})
	}
	t.Run("is none when the policy does not have the strategy", func(t *testing.T) {
		s := view(t, policy.Policy{}, []*corev1.Node{named("n1"), n2}, pods)
		if got, err := s.scopes.Build(key("n1"), causes, now); !reflect.DeepEqual(got, scope.Result{}) || err != nil {
			t.Errorf("got %+v, error %v, want none", got, err)
		}
	})
}

func TestDeltaSubscription(t *testing.T) {
	needed, all := compiled(t, taintPolicy("")), compiled(t, policy.Policy{Deltas: policy.DeltasAll})
	for _, c := range []struct {
		kind              schemas.DeltaKind
		object            string
		whenNeeded, ifAll bool
	}{
		{schemas.NodeLabels, "Node", true, true},
		{schemas.PodScheduled, "Pod", true, true},
		{schemas.PodLabels, "Pod", false, true},
	} {
		d := schemas.Delta{Kind: c.kind, Object: schemas.ObjectRef{Kind: c.object}}
		if got := needed.Publishes(d); got != c.whenNeeded {
			t.Errorf("%s: published %v, want %v", c.kind, got, c.whenNeeded)
		}
		if got := all.Publishes(d); got != c.ifAll {
			t.Errorf("%s with a subscription to all: published %v, want %v", c.kind, got, c.ifAll)
		}
	}
}

func TestMinimumOfUsableNodes(t *testing.T) {
	b := newFixture(t, compiled(t, policy.Policy{})).scopes
	ready, not := named("n2", conditioned(corev1.ConditionTrue)), named("n2", conditioned(corev1.ConditionFalse))
	for i, c := range []struct {
		old, new        *corev1.Node
		crossed, tooFew bool
	}{
		{nil, named("n1"), false, true},
		{nil, not, false, true},
		{not, ready, true, false},
		{ready, ready, false, false},
		{ready, not, true, true},
		{not, nil, false, true},
	} {
		if _, crossed := b.NodeChanged(c.old, c.new); crossed != c.crossed || b.Unmovable(named("n1")) == "" == c.tooFew {
			t.Errorf("change %d: minimum crossed %v, why not %q; want %v, too few %v", i, crossed, b.Unmovable(named("n1")), c.crossed, c.tooFew)
		}
	}
}

func TestPodScope(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	causes := []schemas.Cause{{Kind: schemas.CauseDue, Time: now.Add(time.Hour)}, {Kind: schemas.CauseResync, Time: now.Add(-time.Second)}}
	head := schemas.ScopeHead{
		Kind: schemas.PodKind, Key: "web/a", Profile: "p", Strategy: "s", Args: json.RawMessage(`{"a":1}`),
		Now: now, Since: now.Add(-time.Second), Causes: causes,
	}
	young := placed("a", "n1", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)) })
	ended := placed("a", "n1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	ready, not := named("n1"), named("n1", conditioned(corev1.ConditionFalse))
	for _, c := range []struct {
		name  string
		nodes []*corev1.Node
		pod   *corev1.Pod
		want  scope.Result
	}{
		{"is evaluated again when the pod is due", []*corev1.Node{ready, named("n2")}, young, scope.Result{
			Scope: schemas.PodScope{ScopeHead: head, Pod: schemas.ScopedPod{Pod: *young}}, Again: now.Add(59 * time.Minute), Empty: true,
		}},
		{"has pods that have ended too", []*corev1.Node{ready, named("n2")}, ended, scope.Result{
			Scope: schemas.PodScope{ScopeHead: head, Pod: schemas.ScopedPod{Pod: *ended}}, Empty: true,
		}},
		{"protects a pod on a node that is not ready", []*corev1.Node{not, named("n2"), named("n3")}, ended, scope.Result{
			Scope: schemas.PodScope{ScopeHead: head, Pod: schemas.ScopedPod{
				Pod: *ended, Protected: []schemas.Protection{{Rule: policy.NodeNotUsableRule, Detail: "node n1 is not ready"}},
			}}, Empty: true,
		}},
		{"is none when the pod is gone", []*corev1.Node{ready, named("n2")}, placed("b", "n1"), scope.Result{}},
		{"is none when the node is gone", []*corev1.Node{named("n2"), named("n3")}, ended, scope.Result{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := view(t, agePolicy(), c.nodes, []*corev1.Pod{c.pod})
			got, err := s.scopes.Build(scope.Key{Profile: "p", Strategy: "s", Kind: schemas.PodKind, Name: "web/a"}, causes, now)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, c.want)
			}
		})
	}
}

func TestPodDueEvaluation(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	evictor, err := policy.NewEvictor(policy.EvictorArgs{MinPodAge: metav1.Duration{Duration: time.Hour}})
	expect.Must(t, err)
	started := func(ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: now.Add(-ago)} }
	}
	p := taintPolicy("")
	p.Profiles[0].Evictor = evictor
	s := view(t, p, []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{
		placed("old", "n1", started(2*time.Hour)), placed("young", "n1", started(10*time.Minute)), placed("younger", "n1", started(time.Minute)),
	})
	got, err := s.scopes.Build(key("n1"), []schemas.Cause{{Time: now}}, now)
	if want := now.Add(50 * time.Minute); err != nil || !got.Again.Equal(want) {
		t.Errorf("again at %v, error %v, want %v", got.Again, err, want)
	}
}
