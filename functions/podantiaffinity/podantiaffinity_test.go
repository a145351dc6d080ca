package podantiaffinity

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

type (
	pods    = []schemas.ContendingPod
	list    = []schemas.Intent
	options = []test.PodOption
)

// pod returns a pod that repels the pods of those names.
func pod(name string, options options, repels ...string) schemas.ContendingPod {
	p := schemas.ContendingPod{ScopedPod: test.Pod(name, options...)}
	for _, other := range repels {
		p.Repels = append(p.Repels, types.UID("uid-"+other))
	}
	return p
}

func scope(pods ...schemas.ContendingPod) schemas.DomainScope {
	return schemas.DomainScope{
		ScopeHead:   schemas.ScopeHead{Kind: schemas.DomainKind, Key: "kubernetes.io/hostname=node-1", Now: time.Unix(1000, 0)},
		TopologyKey: corev1.LabelHostname, Pods: pods,
	}
}

// leaves returns the intent to move the pod web/NAME because of a pod, NAMESPACE/NAME. It ends that many conflicts.
func leaves(name, other string, ends int64) schemas.Intent {
	intent := test.Intent(name, "node-1", "its anti-affinity forbids it beside "+other+" (topology kubernetes.io/hostname)")
	intent.Weight = ends
	return intent
}

