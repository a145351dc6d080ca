package maintenance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// oracle answers queries from memory, and records them with their times.
type oracle struct {
	mu      sync.Mutex
	begin   time.Time
	answers map[string][]float64 // nil means there is no server
	takes   time.Duration
	asked   []question
}

type question struct {
	query string
	after time.Duration
}

func (o *oracle) Values(ctx context.Context, query string) ([]float64, error) {
	select {
	case <-time.After(o.takes):
	case <-ctx.Done():
		return nil, &url.Error{Op: "Get", URL: "http://prometheus", Err: ctx.Err()}
	}
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

const (
	healthy1 = `healthy{node="n1"}`
	healthy2 = `healthy{node="n2"}`
)

// consulting runs the script with gates that query an oracle.
func consulting(t *testing.T, script func(t *testing.T, g *gates, o *oracle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{begin: time.Now()}
		script(t, newGates(o, nil, time.Now), o)
	})
}

func both() map[string]bool { return map[string]bool{healthy1: true, healthy2: true} }

func TestGateQueries(t *testing.T) {
	t.Run("each_at_most_every_15_seconds", func(t *testing.T) {
		consulting(t, func(t *testing.T, g *gates, o *oracle) {
			unsent := plan.Gate{Name: "storage", Message: "its query was not sent yet"}
			expect.Equal(t, "gate", g.answer("storage", healthy1), unsent)
			o.set(map[string][]float64{healthy1: {1, 2}, healthy2: {0.5}})
			for range 3 * int(gateInterval/time.Second) {
				g.refresh(t.Context(), both())
				time.Sleep(time.Second)
			}
			expect.Equal(t, "gate", g.answer("storage", healthy1), (plan.Gate{Name: "storage", Open: true}))
			closed := plan.Gate{Name: "storage", Message: "a sample of the answer to its query is below 1"}
			expect.Equal(t, "gate", g.answer("storage", healthy2), closed)
			perQuery := map[string][]time.Duration{}
			for _, q := range o.questions() {
				perQuery[q.query] = append(perQuery[q.query], q.after)
			}
			want := []time.Duration{0, gateInterval, 2 * gateInterval}
			if !reflect.DeepEqual(perQuery, map[string][]time.Duration{healthy1: want, healthy2: want}) {
				t.Errorf("called at %v, want at %v", perQuery, want)
			}
		})
	})
	t.Run("a_gate_opens_and_closes", func(t *testing.T) {
		consulting(t, func(t *testing.T, g *gates, o *oracle) {
			for _, value := range []float64{0, 1, 0} {
				o.set(map[string][]float64{healthy1: {value}})
				if !g.refresh(t.Context(), map[string]bool{healthy1: true}) {
					t.Error("got no call")
				}
				if got := g.answer("storage", healthy1).Open; got != (value == 1) {
					t.Errorf("with the value %v: got %v", value, got)
				}
				time.Sleep(gateInterval)
			}
		})
	})
	t.Run("an_unreachable_server_is_called_once", func(t *testing.T) {
		consulting(t, func(t *testing.T, g *gates, o *oracle) {
			for query := range both() { // of two maintenances
				g.refresh(t.Context(), map[string]bool{query: true})
			}
			want := plan.Gate{Name: "storage", Message: "Prometheus cannot be reached: connection refused"}
			for _, query := range []string{healthy1, healthy2} {
				expect.Equal(t, query, g.answer("storage", query), want)
			}
			if got := o.questions(); len(got) != 1 {
				t.Errorf("called %v, want one call", got)
			}
		})
	})
	t.Run("a_slow_server_is_called_for_5_seconds", func(t *testing.T) {
		consulting(t, func(t *testing.T, g *gates, o *oracle) {
			const queries = 20
			all, answers := map[string]bool{}, map[string][]float64{}
			for i := range queries {
				query := fmt.Sprintf("healthy{node=\"n%d\"}", i)
				all[query], answers[query] = true, []float64{1}
			}
			o.set(answers)
			o.takes = 1900 * time.Millisecond
			open := func() (n int) {
				for query := range all {
					if g.answer("storage", query).Open {
						n++
					}
				}
				return n
			}
			for i, want := range []int{2, 4, 6} { // each refresh calls other queries
				began := time.Now()
				g.refresh(t.Context(), all)
				if took := time.Since(began); took > 5*time.Second || open() != want {
					t.Errorf("refresh %d took %v, then %d gates are open, want %d within 5 s", i, took, open(), want)
				}
				time.Sleep(10 * time.Second)
			}
			time.Sleep(gateMaxAge)
			late := plan.Gate{Name: "storage", Message: "its query was not sent for more than 1m0s: Prometheus answers too slowly"}
			expect.Equal(t, "gate", g.answer("storage", o.questions()[0].query), late)
		})
	})
	t.Run("nodes_in_progress_come_first", func(t *testing.T) {
		consulting(t, func(t *testing.T, g *gates, o *oracle) {
			const inProgress = `healthy{node="n999"}`
			queries, answers := map[string]bool{inProgress: true}, map[string][]float64{inProgress: {1}}
			for i := range 999 {
				query := fmt.Sprintf("healthy{node=\"n%d\"}", i)
				queries[query], answers[query] = false, []float64{1}
			}
			o.set(answers)
			o.takes = 100 * time.Millisecond
			for o.begin = time.Now(); time.Since(o.begin) < 3*time.Minute; time.Sleep(time.Second) {
				g.refresh(t.Context(), queries)
				if got, want := g.answer("storage", inProgress), (plan.Gate{Name: "storage", Open: true}); got != want {
					t.Fatalf("after %v: got %+v, want %+v", time.Since(o.begin), got, want)
				}
			}
			waiting := map[string]bool{}
			for _, q := range o.questions() {
				waiting[q.query] = q.query != inProgress
			}
			if delete(waiting, inProgress); len(waiting) != 999 {
				t.Errorf("called the queries of %d waiting nodes, want 999", len(waiting))
			}
		})
	})
	t.Run("only_while_the_answer_matters", func(t *testing.T) {
		for _, c := range []struct {
			want     v1alpha1.Stage
			node     v1alpha1.NodeStage
			inWindow bool
			matters  bool
		}{
			{v1alpha1.Drain, "", true, true},
			{v1alpha1.Drain, v1alpha1.Waiting, true, true},
			{v1alpha1.Drain, v1alpha1.Waiting, false, false},
			{v1alpha1.Drain, v1alpha1.Draining, false, true},
			{v1alpha1.Drain, v1alpha1.IsDrained, true, false},
			{v1alpha1.Cordon, v1alpha1.Waiting, true, true},
			{v1alpha1.Cordon, v1alpha1.Cordoned, true, false},
			{v1alpha1.Idle, v1alpha1.Waiting, true, false},
			{v1alpha1.Complete, v1alpha1.Draining, true, false},
		} {
			m := &v1alpha1.NodeMaintenance{Spec: v1alpha1.NodeMaintenanceSpec{Stage: c.want}}
			if got := gatesMatter(m, c.node, c.inWindow); got != c.matters {
				t.Errorf("%+v: got %v", c, got)
			}
		}
	})
}

func TestGateAnswer(t *testing.T) {
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

func TestNoPrometheus(t *testing.T) {
	for _, c := range []struct {
		name   string
		server func(policy.Metrics) (Prometheus, error)
		want   string
	}{
		{"none_in_the_policy", func(policy.Metrics) (Prometheus, error) { return nil, nil }, "the policy names no Prometheus"},
		{"no_certificate", func(policy.Metrics) (Prometheus, error) {
			return (*oracle)(nil), errors.New("ca.crt has no certificate")
		},
			"ca.crt has no certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := New(Config{Prometheus: c.server}).newSession(nil).gates
			want := plan.Gate{Name: "storage", Message: "its query cannot be sent: " + c.want}
			expect.Equal(t, "gate", g.answer("storage", healthy1), want)
		})
	}
}
