package topologyspread

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

const zoneKey = corev1.LabelTopologyZone

// fits are the domains into which a pod fits.
type fits []string

// pod returns a pod in the namespace web, on a node of its own.
func pod(name string, into fits, options ...test.PodOption) schemas.SpreadPod {
	return schemas.SpreadPod{ScopedPod: test.Pod(name, append([]test.PodOption{test.On("node-" + name)}, options...)...), Fits: into}
}

// pods returns the pods NAME-1 to NAME-n, all with the same options.
func pods(name string, n int, into fits, options ...test.PodOption) []schemas.SpreadPod {
	var all []schemas.SpreadPod
	for i := range n {
		all = append(all, pod(fmt.Sprintf("%s-%d", name, i+1), into, options...))
	}
	return all
}

func selecting() test.PodOption { return test.Selecting("disk", "ssd") }

func preferringNodes(p *schemas.ScopedPod) {
	p.Pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
}

func preferringPods(p *schemas.ScopedPod) {
	p.Pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
}

func protected() test.PodOption { return test.Protected(policy.SystemCriticalPods) }

// full returns an eligible domain with its pods; holding is a domain with only their number.
func full(value string, lists ...[]schemas.SpreadPod) schemas.Domain {
	d := schemas.Domain{Value: value, Eligible: true}
	for _, list := range lists {
		d.Pods = append(d.Pods, list...)
	}
	d.Count = len(d.Pods)
	return d
}

func holding(value string, count int) schemas.Domain {
	return schemas.Domain{Value: value, Eligible: true, Count: count}
}

func ineligible(d schemas.Domain) schemas.Domain {
	d.Eligible = false
	return d
}

// one returns a list of the given pods.
func one(pods ...schemas.SpreadPod) []schemas.SpreadPod { return pods }

// constraint spreads over zones, with DoNotSchedule.
func constraint(maxSkew int32, changes ...func(*corev1.TopologySpreadConstraint)) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{
		MaxSkew: maxSkew, TopologyKey: zoneKey, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}},
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func anyway(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }

func over(key string) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.TopologyKey = key }
}

func atLeast(domains int32) func(*corev1.TopologySpreadConstraint) {
	return func(c *corev1.TopologySpreadConstraint) { c.MinDomains = &domains }
}

func scope(c corev1.TopologySpreadConstraint, domains ...schemas.Domain) schemas.SpreadScope {
	return roomy(schemas.SpreadScope{
		ScopeHead: schemas.ScopeHead{Kind: schemas.SpreadKind, Key: "web/" + c.TopologyKey + "/1", Now: time.Unix(1000, 0)},
		Namespace: "web", Constraint: c, Domains: domains,
	})
}

// roomy returns a scope with room for any number of pods in the domains into which they fit.
func roomy(s schemas.SpreadScope) schemas.SpreadScope {
	known := map[string]int{}
	s.Room = nil
	for i := range s.Domains {
		for j := range s.Domains[i].Pods {
			p := &s.Domains[i].Pods[j]
			id := fmt.Sprint(p.Fits)
			if _, has := known[id]; !has {
				known[id] = len(s.Room)
				into := map[string]bool{}
				for _, value := range p.Fits {
					into[value] = true
				}
				list := make([]int, len(s.Domains))
				for k, d := range s.Domains {
					if into[d.Value] {
						list[k] = 10000
					}
				}
				s.Room = append(s.Room, list)
			}
			p.Room = known[id]
		}
	}
	return s
}

// intents returns the intents to move the pods of these names, in order, for one reason.
func intents(reason string, names ...string) []schemas.Intent {
	var all []schemas.Intent
	for _, name := range names {
		all = append(all, test.Intent(name, "node-"+name, reason))
	}
	return all
}

func apart(from string, has int, low string, count, most int) string {
	return fmt.Sprintf("zone %s has %d pods, %s has %d: more than %d apart (topology.kubernetes.io/zone)", from, has, low, count, most)
}

