package actuator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rehome-dev/rehome/schemas"
)

// publisher calls functions that store something on the bus, at most [numPublishers] in parallel. Its zero value is
// ready to use.
type publisher struct {
	mu      sync.Mutex
	waiting []func()
	running int
	all     sync.WaitGroup
}

// Go calls f in the background. It does not block.
func (p *publisher) Go(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, f)
	if p.running < numPublishers {
		p.running++
		p.all.Go(p.run)
	}
}

// Wait waits until all functions have returned. Only these functions may call Go meanwhile.
func (p *publisher) Wait() { p.all.Wait() }

func (p *publisher) run() {
	for {
		p.mu.Lock()
		if len(p.waiting) == 0 {
			p.running--
			p.mu.Unlock()
			return
		}
		f := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.mu.Unlock()
		f()
	}
}

// conclude stores a verdict of a time, and drops its message if it was the last one.
func (s *session) conclude(v verdictOn, at time.Time) {
	e, err := s.report(v.entry.intent, v.verdict, v.entry.intent.Message, at)
	if err != nil {
		return // the session is over; the next leader finds the intent without a verdict
	}
	s.mu.Lock()
	if x := v.move; x != nil {
		e.Data = nil
		x.reported, x.Cause = true, e
		if !s.follows {
			s.moves.remove(x)
			s.releaseFor(x.at)
			x.Settled = true
			time.AfterFunc(dryRunReservation, func() { s.releaseReservation(x) })
		} else if x.State != nil && x.message != nil {
			x.message.steps[x.uid()] = true
		}
		s.remember(x, s.cfg.Now())
		s.queues.inFlight.Add(x.uid())
	}
	message, done := s.entries.reported(v.entry, s.cfg.Now())
	s.mu.Unlock()
	if done {
		s.drop(message)
	}
}

// publishEnd stores the verdict that ends a move, and then that the move is settled. If the verdict is not stored, the
// next leader finds the move in flight. The caller holds mu.
func (s *session) publishEnd(x *inFlight, e ended) {
	s.settled[x.uid()], x.ending = x, true
	r, v, at := x.record, x.verdict(e), s.cfg.Now()
	s.publishing.Go(func() {
		if _, err := s.report(r.Intent, v, r.Cause, at); err != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		x.ending = false
		delete(s.settled, x.uid())
		if s.moves.all[x.uid()] == nil { // else the pod is moved again, and the record belongs to that move
			s.remember(x, s.cfg.Now())
		}
	})
}

// report publishes, counts, and logs a verdict, and records it as a Kubernetes Event. It retries until the verdict is
// stored. It returns an error only if the session is over first. cause is the event that led to the verdict. The event has
// the time of the decision: those who read verdicts order them by it, and a verdict may be stored late.
func (s *session) report(i Intent, v schemas.Verdict, cause schemas.Event, at time.Time) (schemas.Event, error) {
	if s.lost() {
		return schemas.Event{}, ErrNotLeading
	}
	v.DryRun = s.isDryRun(i)
	if cause.ID == "" {
		cause = i.Message
	}
	e, err := schemas.NewEvent(s.cfg.Source, v, at, cause)
	if err == nil {
		e.ID = verdictID(v)
		err = s.persist(verdictWrites, func() error {
			_, err := s.cfg.Bus.Publish(s.saving, e)
			return err
		}, "pod", v.Intent.Pod.String())
	}
	if err != nil {
		if s.saving.Err() != nil {
			s.cfg.Log.Info("verdict not stored before the end of the session; the next leader decides", append(fields(v), "error", err)...)
		} else {
			s.cfg.Log.Error("verdict lost", append(fields(v), "error", err)...)
		}
		return schemas.Event{}, err
	}
	s.metrics.observe(v, at)
	s.cfg.Log.Log(context.Background(), level(v), "verdict", fields(v)...)
	s.events.record(v, s.policy.Load().FailureEvents)
	return e, nil
}

// verdictID returns the event ID of a verdict. A verdict that is stored again after a crash is the same event.
func verdictID(v schemas.Verdict) string { return v.Intent.ID + "." + string(v.Outcome) }

