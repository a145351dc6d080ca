package watcher

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// markedBy gives a node the annotation of a maintenance.
func markedBy(t *testing.T, m schemas.CordonMark) func(*corev1.Node) {
	t.Helper()
	text := expect.ToJSON(t, m)
	return func(n *corev1.Node) { n.Annotations = map[string]string{schemas.AnnotationMaintenance: string(text)} }
}

func TestExcludedNode(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pods := []*corev1.Pod{placed("a", "n1")}
	others := []*corev1.Node{named("n2"), named("n3")}
	leaving := append([]*corev1.Node{named("n1", fixtures.TaintedBy("karpenter.sh/disrupted"))}, others...)

	nodes := view(t, taintPolicy(""), leaving, pods)
	got, err := nodes.scopes.Build(key("n1"), []schemas.Cause{{}}, now)
	if scope, _ := got.Scope.(schemas.NodeScope); err != nil || scope.Pods == nil || len(scope.Pods) > 0 {
		t.Errorf("the scope of the node: got %+v, %v, want no pods", got.Scope, err)
	}

	single := view(t, agePolicy(), leaving, pods)
	ev := scope.Key{Profile: "p", Strategy: "s", Kind: schemas.PodKind, Name: "web/a"}
	got, err = single.scopes.Build(ev, []schemas.Cause{{}}, now)
	want := []schemas.Protection{{
		Rule: policy.NodeNotUsableRule, Detail: "node n1 is excluded: its taint karpenter.sh/disrupted is set",
	}}
	if scope, _ := got.Scope.(schemas.PodScope); err != nil || !reflect.DeepEqual(scope.Pod.Protected, want) {
		t.Errorf("the scope of the pod: got %+v, %v, want it protected by %+v", got.Scope, err, want)
	}

	alone := view(t, taintPolicy(""), []*corev1.Node{named("n1"), named("n2", fixtures.TaintedBy("karpenter.sh/disrupted"))}, pods)
	if alone.scopes.Unmovable(named("n1")) == "" {
		t.Error("a node that is going away counts as one that could take a pod")
	}
}

// A cordoned node has a taint, but the maintenance and its drain rules decide how its pods move. The annotation is set
// together with the cordon; the conditions of the node are set later, or never.
func TestNodeUnderMaintenance(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	marked := markedBy(t, schemas.CordonMark{Name: "kernel", UID: "m1", At: now})
	n1 := named("n1", marked, func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
	})
	s := view(t, taintPolicy(""), []*corev1.Node{n1, named("n2"), named("n3")}, []*corev1.Pod{placed("a", "n1")})
	got, err := s.scopes.Build(key("n1"), []schemas.Cause{{}}, now)
	if scope, _ := got.Scope.(schemas.NodeScope); err != nil || scope.Pods == nil || len(scope.Pods) > 0 {
		t.Errorf("the scope of the node: got %+v, %v, want no pods", got.Scope, err)
	}
	if got, want := s.policy.Unusable(n1), "node n1 is excluded: maintenance kernel has cordoned it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, c := range []struct {
		name     string
		old, new *corev1.Node
		want     bool
	}{
		{"the mark comes", named("n1"), n1, true},
		{"the mark goes", n1, named("n1"), true},
		{"the mark stays", n1, n1, false},
	} {
		if got := s.policy.ExclusionChanged(c.old, c.new); got != c.want {
			t.Errorf("%s: evaluated %v, want %v", c.name, got, c.want)
		}
	}
}

func TestScopeOmitsIgnoredTaints(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	n1 := named("n1", fixtures.TaintedBy("readiness.k8s.io/network"))
	s := view(t, taintPolicy(""), []*corev1.Node{n1, named("n2")}, nil)
	got, err := s.scopes.Build(key("n1"), []schemas.Cause{{}}, now)
	scope, _ := got.Scope.(schemas.NodeScope)
	want := []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	if err != nil || !reflect.DeepEqual(scope.Node.Spec.Taints, want) {
		t.Errorf("got %+v, %v, want %+v", scope.Node.Spec.Taints, err, want)
	}
	if len(n1.Spec.Taints) != 2 {
		t.Errorf("the node in the cache was changed: %+v", n1.Spec.Taints)
	}
}

func TestSignalChangeEvaluation(t *testing.T) {
	soft := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "DeletionCandidateOfClusterAutoscaler", Effect: corev1.TaintEffectPreferNoSchedule}}
	}
	for _, c := range []struct {
		name     string
		old, new *corev1.Node
		want     bool
	}{
		{"it comes", named("n1"), named("n1", fixtures.RestartedByKured), true},
		{"it goes", named("n1", fixtures.RestartedByKured), named("n1"), true},
		{"it goes, and the scheduler still avoids the node", named("n1", soft, fixtures.RestartedByKured), named("n1", soft), true},
		{"it stays", named("n1", fixtures.RestartedByKured), named("n1", fixtures.RestartedByKured), false},
		{"there is none", named("n1"), named("n1"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := view(t, taintPolicy(""), []*corev1.Node{c.old, named("n2"), named("n3")}, nil)
			w := testWatcher(s, &collected{})
			l := testSession(t.Context(), w)
			w.nodeChanged(c.old, c.new, false)
			if got := l.queue.items[key("n1")] != nil; got != c.want || l.queue.len() > 1 {
				t.Errorf("n1 pending: %v, want %v; in all %d", got, c.want, l.queue.len())
			}
		})
	}
}

func TestExclusionExpires(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := placed("a", "n1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "10m"}
		p.Status.StartTime = &metav1.Time{Time: now.Add(-time.Minute)}
	})
	s := view(t, taintPolicy(""), []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{p})
	got, err := s.scopes.Build(key("n1"), []schemas.Cause{{}}, now)
	if want := now.Add(9 * time.Minute); err != nil || !got.Again.Equal(want) {
		t.Errorf("again at %v, %v, want %v", got.Again, err, want)
	}
	if scope, _ := got.Scope.(schemas.NodeScope); len(scope.Pods) != 1 || scope.Pods[0].Protected[0].Rule != policy.SignalRule {
		t.Errorf("got %+v, want the pod protected by %s", got.Scope, policy.SignalRule)
	}
}