// decision is a scope under arguments, and the complete answer.
type decision struct {
	name  string
	args  Args
	scope schemas.SpreadScope
	want  []schemas.Intent
}

func check(t *testing.T, decisions []decision) {
	t.Helper()
	for _, c := range decisions {
		t.Run(c.name, func(t *testing.T) {
			test.Decides(t, c.args, Args{}, c.scope, c.want)
		})
	}
}

// anywhere returns the arguments under which room does not matter.
func anywhere() Args {
	no := false
	return Args{TopologyBalanceNodeFit: &no}
}

func TestFewestMoves(t *testing.T) {
	c := fits{"c"}
	check(t, []decision{
		{"no domains", Args{}, scope(constraint(1)), nil},
		{"one domain has nowhere to move to", Args{}, scope(constraint(1), full("a", pods("a", 7, nil))), nil},
		{"domains without pods", Args{}, scope(constraint(1), holding("a", 0), holding("b", 0)), nil},
		{"at the allowed skew", Args{}, scope(constraint(1), full("a", pods("a", 4, c)), holding("c", 3)), nil},
		{"one more than is allowed", Args{}, scope(constraint(1), full("a", pods("a", 5, c)), holding("c", 3)),
			intents(apart("a", 5, "c", 3, 1), "a-1")},
		{"a wider skew allows more", Args{}, scope(constraint(4), full("a", pods("a", 7, c)), holding("c", 3)), nil},
		{"no more move than must", Args{}, scope(constraint(3), full("a", pods("a", 7, c)), holding("c", 3)),
			intents(apart("a", 7, "c", 3, 3), "a-1")},
		{"an odd number may stay one apart", Args{}, scope(constraint(1), full("a", pods("a", 7, c)), holding("c", 0)),
			intents(apart("a", 7, "c", 0, 1), "a-1", "a-2", "a-3")},
		{"two domains that are too empty are filled in turn", Args{},
			scope(constraint(1), full("a", pods("a", 7, fits{"b", "c"})), holding("b", 3), holding("c", 3)),
			intents(apart("a", 7, "b", 3, 1), "a-1", "a-2")},
		{"the fullest gives first, and of two as full the last", Args{},
			scope(constraint(1), full("a", pods("a", 4, fits{"d"})), full("b", pods("b", 5, fits{"d"})),
				full("c", pods("c", 4, fits{"d"})), holding("d", 0)),
			append(append(intents(apart("b", 5, "d", 0, 1), "b-1"), intents(apart("c", 4, "d", 0, 1), "c-1")...),
				intents(apart("b", 5, "d", 0, 1), "b-2")...)},
		{"a full domain without movable pods benefits from the pods of others", Args{},
			scope(constraint(2), full("a", pods("a", 10, nil, protected())), full("b", pods("b", 9, c)), holding("c", 7)),
			intents("zone a keeps 10 pods, c has 7: more than 2 apart (topology.kubernetes.io/zone)", "b-1")},
		{"others do not help in vain", Args{},
			scope(constraint(2), full("a", pods("a", 12, nil, protected())), full("b", pods("b", 9, c)), holding("c", 7)), nil},
		{"a full domain is tried again when the emptiest has become fuller", Args{},
			scope(constraint(1), full("a", pods("a", 5, fits{"b"})), holding("b", 2), holding("c", 1), full("d", pods("d", 4, c))),
			append(intents(apart("d", 4, "c", 1, 1), "d-1"), intents(apart("a", 5, "c", 1, 1), "a-1")...)},
		{"the word is the end of the key", Args{},
			scope(constraint(1, over("kubernetes.io/hostname")), full("n1", pods("a", 2, fits{"n2"})), holding("n2", 0)),
			intents("hostname n1 has 2 pods, n2 has 0: more than 1 apart (kubernetes.io/hostname)", "a-1")},
		{"a key without a prefix", Args{}, scope(constraint(1, over("rack")), full("r1", pods("a", 2, fits{"r2"})), holding("r2", 0)),
			intents("rack r1 has 2 pods, r2 has 0: more than 1 apart (rack)", "a-1")},
	})
}

