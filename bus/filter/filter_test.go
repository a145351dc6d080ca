package filter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/randtest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func many(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

func TestFilterSubjects(t *testing.T) {
	pods := []Pod{{"shop", "api-0"}, {"web", "v1.2"}}
	all := []string{"rehome.delta.>", "rehome.intents.>", "rehome.verdict.>", "rehome.receipt.>", "rehome.maintenance.>"}
	for _, p := range rest() {
		all = append(all, "rehome."+schemas.NounOf(p.EventType())+".>")
	}
	for _, c := range []struct {
		name   string
		filter Filter
		want   []string
	}{
		{"nothing: all of the history", Filter{}, all},
		{"one type", Filter{Types: []string{Verdict}}, []string{"rehome.verdict.>"}},
		{"types twice and in any order", Filter{Types: []string{Verdict, Delta, Verdict}}, []string{"rehome.delta.>", "rehome.verdict.>"}},
		{"scopes only when they are named", Filter{Types: []string{Scope}, Strategies: []string{"S"}}, []string{"rehome.scope.S.>"}},
		{"an outcome: verdicts alone", Filter{Outcomes: []string{"evicted", "deferred"}}, []string{
			"rehome.verdict.deferred.>", "rehome.verdict.evicted.>",
		}},
		{"a strategy: no deltas", Filter{Strategies: []string{"S"}}, []string{"rehome.intents.S.>", "rehome.verdict.*.S.>"}},
		{"the strategy of maintenances", Filter{Strategies: []string{"Maintenance"}}, []string{
			"rehome.intents.Maintenance.>", "rehome.verdict.*.Maintenance.>", "rehome.maintenance.>",
		}},
		{"maintenances", Filter{Maintenances: []string{"kernel", "node/w.1"}}, []string{
			"rehome.intents.Maintenance.*.maintenance.kernel", "rehome.intents.Maintenance.*.maintenance.node=2Fw_1",
			"rehome.verdict.*.Maintenance.>", "rehome.maintenance.kernel", "rehome.maintenance.node=2Fw_1",
		}},
		{"a namespace: deltas of pods alone, answers and maintenances anyway", Filter{Namespaces: []string{"a.b"}}, []string{
			"rehome.delta.pod.*.a_b.>", "rehome.intents.>", "rehome.verdict.*.*.a_b.>", "rehome.maintenance.>",
		}},
		{"pods", Filter{Pods: pods, Types: []string{Delta, Verdict}}, []string{
			"rehome.delta.pod.*.shop.api-0", "rehome.delta.pod.*.web.v1_2",
			"rehome.verdict.*.*.shop.api-0", "rehome.verdict.*.*.web.v1_2",
		}},
		{"pods of one namespace", Filter{Pods: pods, Namespaces: []string{"web"}, Types: []string{Verdict}}, []string{
			"rehome.verdict.*.*.web.v1_2",
		}},
		{"a node: its deltas, and all events that can name it", Filter{Nodes: []string{"w.1"}}, []string{
			"rehome.delta.node.*.w_1", "rehome.delta.pod.>", "rehome.intents.>", "rehome.verdict.>", "rehome.maintenance.>",
		}},
		{"a node and a namespace", Filter{Nodes: []string{"w1"}, Namespaces: []string{"shop"}, Types: []string{Delta}}, []string{
			"rehome.delta.pod.*.shop.>",
		}},
		{"a correlation is in no subject", Filter{Correlations: []string{"x"}}, all},
		{"all together", Filter{Types: []string{Verdict}, Outcomes: []string{"settled"}, Strategies: []string{"S", "T"}, Pods: pods[:1]}, []string{
			"rehome.verdict.settled.S.shop.api-0", "rehome.verdict.settled.T.shop.api-0",
		}},
		{
			"too many namespaces give way to all",
			Filter{Types: []string{Verdict}, Outcomes: []string{"evicted"}, Namespaces: many("n", 65)},
			[]string{"rehome.verdict.evicted.>"},
		},
		{
			"too many combinations lose the last names first",
			Filter{Types: []string{Verdict}, Outcomes: []string{"evicted"}, Strategies: []string{"S", "T"}, Namespaces: many("n", 40)},
			[]string{"rehome.verdict.evicted.S.>", "rehome.verdict.evicted.T.>"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.filter.Channels(); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if err := c.filter.Check(); err != nil {
				t.Errorf("it is refused: %v", err)
			}
		})
	}
}

func TestInvalidFilterFlags(t *testing.T) {
	for _, c := range []struct {
		filter Filter
		want   string
	}{
		{Filter{Types: []string{"pods"}}, "type: want " + strings.Join(History(), ", ") + `, scope or request, got "pods"`},
		{
			Filter{Outcomes: []string{"moved"}},
			`outcome: want one of [evicted restarted requested deferred rejected withdrawn expired failed settled], got "moved"`,
		},
		{Filter{Strategies: []string{""}}, "strategy: want a name, got none"},
		{Filter{Namespaces: []string{""}}, "namespace: want a name, got none"},
		{Filter{Nodes: []string{"a", ""}}, "node: want a name, got none"},
		{Filter{Maintenances: []string{""}}, "maintenance: want a name, got none"},
		{Filter{Correlations: []string{""}}, "correlation: want a name, got none"},
	} {
		if err := c.filter.Check(); err == nil || err.Error() != c.want {
			t.Errorf("%+v: got %v, want %s", c.filter, err, c.want)
		}
	}
	for name, f := range map[string]Filter{
		"a delta with an outcome":           {Types: []string{Delta}, Outcomes: []string{"evicted"}},
		"a delta with a strategy":           {Types: []string{Delta}, Strategies: []string{"S"}},
		"an answer with an outcome":         {Types: []string{Intents}, Outcomes: []string{"evicted"}},
		"a maintenance that has an outcome": {Types: []string{Maintenance}, Outcomes: []string{"evicted"}},
		"a delta of a maintenance":          {Types: []string{Delta}, Maintenances: []string{"kernel"}},
		"a verdict of a maintenance and of another strategy": {
			Types: []string{Verdict}, Maintenances: []string{"kernel"}, Strategies: []string{"S"},
		},
		"a maintenance of another strategy": {Types: []string{Maintenance}, Strategies: []string{"S"}},
		"a pod of another namespace":        {Types: []string{Verdict}, Namespaces: []string{"a"}, Pods: []Pod{{"b", "x"}}},
		"a scope that has an outcome":       {Types: []string{Scope}, Outcomes: []string{"evicted"}},
	} {
		if err := f.Check(); !errors.Is(err, ErrNothing) {
			t.Errorf("%s: got %v, want ErrNothing", name, err)
		}
	}
}

func TestParsePod(t *testing.T) {
	if got, err := ParsePod("shop/api-0"); err != nil || got != (Pod{"shop", "api-0"}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, wrong := range []string{"", "api-0", "/api-0", "shop/", "shop/api/0"} {
		if got, err := ParsePod(wrong); err == nil || got != (Pod{}) {
			t.Errorf("%q: got %v, want an error", wrong, got)
		}
	}
}

// event returns an event with the data p.
func event(t *testing.T, p schemas.Payload) schemas.Event {
	t.Helper()
	return schematest.Event(t, "/clusters/test/test", p, time.Unix(1, 0), schemas.Event{})
}

func answer(strategy string, kind schemas.ScopeKind, key string, intents ...schemas.Intent) schemas.Intents {
	return schemas.Intents{
		Profile: "p", Strategy: strategy, Scope: schemas.ScopeRef{Kind: kind, Key: key}, Intents: intents,
	}
}

func intent(namespace, pod, node string) schemas.Intent {
	return schemas.Intent{Pod: schemas.PodRef{Namespace: namespace, Name: pod}, Node: node}
}

func TestFilterMatches(t *testing.T) {
	kernel := schemas.Maintenance{
		Name: "kernel", Nodes: []v1alpha1.NodeStatus{
			{Name: "n1", Blocked: []v1alpha1.BlockedPod{{Namespace: "a", Name: "x"}}}, {Name: "n2"},
		},
		Forgotten: []string{"n3"}, Changes: []schemas.NodeChange{{Name: "n4"}},
	}
	ofKernel := schemas.Verdict{
		Outcome: schemas.Evicted, Strategy: "Maintenance", Scope: schemas.ScopeRef{Kind: schemas.MaintenanceKind, Key: "kernel"},
	}
	onePod := answer("S", schemas.NodeKind, "n1", intent("a", "x", "n1"), intent("b", "y", "n1"))
	for _, c := range []struct {
		name   string
		filter Filter
		event  schemas.Payload
		want   bool
	}{
		{"a requested node, without any pod", Filter{Nodes: []string{"n1"}}, answer("S", schemas.NodeKind, "n1"), true},
		{"a requested pod", Filter{Pods: []Pod{{"a", "x"}}}, answer("S", schemas.PodKind, "a/x"), true},
		{"a requested workload", Filter{Namespaces: []string{"a"}}, answer("S", schemas.WorkloadKind, "a/ReplicaSet/x"), true},
		{"a requested group", Filter{Namespaces: []string{"a"}}, answer("S", schemas.SpreadKind, "a/zone/1"), true},
		{"a kind of scope that is in no namespace", Filter{Namespaces: []string{"cluster"}}, answer("S", schemas.UsageKind, "cluster"), false},
		{"a pod of an answer", Filter{Pods: []Pod{{"b", "y"}}, Nodes: []string{"n1"}}, onePod, true},
		{"one pod has the name and another the namespace", Filter{Pods: []Pod{{"a", "x"}}, Namespaces: []string{"b"}}, onePod, false},
		{
			"a node of another pod of the answer", Filter{Namespaces: []string{"a"}, Nodes: []string{"n2"}},
			answer("S", schemas.UsageKind, "cluster", intent("a", "x", "n1"), intent("b", "y", "n2")), false,
		},
		{
			"the node of a pod that changed", Filter{Nodes: []string{"n1"}},
			schemas.Delta{Kind: schemas.PodDeleted, Object: schemas.ObjectRef{Kind: "Pod", Namespace: "a", Name: "x"}, Node: "n1"}, true,
		},
		{
			"a scope by its strategy and node", Filter{Types: []string{Scope}, Strategies: []string{"S"}, Nodes: []string{"n1"}},
			schemas.ScopeHead{Strategy: "S", Kind: schemas.NodeKind, Key: "n1"}, true,
		},
		{"a maintenance by its strategy", Filter{Strategies: []string{"Maintenance"}}, schemas.Maintenance{Name: "kernel"}, true},
		{"a maintenance by its name", Filter{Maintenances: []string{"disks", "kernel"}}, kernel, true},
		{"a maintenance of another name", Filter{Maintenances: []string{"disks"}}, kernel, false},
		{"an answer about a maintenance", Filter{Maintenances: []string{"kernel"}}, answer("Maintenance", schemas.MaintenanceKind, "kernel"), true},
		{"an answer about an object with its name", Filter{Maintenances: []string{"kernel"}}, answer("Maintenance", schemas.NodeKind, "kernel"), false},
		{"a verdict on a pod of a maintenance", Filter{Maintenances: []string{"kernel"}}, ofKernel, true},
		{"a verdict on a pod of another one", Filter{Maintenances: []string{"disks"}}, ofKernel, false},
		{"a node that a maintenance names", Filter{Nodes: []string{"n2"}}, kernel, true},
		{"a node that a maintenance does not name", Filter{Nodes: []string{"n5"}}, kernel, false},
		{"a node that a maintenance has no more", Filter{Nodes: []string{"n3"}}, kernel, true},
		{"a node that was changed for a maintenance", Filter{Nodes: []string{"n4"}}, kernel, true},
		{"a pod that cannot move off its node", Filter{Pods: []Pod{{"a", "x"}}, Nodes: []string{"n1"}}, kernel, true},
		{"a pod that cannot move off another node", Filter{Pods: []Pod{{"a", "x"}}, Nodes: []string{"n2"}}, kernel, false},
		{"a scope without a subscription to scopes", Filter{}, schemas.ScopeHead{Strategy: "S", Kind: schemas.NodeKind, Key: "n1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.filter.Matches(event(t, c.event)); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	unreadable := schemas.Event{Type: "dev.rehome.delta.v9", Channel: "rehome.delta.node.taints.n1", Data: []byte(`{}`)}
	if !(Filter{Types: []string{Delta}}).Matches(unreadable) || (Filter{Nodes: []string{"n1"}}).Matches(unreadable) {
		t.Error("an event of a newer type is selected unless a filter reads its data")
	}
	unreadable.Channel = "rehome.request.a.b"
	if (Filter{}).Matches(unreadable) {
		t.Error("an event on a channel of none of the types is wanted")
	}
}

// rest returns the data of the examples of types without a constant of this package. The history has all of these types.
func rest() (all []schemas.Payload) {
	for name, p := range schemas.Examples() {
		noun := schemas.NounOf(p.EventType())
		if name == noun && !slices.Contains([]string{Delta, Scope, Intents, Verdict, Receipt, Maintenance, Request}, noun) {
			all = append(all, p)
		}
	}
	return all
}

// world returns all events that can be built from a few names. Some names have bytes that subjects encode.
func world(t *testing.T) (all []schemas.Event) {
	t.Helper()
	add := func(p schemas.Payload, correlation string) {
		e := event(t, p)
		e.CorrelationID = correlation
		all = append(all, e)
	}
	for i, node := range nodes {
		correlation := correlations[i%2]
		add(schemas.Receipt{Sender: "admin", Name: fmt.Sprint("r", i)}, correlation)
		add(schemas.Request{Sender: "admin", Name: fmt.Sprint("r", i)}, correlation)
		add(schemas.Maintenance{Name: "node/" + node}, correlation)
		add(schemas.Delta{Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: node}}, correlation)
		for _, strategy := range strategies {
			add(answer(strategy, schemas.NodeKind, node), correlation)
			for j, namespace := range namespaces {
				for _, pod := range podNames {
					correlation := correlations[j%2]
					in := intent(namespace, pod, node)
					for _, o := range outcomes {
						add(schemas.Verdict{Outcome: o, Strategy: strategy, Intent: in}, correlation)
					}
					add(answer(strategy, schemas.NodeKind, node, in, intent("other", "z", "n9")), correlation)
					add(answer(strategy, schemas.PodKind, namespace+"/"+pod), correlation)
					ref := schemas.ObjectRef{Kind: "Pod", Namespace: namespace, Name: pod}
					add(schemas.Delta{Kind: schemas.PodScheduled, Object: ref, Node: node}, correlation)
				}
			}
		}
	}
	for _, p := range rest() {
		add(p, correlations[0])
	}
	return append(all, maintained(t)...)
}

// maintained returns all events about maintenances and their pods.
func maintained(t *testing.T) (all []schemas.Event) {
	t.Helper()
	add := func(p schemas.Payload) {
		e := event(t, p)
		e.CorrelationID = correlations[len(all)%2]
		all = append(all, e)
	}
	for _, name := range maintenances {
		scope := schemas.ScopeRef{Kind: schemas.MaintenanceKind, Key: name}
		for _, node := range nodes {
			for _, namespace := range namespaces {
				for _, pod := range podNames {
					in, blocked := intent(namespace, pod, node), []v1alpha1.BlockedPod{{Namespace: namespace, Name: pod}}
					add(schemas.Maintenance{Name: name, Nodes: []v1alpha1.NodeStatus{{Name: node, Blocked: blocked}}})
					add(answer(schemas.MaintenanceStrategy, schemas.MaintenanceKind, name, in))
					for _, o := range outcomes {
						add(schemas.Verdict{Outcome: o, Strategy: schemas.MaintenanceStrategy, Scope: scope, Intent: in})
					}
				}
			}
		}
	}
	return all
}

var (
	namespaces   = []string{"a", "b", "a.b"}
	podNames     = []string{"x", "x.y", "*"}
	nodes        = []string{"n1", "n.2"}
	strategies   = []string{"S", "S=1", "Maintenance"}
	maintenances = []string{"a.b", "node/n1"}
	outcomes     = []schemas.Outcome{schemas.Evicted, schemas.Deferred, schemas.Settled}
	correlations = []string{"c1", "c2"}
)

// some returns a random part of the names, mostly none.
func some(r *rand.Rand, names []string) (chosen []string) {
	if r.IntN(3) > 0 {
		return nil
	}
	for range 1 + r.IntN(2) {
		chosen = append(chosen, names[r.IntN(len(names))])
	}
	return chosen
}

func randomFilter(r *rand.Rand) Filter {
	f := Filter{
		Types: some(r, []string{Delta, Intents, Verdict, Receipt, Maintenance, Request}), Outcomes: some(r, []string{"evicted", "deferred", "settled"}),
		Strategies: some(r, strategies), Namespaces: some(r, namespaces), Nodes: some(r, nodes), Correlations: some(r, correlations),
		Maintenances: some(r, maintenances),
	}
	for _, name := range some(r, podNames) {
		f.Pods = append(f.Pods, Pod{namespaces[r.IntN(len(namespaces))], name})
	}
	return f
}

// covers reports whether a subject with wildcards matches a channel, as in NATS.
func covers(subject, channel string) bool {
	s, c := strings.Split(subject, "."), strings.Split(channel, ".")
	for i, token := range s {
		switch {
		case token == ">":
			return len(c) > i
		case i >= len(c) || token != "*" && token != c[i]:
			return false
		}
	}
	return len(s) == len(c)
}

// TestMatchingEventHasOneSubject draws random filters and compares them with all events of a small world.
func TestMatchingEventHasOneSubject(t *testing.T) {
	r, all, drawn := randtest.New(t), world(t), 0
	for range 1000 {
		f := randomFilter(r)
		channels := f.Channels()
		needed, wanted := map[string]bool{}, 0
		for _, e := range all {
			on := slices.DeleteFunc(slices.Clone(channels), func(s string) bool { return !covers(s, e.Channel) })
			wants := f.Matches(e)
			if len(on) > 1 || wants && len(on) == 0 {
				t.Fatalf("%+v: an event on %s, wanted %v, comes on %q of %q", f, e.Channel, wants, on, channels)
			}
			lists := nounOf(e.Channel) == Intents || nounOf(e.Channel) == Maintenance
			inData := len(f.Nodes)+len(f.Correlations) > 0 || lists && len(f.Namespaces)+len(f.Pods) > 0 ||
				nounOf(e.Channel) == Verdict && len(f.Maintenances) > 0
			if len(on) == 1 && !wants && !inData {
				t.Fatalf("%+v: an event on %s comes on %q and is not wanted, which the subject could say", f, e.Channel, on[0])
			}
			if wants {
				needed[on[0]] = true
				wanted++
			}
		}
		if wanted > 0 && wanted < len(all) {
			drawn++
		}
		if len(f.Correlations)+len(f.Nodes) == 0 && (len(f.Pods) == 0 || len(f.Namespaces) == 0) && len(needed) != len(channels) {
			t.Fatalf("%+v: of %q only %v are needed", f, channels, needed)
		}
	}
	if drawn < 200 {
		t.Errorf("only %d of the filters want some events and not others", drawn)
	}
}