// drop removes a message from the table. It retries until the message is gone or the session is over. In that case the
// next leader finds the message, and its pods gone.
func (s *session) drop(message schemas.Event) {
	err := s.persist(dropWrites, func() error { return s.cfg.Bus.DropIntents(s.saving, message) }, "message", message.Subject)
	switch {
	case err == nil:
	case s.saving.Err() != nil:
		s.cfg.Log.Info("intents message not dropped before the end of the session; the next leader drops it",
			"message", message.Subject, "error", err)
	default:
		s.cfg.Log.Error("intents message stays in the table", "message", message.Subject, "error", err)
	}
}

func isInvalid(err error) bool { return errors.Is(err, schemas.ErrInvalid) }

func level(v schemas.Verdict) slog.Level {
	missing := v.Instead != nil && v.Instead.Reason == schemas.ReasonForbidden // the pod went, but by another method
	if v.Outcome == schemas.Failed || v.Reason == schemas.ReasonMoveFailed || missing {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func fields(v schemas.Verdict) []any {
	list := []any{
		"outcome", v.Outcome, "dryRun", v.DryRun, "reason", v.Reason, "message", v.Message,
		"pod", v.Intent.Pod.String(), "uid", v.Intent.Pod.UID, "node", v.Intent.Node,
		"profile", v.Profile, "strategy", v.Strategy, "why", v.Intent.Reason, "intent", v.Intent.ID,
	}
	if v.Instead != nil {
		list = append(list, "insteadOf", v.Instead.Method, "insteadReason", v.Instead.Reason, "insteadMessage", v.Instead.Message)
	}
	return list
}

// metrics are the metrics of the actuator.
type metrics struct {
	intents  *prometheus.CounterVec
	verdicts *prometheus.CounterVec
	// evicted is the counter of kubernetes-sigs/descheduler, with its name and labels, for existing dashboards.
	evicted   *prometheus.CounterVec
	delay     prometheus.Histogram
	call      prometheus.Histogram
	settled   *prometheus.HistogramVec
	storm     *prometheus.GaugeVec
	loops     *prometheus.CounterVec
	invalid   prometheus.Gauge
	throttled prometheus.Counter
	rights    *prometheus.GaugeVec

	labels *labelSets
}

// The bounds on series: on pairs of strategy and profile, and on these with a namespace. Values beyond the bounds count
// as [otherLabel].
const (
	mostPairs      = 200
	mostNamespaces = 5000
	otherLabel     = "other"
)

// labelSets are the first combinations of labels in intents. Programs that may publish intents choose these labels, so
// their number is bounded. Safe for concurrent use.
type labelSets struct {
	mu         sync.Mutex
	pairs      map[[2]string]bool
	namespaces map[[3]string]bool
	beyond     bool // there were more
}

// of returns the labels, or [otherLabel] for labels beyond the bounds.
func (l *labelSets) of(strategy, profile, namespace string) (string, string, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !within(l.pairs, [2]string{strategy, profile}, mostPairs) {
		strategy, profile, l.beyond = otherLabel, otherLabel, true
	}
	if !within(l.namespaces, [3]string{strategy, profile, namespace}, mostNamespaces) {
		namespace, l.beyond = otherLabel, true
	}
	return strategy, profile, namespace
}

// Warning returns an error when intents named more profiles or namespaces than the metrics of this process distinguish.
func (a *Actuator) Warning() error {
	l := a.metrics.labels
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.beyond {
		return nil
	}
	return fmt.Errorf("metrics of intents and verdicts: there were more than %d pairs of strategy and profile, "+
		"or %d of these with namespaces; the rest count as %q until a restart", mostPairs, mostNamespaces, otherLabel)
}

// within adds a value to a set that is not full, and reports whether the set has the value.
func within[K comparable](set map[K]bool, value K, most int) bool {
	if !set[value] && len(set) < most {
		set[value] = true
	}
	return set[value]
}

// newMetrics registers the metrics. Gauges of the leader session read it when they are scraped.
//
//nolint:funlen // a flat list of metrics
func newMetrics(r prometheus.Registerer, leading *atomic.Pointer[session]) metrics {
	auto := promauto.With(r)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	ofSession := func(name, help string, value func(*session) int) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			s := leading.Load()
			if s == nil {
				return 0
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(value(s))
		})
	}
	ofSession("rehome_open_intents", "Intents without a verdict.", func(s *session) int { return s.entries.open })
	ofSession("rehome_moves_in_flight", "Moved pods whose replacements are not ready.",
		func(s *session) int { return len(s.moves.all) })
	ofSession("rehome_workload_breakers_open",
		"Open workload circuit breakers: a strategy does not move the pods off a node because they kept returning.",
		func(s *session) int { return s.loop.Open(s.cfg.Now()) })
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := metrics{
		intents: counter("rehome_intents_total",
			"Accepted intents. Each new leader counts the open intents again.", "strategy", "profile"),
		verdicts: counter("rehome_verdicts_total", "Verdicts on intents, including dry runs. method is empty if no move was tried.",
			"outcome", "reason", "method", "strategy", "profile", "namespace"),
		throttled: auto.NewCounter(prometheus.CounterOpts{
			Name: "rehome_intents_throttled_total",
			Help: "Times that an intent waited because its pod got verdicts faster than one per second, after a burst of 20.",
		}),
		evicted: counter("descheduler_pods_evicted_total",
			"Evictions as kubernetes-sigs/descheduler counts them, including dry runs: result is success, "+
				"or error for a permanent failure.",
			"result", "strategy", "profile", "namespace"),
		delay: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rehome_move_delay_seconds",
			Help: "Time from the observation of the oldest cause of a move to the verdict that began it, including dry runs.",
			// 0.2 and 0.5 are the targets for the median and the 99th percentile.
			Buckets: []float64{.05, .1, .2, .3, .5, 1, 2, 5, 10, 30, 60, 300, 600},
		}),
		call: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rehome_eviction_call_seconds",
			Help: "Duration of eviction calls to the API server, for any answer.",
			// A call takes about 100 ms and times out after 15 s.
			Buckets: []float64{.01, .025, .05, .1, .15, .25, .5, 1, 2.5, 5, 10, 15},
		}),
		settled: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rehome_move_settled_seconds",
			Help: "Time from the acceptance of a move to its end, by reason and method.",
			// A replacement with a cached image needs seconds; a move is followed for ten minutes.
			Buckets: []float64{.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600},
		}, []string{"reason", "method"}),
		storm: gauges("rehome_cluster_breaker_open",
			"1 for each reason why all moves have stopped. No series while pods can move.", "reason"),
		loops: counter("rehome_workload_breaker_openings_total",
			"Returns of pods to the node that they had left. Each return opens or extends a workload circuit breaker.", "strategy"),
		rights: gauges("rehome_missing_rights",
			"1 for each method for which the actuator lacks a right. Pods move by the next method.", "method"),
		invalid: auto.NewGauge(prometheus.GaugeOpts{
			Name: "rehome_ledger_invalid_records", Help: "Unreadable ledger records that were set aside.",
		}),
		labels: &labelSets{pairs: map[[2]string]bool{}, namespaces: map[[3]string]bool{}},
	}
	m.endSession()
	return m
}