func TestCountedAndMovablePods(t *testing.T) {
	c := fits{"c"}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	check(t, []decision{
		{"a protected pod counts and stays", Args{},
			scope(constraint(1), full("a", one(pod("a", c, protected()), pod("b", c), pod("d", c))), holding("c", 0)),
			intents(apart("a", 3, "c", 0, 1), "b")},
		{"when only protected pods are left it stays uneven", Args{},
			scope(constraint(1), full("a", pods("a", 6, c, protected()), one(pod("b", c))), holding("c", 0)),
			intents(apart("a", 7, "c", 0, 1), "b")},
		{"a terminating pod is left alone", Args{},
			scope(constraint(1), full("a", one(pod("a", c, test.Deleted()), pod("b", c))), holding("c", 0)),
			intents(apart("a", 2, "c", 0, 1), "b")},
		{"pods that have ended are left alone, pending ones are not", Args{},
			scope(constraint(1), full("a", one(pod("a", c, test.Phase(corev1.PodSucceeded)), pod("b", c, test.Phase(corev1.PodFailed)),
				pod("d", c, test.Phase(corev1.PodPending)))), holding("c", 0)),
			intents(apart("a", 3, "c", 0, 1), "d")},
		{"pods that the selector leaves out count and stay", Args{Selection: candidate.Selection{LabelSelector: web}},
			scope(constraint(1), full("a", one(pod("a", c, test.Labelled("tier", "db")), pod("b", c), pod("d", c, test.Labelled("tier", "web")))),
				holding("c", 0)),
			intents(apart("a", 3, "c", 0, 1), "d")},
		{"an empty selector selects all", Args{Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{}}},
			scope(constraint(1), full("a", pods("a", 2, c)), holding("c", 0)), intents(apart("a", 2, "c", 0, 1), "a-1")},
		{"only namespaces that are included", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web"}}}},
			scope(constraint(1), full("a", one(pod("a", c, test.In("db")), pod("b", c))), holding("c", 0)),
			intents(apart("a", 2, "c", 0, 1), "b")},
		{"not namespaces that are excluded", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"web"}}}},
			scope(constraint(1), full("a", pods("a", 2, c)), holding("c", 0)), nil},
		{"the scope decides which constraints count", Args{WhenUnsatisfiable: []corev1.UnsatisfiableConstraintAction{
			corev1.DoNotSchedule, corev1.ScheduleAnyway}},
			scope(constraint(1, anyway), full("a", pods("a", 2, c)), holding("c", 0)), intents(apart("a", 2, "c", 0, 1), "a-1")},
	})
}

func TestOrderWithinDomain(t *testing.T) {
	c := fits{"c"}
	// two of four move
	first := func(list ...schemas.SpreadPod) schemas.SpreadScope {
		return scope(constraint(1), full("a", list), holding("c", 0))
	}
	reason := apart("a", 4, "c", 0, 1)
	check(t, []decision{
		{"lower priority first, none before all", Args{},
			first(pod("a", c, test.Priority(5)), pod("b", c, test.Priority(-5)), pod("d", c, test.Priority(0)), pod("e", c)), intents(reason, "e", "b")},
		{"of the same priority, lower quality of service first", Args{},
			first(pod("a", c, test.Quality(corev1.PodQOSGuaranteed)), pod("b", c), pod("d", c, test.Quality(corev1.PodQOSBestEffort)),
				pod("e", c)), intents(reason, "d", "b")},
		{"of the same quality, pods with a node preference last", Args{},
			first(pod("a", c, test.ReluctantToMove()), pod("b", c), pod("d", c, test.ReluctantToMove()), pod("e", c)), intents(reason, "b", "e")},
		{"else by name", Args{}, first(pod("e", c), pod("b", c), pod("d", c), pod("a", c)), intents(reason, "a", "b")},
		{"pods that ask for certain nodes last, whatever their priority", Args{},
			first(pod("a", c, selecting()), pod("b", c, preferringNodes), pod("d", c, test.Priority(9), preferringPods), pod("e", c, test.Priority(7))),
			intents(reason, "e", "d")},
		{"then by priority", Args{},
			first(pod("a", c, selecting(), test.Priority(3)), pod("b", c, preferringNodes, test.Priority(2)), pod("d", c, selecting(), test.Priority(1)),
				pod("e", c, test.Priority(7))),
			intents(reason, "e", "d")},
	})
}

