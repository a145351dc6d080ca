package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
)

// stepNames are the steps from a taint to the last verdict, in order; each ends where the next begins.
var stepNames = [...]string{
	"1 taint sent → delta observed by rehome",
	"2 delta → scope (10 ms are the settling)",
	"3 scope → intents (stored, handed out, decided)",
	"4 intents → first eviction arrives at the API server (stored, handed out, pod checked)",
	"5 first eviction arrives → answered (inside the API server)",
	"6 first answered → last arrives",
	"7 last arrives → answered (inside the API server)",
	"8 last answered → verdict",
}

// history holds the events of Rehome by node or pod, each list in order.
type history struct {
	deltas   map[string][]time.Time
	answers  map[string][]answer
	verdicts map[types.UID]time.Time
}

// answer is when a scope was made and when it was answered.
type answer struct{ scope, answered time.Time }

// readHistory reads the history of the bus of a rehome process since a time. That is done after the measurement, so that
// reading does not disturb it.
func readHistory(ctx context.Context, store string, since time.Time) (history, error) {
	h := history{deltas: map[string][]time.Time{}, answers: map[string][]answer{}, verdicts: map[types.UID]time.Time{}}
	b, err := bus.Connect(bus.Options{
		Name: "bench", Socket: filepath.Join(store, "bus.sock"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return h, err
	}
	defer b.Close()
	for b.Ready() != nil {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return h, fmt.Errorf("bus of rehome: %w", b.Ready())
		}
	}
	return h, b.Events(ctx, bus.Query{Since: since}, h.add)
}

// add keeps the time of one event. It ignores events of other kinds and unreadable ones.
func (h history) add(e schemas.Event) error {
	switch e.Type {
	case schemas.DeltaType:
		d, err := schemas.Decode[schemas.Delta](e)
		if err == nil && d.Kind == schemas.NodeTaints && d.After != nil &&
			slices.ContainsFunc(d.After.Taints, func(t corev1.Taint) bool { return t.Key == taintKey }) {
			h.deltas[d.Object.Name] = append(h.deltas[d.Object.Name], e.Time)
		}
	case schemas.IntentsType:
		a, err := schemas.Decode[schemas.Intents](e)
		if err == nil && len(a.Intents) > 0 {
			// An intent expires a fixed time after the moment of its scope.
			scope := a.Intents[0].Expires.Add(-functions.IntentTTL)
			h.answers[a.Scope.Key] = append(h.answers[a.Scope.Key], answer{scope, e.Time})
		}
	case schemas.VerdictType:
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil && v.Outcome == schemas.Evicted {
			h.verdicts[v.Intent.Pod.UID] = e.Time
		}
	}
	return nil
}

// steps returns the durations of stepNames for one node; nil when an event is missing, as an answer can be that was
// settled before it was copied to the history.
func (h history) steps(e emptied, at span) []time.Duration {
	delta, ok := firstAfter(h.deltas[e.node], e.sent, func(t time.Time) time.Time { return t })
	if !ok {
		return nil
	}
	a, ok := firstAfter(h.answers[e.node], delta, func(a answer) time.Time { return a.answered })
	if !ok || a.answered.After(at.lastReceived) {
		return nil
	}
	var verdict time.Time
	for uid := range e.pods {
		if t := h.verdicts[uid]; t.After(verdict) {
			verdict = t
		}
	}
	moments := [...]time.Time{
		e.sent, delta, a.scope, a.answered, at.firstReceived, at.firstCompleted, at.lastReceived, at.lastCompleted, verdict,
	}
	steps := make([]time.Duration, len(moments)-1)
	for i := range steps {
		steps[i] = moments[i+1].Sub(moments[i])
	}
	return steps
}

// firstAfter returns the first of list at or after t.
func firstAfter[T any](list []T, t time.Time, when func(T) time.Time) (first T, ok bool) {
	i := slices.IndexFunc(list, func(x T) bool { return !when(x).Before(t) })
	if i < 0 {
		return first, false
	}
	return list[i], true
}