func TestAntiAffinityViolations(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	in := func(include, exclude []string) Args {
		return Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: include, Exclude: exclude}}}
	}
	tier := func(tier string) options { return options{test.Labelled("tier", tier)} }
	protected := options{test.Protected(policy.PodsWithPVC)}
	a, b := pod("a", nil, "b"), pod("b", nil, "a")
	for _, c := range []struct {
		name string
		args Args
		pods pods
		want list
	}{
		{"no pods", Args{}, nil, nil},
		{"pods without anti-affinity", Args{}, pods{pod("a", nil), pod("b", nil)}, nil},
		{"the pod with the term leaves, not the other", Args{}, pods{a, pod("b", nil)}, list{leaves("a", "web/b", 1)}},
		{"whichever comes first", Args{}, pods{pod("a", nil), b}, list{leaves("b", "web/a", 1)}},
		{"of two that keep each other away, one leaves", Args{}, pods{a, b}, list{leaves("a", "web/b", 1)}},
		{"of three, two leave", Args{}, pods{pod("a", nil, "b", "c"), pod("b", nil, "a", "c"), pod("c", nil, "a", "b")},
			list{leaves("a", "web/b", 2), leaves("b", "web/c", 1)}},
		{"a chain is cut where it has to be", Args{}, pods{pod("a", nil, "b"), pod("b", nil, "c"), pod("c", nil, "d"), pod("d", nil)},
			list{leaves("c", "web/d", 2), leaves("a", "web/b", 1)}},
		{"a pod stays after its only reason left", Args{}, pods{pod("a", nil, "d"), pod("b", nil, "a"), pod("c", nil, "a"), pod("d", nil)},
			list{leaves("a", "web/d", 3)}},
		{"a pod that one of its reasons has left has the other", Args{}, pods{pod("a", nil, "c"), pod("b", nil, "a", "c"), pod("c", nil)},
			list{leaves("a", "web/c", 2), leaves("b", "web/c", 1)}},
		{"the first of its reasons is named", Args{}, pods{pod("a", nil, "b", "c"), pod("b", nil), pod("c", nil)}, list{leaves("a", "web/b", 2)}},
		{"a pod of another namespace is named with it", Args{}, pods{pod("b", options{test.In("db")}), pod("a", nil, "b")}, list{leaves("a", "db/b", 1)}},
		{"pods of one name in two namespaces", Args{}, pods{
			{ScopedPod: test.Pod("a", test.In("db"), func(p *schemas.ScopedPod) { p.Pod.UID = "uid-b" })}, a}, list{leaves("a", "db/a", 1)}},
		{"pods of several nodes in one domain", Args{}, pods{pod("a", options{test.On("node-2")}, "b"), pod("b", nil, "a")},
			list{func() schemas.Intent { i := leaves("a", "web/b", 1); i.Node = "node-2"; return i }()}},

		{"a protected pod stays, and the other one has to leave", Args{}, pods{pod("a", protected, "b"), b}, list{leaves("b", "web/a", 1)}},
		{"two protected pods stay", Args{}, pods{pod("a", protected, "b"), pod("b", protected, "a")}, nil},
		{"a protected pod without a term is a reason", Args{}, pods{a, pod("b", protected)}, list{leaves("a", "web/b", 1)}},
		{"a pod that is being deleted is no reason any more", Args{}, pods{a, pod("b", options{test.Terminating()}, "a")}, nil},
		{"three leave rather than four", Args{}, pods{
			pod("a", nil, "d", "e", "f"), pod("b", nil, "d", "e", "f"), pod("c", nil, "d", "e", "f"), pod("d", nil, "e", "f"),
			pod("e", nil, "d", "f"), pod("f", nil, "d", "e"),
		}, list{leaves("d", "web/e", 5), leaves("e", "web/f", 4), leaves("f", "web/d", 3)}},
		{"a pod stays if its forbidden neighbor leaves later", Args{}, pods{pod("a", nil, "b"), pod("b", nil, "c"), pod("c", nil)},
			list{leaves("b", "web/c", 2)}},
		{"of equally cheap pods, the one that a protected pod repels too", Args{},
			pods{pod("a", nil, "b"), pod("b", nil, "a"), pod("c", protected, "b")}, list{leaves("b", "web/a", 2)}},
		{"a pod that costs little before a pod with many conflicts", Args{}, pods{
			pod("a", nil, "x"), pod("b", options{test.Priority(1)}, "x", "y"), pod("x", protected), pod("y", protected),
		}, list{leaves("a", "web/x", 1), leaves("b", "web/x", 2)}},
		{"a pod of a high priority instead of two of a low one", Args{},
			pods{pod("a", options{test.Priority(1)}, "b", "c"), pod("b", nil, "a"), pod("c", nil, "a")}, list{leaves("a", "web/b", 2)}},
		{"a pod that is stuck is a reason again", Args{}, pods{a, pod("b", options{test.Stuck()}, "a")}, list{leaves("a", "web/b", 1)}},
		{"a pod that is stuck is left alone", Args{}, pods{pod("a", options{test.Stuck()}, "b"), pod("b", nil)}, nil},
		{"a pod that is being deleted is left alone", Args{}, pods{pod("a", options{test.Terminating()}, "b"), pod("b", nil)}, nil},
		{"a pending pod leaves too", Args{}, pods{pod("a", options{test.Phase(corev1.PodPending)}, "b"), pod("b", nil)}, list{leaves("a", "web/b", 1)}},
		{"a pod that has ended is left alone", Args{}, pods{pod("a", options{test.Phase(corev1.PodFailed)}, "b"), pod("b", nil)}, nil},

		{"both namespaces are included", in([]string{"web", "db"}, nil), pods{pod("b", options{test.In("db")}), a}, list{leaves("a", "db/b", 1)}},
		{"the pod is in a namespace that is not included", in([]string{"db"}, nil), pods{pod("b", options{test.In("db")}), a}, nil},
		{"the other pod is in a namespace that is not included", in([]string{"web"}, nil), pods{pod("b", options{test.In("db")}), a}, nil},
		{"the pod is in a namespace that is excluded", in(nil, []string{"web"}), pods{pod("b", options{test.In("db")}), a}, nil},
		{"the other pod is in a namespace that is excluded", in(nil, []string{"db"}), pods{pod("b", options{test.In("db")}), a}, nil},
		{"both pods are selected", Args{Selection: candidate.Selection{LabelSelector: web}}, pods{pod("a", tier("web"), "b"), pod("b", tier("web"))}, list{leaves("a", "web/b", 1)}},
		{"the pod is not selected", Args{Selection: candidate.Selection{LabelSelector: web}}, pods{pod("a", tier("db"), "b"), pod("b", tier("web"))}, nil},
		{"the other pod is not selected", Args{Selection: candidate.Selection{LabelSelector: web}}, pods{pod("a", tier("web"), "b"), pod("b", tier("db"))}, nil},
		{"an empty selector selects all", Args{Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{}}}, pods{a, b}, list{leaves("a", "web/b", 1)}},

		{"the lower priority leaves, none before all", Args{},
			pods{pod("a", options{test.Priority(1)}, "b", "c"), pod("b", options{test.Priority(0)}, "a", "c"), pod("c", nil, "a", "b")},
			list{leaves("c", "web/a", 2), leaves("b", "web/a", 1)}},
		{"then the lower quality of service", Args{},
			pods{pod("a", nil, "b"), pod("b", options{test.Quality(corev1.PodQOSBestEffort)}, "a")}, list{leaves("b", "web/a", 1)}},
		{"then the pod that does not mind", Args{}, pods{pod("a", options{test.ReluctantToMove()}, "b"), b}, list{leaves("b", "web/a", 1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Decides(t, c.args, Args{}, scope(c.pods...), c.want)
		})
	}
}