// endSession resets the fault gauges of a leader session.
func (m metrics) endSession() {
	m.storm.Reset()
	m.invalid.Set(0)
	for _, method := range []schemas.Method{schemas.MethodRestart, schemas.MethodSurge, schemas.MethodEvictionRequest} {
		m.rights.WithLabelValues(string(method)).Set(0)
	}
}

// accepted counts an intent.
func (m metrics) accepted(strategy, profile string) {
	strategy, profile, _ = m.labels.of(strategy, profile, "")
	m.intents.WithLabelValues(strategy, profile).Inc()
}

// observe counts a verdict that was decided at a time.
func (m metrics) observe(v schemas.Verdict, at time.Time) {
	strategy, profile, namespace := m.labels.of(v.Strategy, v.Profile, v.Intent.Pod.Namespace)
	m.verdicts.WithLabelValues(string(v.Outcome), string(v.Reason), string(v.Method), strategy, profile, namespace).Inc()
	if v.Settlement != nil {
		m.settled.WithLabelValues(string(v.Reason), string(v.Method)).Observe(v.Settlement.Seconds)
	}
	if result := evictionResult(v); result != "" {
		m.evicted.WithLabelValues(result, strategy, profile, namespace).Inc()
	}
	if v.Outcome.Moves() && !v.Scope.Since.IsZero() {
		m.delay.Observe(max(at.Sub(v.Scope.Since), 0).Seconds())
	}
}

// evictionResult returns the result of an eviction in the terms of kubernetes-sigs/descheduler, or "" if that would not
// have tried one.
func evictionResult(v schemas.Verdict) string {
	switch v.Outcome {
	case schemas.Evicted, schemas.Restarted, schemas.Requested:
		return "success"
	case schemas.Failed: // a deferred intent is tried again
		return "error"
	}
	return ""
}
