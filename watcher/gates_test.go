package watcher

import (
	"context"
	"errors"
	"math"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// oracle answers queries from memory, and keeps which were asked when.
type oracle struct {
	mu      sync.Mutex
	begin   time.Time
	answers map[string][]float64 // nil: there is nobody who answers
	asked   []question
}

type question struct {
	query string
	after time.Duration
}

func (o *oracle) Values(_ context.Context, query string) ([]float64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, question{query, time.Since(o.begin)})
	if o.answers == nil {
		return nil, &url.Error{Op: "Get", URL: "http://prometheus", Err: errors.New("connection refused")}
	}
	values, known := o.answers[query]
	if !known {
		return nil, errors.New("answered 400 Bad Request: parse error")
	}
	return values, nil
}

func (*oracle) Close() {}

func (o *oracle) set(answers map[string][]float64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers = answers
}

func (o *oracle) questions() []question {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	o.asked = nil
	return asked
}

// gated is a maintenance with a gate that asks about each node.
func gated(m *v1alpha1.NodeMaintenance) {
	m.Spec.Gates = []v1alpha1.Gate{{Name: "storage", Query: `healthy{node="$node"}`}}
}

const (
	healthy1 = `healthy{node="n1"}`
	healthy2 = `healthy{node="n2"}`
)

// consulting runs the script while the maintenances of a site ask an oracle.
func consulting(t *testing.T, script func(s *site, o *oracle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, machine("n1", "a"), machine("n2", "b"))
		o := &oracle{begin: time.Now()}
		out := s.out
		l := newLead(s.w, s.w.plan.Load(), newOutbox(out, s.w.log, s.w.metrics))
		l.maintaining.gates.server = o
		s.w.lead.Store(l)
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { l.run(ctx) })
		synctest.Wait()
		script(s, o)
		end()
		wg.Wait()
	})
}

func TestAQueryOfAGateIsAskedForEachNodeAtMostEvery15SecondsAndOnlyNewsWakes(t *testing.T) {
	consulting(t, func(s *site, o *oracle) {
		o.set(map[string][]float64{healthy1: {1, 2}, healthy2: {0.5}})
		s.put(kernel(gated))
		s.wants("a new maintenance, whose gates are asked then", "Maintenance kernel: due due", "Maintenance kernel: fact nodemaintenance/kernel")
		facts := func() (list []schemas.GateFact) {
			for _, n := range s.scope("kernel").Nodes {
				list = append(list, n.Gates...)
			}
			return list
		}
		open := schemas.GateFact{Name: "storage", Open: true}
		closed := schemas.GateFact{Name: "storage", Message: "a sample of the answer to its query is below 1"}
		if got, want := facts(), []schemas.GateFact{open, closed}; !reflect.DeepEqual(got, want) {
			s.t.Errorf("got %+v, want %+v", got, want)
		}
		time.Sleep(gateInterval / 2)
		s.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Status.Summary.PodsLeft = 1 })
		s.wants("something else", "Maintenance kernel: fact nodemaintenance/kernel")
		o.set(map[string][]float64{healthy1: {1, 3}, healthy2: {0.7}})
		time.Sleep(gateInterval)
		s.wants("other figures are no news")
		o.set(map[string][]float64{healthy1: {1}, healthy2: {1}})
		time.Sleep(gateInterval)
		s.wants("a gate opens", "Maintenance kernel: due")
		if got, want := facts(), []schemas.GateFact{open, open}; !reflect.DeepEqual(got, want) {
			s.t.Errorf("got %+v, want %+v", got, want)
		}
		got := o.questions()
		perQuery := map[string][]time.Duration{}
		for _, q := range got {
			perQuery[q.query] = append(perQuery[q.query], q.after)
		}
		for _, query := range []string{healthy1, healthy2} {
			at := perQuery[query]
			if len(at) != 3 || at[1]-at[0] < gateInterval || at[2]-at[1] < gateInterval {
				s.t.Errorf("%s was asked at %v, want three times, 15 s apart", query, at)
			}
		}
		s.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Stage = v1alpha1.Complete })
		s.wants("it is completed", "Maintenance kernel: fact nodemaintenance/kernel")
		time.Sleep(4 * gateInterval)
		if got := o.questions(); len(got) > 0 {
			s.t.Errorf("asked of nodes that are given back: %v", got)
		}
	})
}