func TestInvalidArguments(t *testing.T) {
	test.Refused(t, Args{}.Validate())
	test.Refused(t, Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web"}}, LabelSelector: &metav1.LabelSelector{}}}.Validate())
	test.Refused(t, Args{Selection: test.InvalidSelection()}.Validate(), test.SelectionMistakes()...)
}

// atRandom returns a random domain where many pods repel others.
func atRandom(r *rand.Rand) schemas.DomainScope {
	n := r.IntN(12)
	var all pods
	for i := range n {
		p := pod(fmt.Sprintf("p%02d", i), options{test.Labelled("tier", []string{"web", "db"}[r.IntN(2)])})
		for j := range n {
			if j != i && r.IntN(4) == 0 {
				p.Repels = append(p.Repels, types.UID(fmt.Sprintf("uid-p%02d", j)))
			}
		}
		for _, change := range []test.PodOption{test.Priority(1), test.Quality(corev1.PodQOSBestEffort), test.ReluctantToMove(),
			test.Protected(policy.PodsWithPVC), test.Terminating()} {
			if r.IntN(5) == 0 {
				change(&p.ScopedPod)
			}
		}
		all = append(all, p)
	}
	return scope(all...)
}

func TestMinimalSufficientMoves(t *testing.T) {
	r := randtest.New(t)
	moved, spared := 0, 0
	for range 2000 {
		s := atRandom(r)
		args := Args{}
		if r.IntN(2) == 0 {
			args.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
		}
		before := schemas.DomainScope{ScopeHead: s.ScopeHead, TopologyKey: s.TopologyKey, Pods: slices.Clone(s.Pods)}
		got := args.Decide(s)
		if !reflect.DeepEqual(s, before) {
			t.Fatal("the scope was changed")
		}
		other := s
		other.Pods = slices.Clone(s.Pods)
		r.Shuffle(len(other.Pods), func(i, j int) { other.Pods[i], other.Pods[j] = other.Pods[j], other.Pods[i] })
		if again := args.Decide(other); !slices.Equal(again, got) {
			t.Fatalf("in another order:\n%+v\n%+v", again, got)
		}
		counts := func(p *schemas.ContendingPod) bool {
			return p.Pod.DeletionTimestamp == nil && (args.LabelSelector == nil || p.Pod.Labels["tier"] == "web")
		}
		beside := func(p *schemas.ContendingPod, gone map[types.UID]bool) bool {
			return slices.ContainsFunc(s.Pods, func(o schemas.ContendingPod) bool {
				return counts(&o) && !gone[o.Pod.UID] && slices.Contains(p.Repels, o.Pod.UID)
			})
		}
		gone := map[types.UID]bool{}
		for _, intent := range got {
			gone[intent.Pod.UID] = true
		}
		for i, intent := range got {
			p := &s.Pods[slices.IndexFunc(s.Pods, func(p schemas.ContendingPod) bool { return p.Pod.UID == intent.Pod.UID })]
			delete(gone, intent.Pod.UID)
			needed := slices.ContainsFunc(s.Pods, func(o schemas.ContendingPod) bool {
				return counts(&o) && len(o.Protected) == 0 && !gone[o.Pod.UID] && beside(&o, gone)
			})
			if !counts(p) || len(p.Protected) > 0 || !needed || !beside(p, nil) {
				t.Fatalf("%s moves without need: scope %+v", intent.Pod, s)
			}
			gone[intent.Pod.UID] = true
			if i > 0 {
				last := slices.IndexFunc(s.Pods, func(p schemas.ContendingPod) bool { return p.Pod.UID == got[i-1].Pod.UID })
				if order := cmp.Compare(policy.MoveCost(&s.Pods[last].Pod), policy.MoveCost(&p.Pod)); order > 0 || order == 0 && got[i-1].Weight < intent.Weight {
					t.Fatalf("%s moves before %s: scope %+v", got[i-1].Pod, intent.Pod, s)
				}
			}
		}
		for i := range s.Pods {
			p := &s.Pods[i]
			if counts(p) && len(p.Protected) == 0 && !gone[p.Pod.UID] {
				spared++
				if beside(p, gone) {
					t.Fatalf("%s stays beside a pod that it keeps away: scope %+v", p.Pod.Name, s)
				}
			}
		}
		moved += len(got)
	}
	if moved < 1000 || spared < 1000 {
		t.Errorf("%d pods moved, %d stayed: the test tests too little", moved, spared)
	}
}

// TestFewestAndCheapest compares the moves with every set of movable pods that repel another.
func TestFewestAndCheapest(t *testing.T) {
	r := randtest.New(t)
	moved := 0
	for range 300 {
		s := atRandom(r)
		var movable []int // the dearest first
		for i := range s.Pods {
			if candidate.Movable(&s.Pods[i].ScopedPod) && slices.ContainsFunc(s.Pods, func(o schemas.ContendingPod) bool {
				return o.Pod.DeletionTimestamp == nil && slices.Contains(s.Pods[i].Repels, o.Pod.UID)
			}) {
				movable = append(movable, i)
			}
		}
		slices.SortFunc(movable, func(i, j int) int {
			return cmp.Compare(policy.MoveCost(&s.Pods[j].Pod), policy.MoveCost(&s.Pods[i].Pod))
		})
		stays := func(leave map[types.UID]bool, p *schemas.ContendingPod) bool {
			return p.Pod.DeletionTimestamp == nil && !leave[p.Pod.UID]
		}
		ends := func(leave map[types.UID]bool) bool {
			return !slices.ContainsFunc(movable, func(i int) bool {
				return stays(leave, &s.Pods[i]) && slices.ContainsFunc(s.Pods, func(o schemas.ContendingPod) bool {
					return stays(leave, &o) && slices.Contains(s.Pods[i].Repels, o.Pod.UID)
				})
			})
		}
		costs := func(leave map[types.UID]bool) (all []int64) {
			for _, i := range movable {
				if leave[s.Pods[i].Pod.UID] {
					all = append(all, policy.MoveCost(&s.Pods[i].Pod))
				}
			}
			return all
		}
		got := map[types.UID]bool{}
		for _, intent := range (Args{}).Decide(s) {
			got[intent.Pod.UID] = true
		}
		moved += len(got)
		for set := range 1 << len(movable) {
			leave := map[types.UID]bool{}
			for bit, i := range movable {
				if set&(1<<bit) != 0 {
					leave[s.Pods[i].Pod.UID] = true
				}
			}
			if len(leave) <= len(got) && ends(leave) && (len(leave) < len(got) || slices.Compare(costs(leave), costs(got)) < 0) {
				t.Fatalf("%v leave, and %v would do: scope %+v", got, leave, s)
			}
		}
	}
	if moved < 300 {
		t.Errorf("%d pods moved: the test tests too little", moved)
	}
}

func BenchmarkDecide(b *testing.B) {
	// As many pods as a kubelet allows by default. All of them repel each other.
	var all pods
	for i := range 110 {
		p := pod(fmt.Sprintf("p%03d", i), options{test.Labelled("tier", "web"), test.Priority(int32(i * 37 % 5))})
		for j := range 110 {
			if j != i {
				p.Repels = append(p.Repels, types.UID(fmt.Sprintf("uid-p%03d", j)))
			}
		}
		all = append(all, p)
	}
	s := scope(all...)
	args := Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}}
	b.ReportAllocs()
	for b.Loop() {
		if got := args.Decide(s); len(got) != 109 {
			b.Fatalf("got %d intents, want 109", len(got))
		}
	}
}