func TestMovesRequireFit(t *testing.T) {
	yes := true
	check(t, []decision{
		{"a pod that fits nowhere stays", Args{}, scope(constraint(1), full("a", pods("a", 7, nil)), holding("c", 3)), nil},
		{"room does not matter if it is not asked for", anywhere(), scope(constraint(1), full("a", pods("a", 7, nil)), holding("c", 3)),
			intents(apart("a", 7, "c", 3, 1), "a-1", "a-2")},
		{"room is required explicitly", Args{TopologyBalanceNodeFit: &yes},
			scope(constraint(1), full("a", pods("a", 7, nil)), holding("c", 3)), nil},
		{"another one goes in the place of a pod that fits nowhere", Args{},
			scope(constraint(1), full("a", one(pod("a", nil), pod("b", nil), pod("d", fits{"c"}, test.Priority(9)))), holding("c", 0)),
			intents(apart("a", 3, "c", 0, 1), "d")},
		{"what fits into the emptiest goes before what fits into the next", Args{},
			scope(constraint(2), full("a", one(pod("a", fits{"b"}), pod("d", fits{"c"}, test.Priority(9)), pod("e", nil), pod("f", nil), pod("g", nil))),
				holding("b", 2), holding("c", 1)),
			intents(apart("a", 5, "c", 1, 2), "d")},
		{"the pods of a domain that is not eligible do not count", Args{},
			scope(constraint(1), ineligible(full("a", pods("a", 4, fits{"c"}))), holding("c", 0)), nil},
		{"a domain that is not eligible takes nothing", Args{},
			scope(constraint(1), full("a", pods("a", 4, fits{"c"})), ineligible(holding("c", 0))), nil},
		{"nor if room does not matter", anywhere(),
			scope(constraint(1), full("a", pods("a", 4, nil)), ineligible(holding("c", 0))), nil},
		{"a domain that is not eligible is not the emptiest", Args{},
			scope(constraint(1), full("a", pods("a", 4, fits{"b"})), holding("b", 3), ineligible(holding("c", 0))), nil},
		{"when no domain is eligible nothing moves", anywhere(),
			scope(constraint(1), ineligible(full("a", pods("a", 4, nil))), ineligible(holding("c", 0))), nil},
		{"an unknown domain takes nothing", Args{},
			scope(constraint(1), full("a", pods("a", 4, fits{"d"})), holding("c", 0)), nil},
		{"a pod is not put where it would be too many by the constraint itself", Args{},
			scope(constraint(1), full("a", pods("a", 9, fits{"b"})), holding("b", 0), holding("c", 0)),
			intents(apart("a", 9, "b", 0, 1), "a-1")},
		{"with ScheduleAnyway it is, as even as the others can be", Args{},
			scope(constraint(1, anyway), full("a", pods("a", 5, fits{"b"})), holding("b", 0), holding("c", 0)),
			intents(apart("a", 5, "b", 0, 1), "a-1", "a-2")},
	})
}