func TestAPrometheusThatDoesNotAnswerClosesAllGatesAndIsAskedOnce(t *testing.T) {
	consulting(t, func(s *site, o *oracle) {
		s.put(kernel(gated))
		s.wants("a new maintenance, whose gates are closed then", "Maintenance kernel: due", "Maintenance kernel: fact nodemaintenance/kernel")
		want := schemas.GateFact{Name: "storage", Message: "Prometheus cannot be asked: connection refused"}
		for _, n := range s.scope("kernel").Nodes {
			if !reflect.DeepEqual(n.Gates, []schemas.GateFact{want}) {
				s.t.Errorf("%s: got %+v, want %+v", n.Node.Name, n.Gates, want)
			}
		}
		if got := o.questions(); len(got) != 1 {
			s.t.Errorf("asked %v, want one question", got)
		}
		time.Sleep(gateInterval)
		s.wants("still")
	})
}

func TestAQueryThatIsWantedAgainIsAskedNoSooner(t *testing.T) {
	consulting(t, func(s *site, o *oracle) {
		o.set(map[string][]float64{healthy1: {1}, healthy2: {1}})
		for range 3 {
			s.put(kernel(gated))
			scopesOf(s.t, s.out)
			s.put(kernel(gated, func(m *v1alpha1.NodeMaintenance) { m.Spec.Stage = v1alpha1.Complete }))
			scopesOf(s.t, s.out)
		}
		if got := o.questions(); len(got) != 2 {
			s.t.Errorf("asked %v, want each query once", got)
		}
	})
}

func TestAMaintenanceThatIsGoneAsksNoMore(t *testing.T) {
	consulting(t, func(s *site, o *oracle) {
		s.put(kernel(gated))
		s.wants("a new maintenance", "Maintenance kernel: due", "Maintenance kernel: fact nodemaintenance/kernel")
		s.w.maintenanceChanged(s.keep["kernel"], nil, false)
		o.questions()
		time.Sleep(4 * gateInterval)
		if got := o.questions(); len(got) > 0 {
			s.t.Errorf("asked %v", got)
		}
	})
}

func TestAnAnswerOpensAGateOnlyWhenAllOfItsSamplesAreOneOrMore(t *testing.T) {
	for _, c := range []struct {
		name    string
		values  []float64
		err     error
		open    bool
		message string
	}{
		{"all are", []float64{1, 7, math.Inf(1)}, nil, true, ""},
		{"one is not", []float64{1, 0.999}, nil, false, "a sample of the answer to its query is below 1"},
		{"one is no number", []float64{math.NaN()}, nil, false, "a sample of the answer to its query is below 1"},
		{"there is none", nil, nil, false, "the answer to its query has no sample"},
		{"the query is wrong", nil, errors.New("parse error"), false, "Prometheus cannot answer its query: parse error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if open, message := answered(c.values, c.err); open != c.open || message != c.message {
				t.Errorf("got %v, %q, want %v, %q", open, message, c.open, c.message)
			}
		})
	}
}

func TestAQueryIsOnlyAskedWhileItsAnswerCounts(t *testing.T) {
	window := func(m *v1alpha1.NodeMaintenance) {
		end := m.CreationTimestamp
		m.Spec.Window = &v1alpha1.Window{End: &end}
	}
	stage := func(stage v1alpha1.Stage) func(*v1alpha1.NodeMaintenance) {
		return func(m *v1alpha1.NodeMaintenance) { m.Spec.Stage = stage }
	}
	status := func(of ...v1alpha1.NodeStage) func(*v1alpha1.NodeMaintenance) {
		return func(m *v1alpha1.NodeMaintenance) { m.Status = stages(of...) }
	}
	for _, c := range []struct {
		name   string
		change []func(*v1alpha1.NodeMaintenance)
		want   []string
	}{
		{"a node that waits, and one that is drained now", nil, []string{healthy1, healthy2}},
		{"nothing is wanted yet", []func(*v1alpha1.NodeMaintenance){stage(v1alpha1.Idle)}, nil},
		{"all is wanted back", []func(*v1alpha1.NodeMaintenance){stage(v1alpha1.Complete)}, nil},
		{"only to be cordoned: the one that waits", []func(*v1alpha1.NodeMaintenance){stage(v1alpha1.Cordon)}, []string{healthy2}},
		{"outside of the window: the one that was begun", []func(*v1alpha1.NodeMaintenance){window}, []string{healthy1}},
		{"drained, or given back", []func(*v1alpha1.NodeMaintenance){status(v1alpha1.IsDrained, v1alpha1.Returned)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			consulting(t, func(s *site, o *oracle) {
				m := kernel(gated)
				for _, change := range c.change {
					change(m)
				}
				s.put(m)
				o.set(map[string][]float64{healthy1: {1}, healthy2: {1}})
				scopesOf(s.t, s.out)
				var got []string
				for _, q := range o.questions() {
					got = append(got, q.query)
				}
				if slices.Sort(got); !slices.Equal(got, c.want) {
					s.t.Errorf("asked %q, want %q", got, c.want)
				}
			})
		})
	}
}