func TestMinDomains(t *testing.T) {
	few := func(has, most, domains, wanted int) string {
		return fmt.Sprintf("zone a has %d pods: more than %d while there are %d of at least %d domains (topology.kubernetes.io/zone)",
			has, most, domains, wanted)
	}
	c := fits{"c"}
	check(t, []decision{
		{"as many domains as required", Args{}, scope(constraint(2, atLeast(2)), full("a", pods("a", 5, c)), holding("c", 3)), nil},
		{"pods beyond maxSkew move to a domain with fewer", Args{},
			scope(constraint(3, atLeast(3)), full("a", pods("a", 5, c)), holding("c", 1)), intents(few(5, 3, 2, 3), "a-1", "a-2")},
		{"but not more than maxSkew allows there", Args{},
			scope(constraint(3, atLeast(3)), full("a", pods("a", 9, c)), holding("c", 1)), intents(few(9, 3, 2, 3), "a-1", "a-2")},
		{"and none to a domain that is full already", Args{},
			scope(constraint(1, atLeast(3)), full("a", pods("a", 4, c)), holding("c", 1)), nil},
		{"no more than maxSkew is in order", Args{},
			scope(constraint(4, atLeast(3)), full("a", pods("a", 4, c)), holding("c", 1)), nil},
		{"a domain that is not eligible does not make up for one that is missing", Args{},
			scope(constraint(2, atLeast(3)), full("a", pods("a", 4, c)), ineligible(holding("b", 0)), holding("c", 0)),
			intents(few(4, 2, 2, 3), "a-1", "a-2")},
		{"nor does room make one", anywhere(), scope(constraint(1, atLeast(2)), full("a", pods("a", 4, nil))), nil},
	})
}

func TestInvalidArguments(t *testing.T) {
	yes := true
	for _, c := range []struct {
		name string
		args Args
		want []string
	}{
		{"nothing", Args{}, nil},
		{"every field, rightly", Args{
			Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web"}}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},

			WhenUnsatisfiable:      []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway},
			TopologyBalanceNodeFit: &yes,
		}, nil},
		{"no constraints is the default", Args{WhenUnsatisfiable: []corev1.UnsatisfiableConstraintAction{}}, nil},
		{"an invalid action", Args{WhenUnsatisfiable: []corev1.UnsatisfiableConstraintAction{
			"doNotSchedule", corev1.ScheduleAnyway, ""}}, []string{
			`constraints[0]: is not an action of a constraint, got "doNotSchedule"; want DoNotSchedule or ScheduleAnyway`,
			`constraints[2]: is not an action of a constraint, got ""; want DoNotSchedule or ScheduleAnyway`,
		}},
		{"namespaces and selector", Args{Selection: test.InvalidSelection()}, test.SelectionMistakes()},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Refused(t, c.args.Validate(), c.want...)
		})
	}
}

func TestConstraints(t *testing.T) {
	hard, soft := constraint(1), constraint(2, over(corev1.LabelHostname), anyway)
	both := pod("a", nil, test.Labelled("tier", "web"))
	both.Pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{soft, hard}
	type list = []corev1.TopologySpreadConstraint
	actions := func(list ...corev1.UnsatisfiableConstraintAction) Args { return Args{WhenUnsatisfiable: list} }
	for _, c := range []struct {
		name string
		args Args
		pod  schemas.SpreadPod
		want list
	}{
		{"DoNotSchedule by default", Args{}, both, list{hard}},
		{"an empty list is the default", actions([]corev1.UnsatisfiableConstraintAction{}...), both, list{hard}},
		{"only ScheduleAnyway", actions(corev1.ScheduleAnyway), both, list{soft}},
		{"both, in the pod's order", actions(corev1.DoNotSchedule, corev1.ScheduleAnyway), both, list{soft, hard}},
		{"a pod without constraints", Args{}, pod("b", nil), nil},
		{"a namespace that is left out", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"web"}}}}, both, nil},
		{"a namespace that is included", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web"}}}}, both, list{hard}},
		{"a pod that is selected", Args{Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}}, both, list{hard}},
		{"a pod that is not selected", Args{Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}}}, both, nil},
	} {
		if got := c.args.Constraints(&c.pod.Pod); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestNeedsRoom(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		arg  *bool
		want bool
	}{{nil, true}, {&yes, true}, {&no, false}} {
		if got := (Args{TopologyBalanceNodeFit: c.arg}).NeedsRoom(); got != c.want {
			t.Errorf("%v: got %v, want %v", c.arg, got, c.want)
		}
	}
}
