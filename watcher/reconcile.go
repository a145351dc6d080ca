package watcher

import (
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// Reconcile builds the scope of one key from the caches, and returns its event to publish. ok is false when there is none: the scope
// can have no answer, or the group cools down and is requeued.
func (l *lead) Reconcile(p *pending, now time.Time) (e schemas.Event, ok bool) {
	if rest := l.rest(p.evaluation); rest.After(now) {
		l.queue.restore([]*pending{p}, rest)
		return e, false
	}
	b, err := l.build(p, now)
	if b.scope != nil || err != nil {
		l.w.metrics.scopes.WithLabelValues(p.strategy, p.profile).Inc()
	}
	if !b.again.IsZero() {
		l.queue.add(p.evaluation, b.again, schemas.Cause{Kind: schemas.CauseDue, Time: b.again.UTC()}, schemas.Event{})
	}
	if err == nil && !l.publishes(p.evaluation, b) {
		return e, false
	}
	if err == nil {
		e, err = schemas.NewEvent(l.w.config.Source, b.scope, now, p.first)
	}
	if err != nil {
		l.w.log.Error("scope could not be built", "strategy", p.strategy, "scope", p.key, "error", err)
		return e, false
	}
	e.Expires = now.Add(l.w.config.Resync).UTC()
	return e, true
}

// publishes says whether a scope is published: it can have an answer, or it withdraws one.
func (l *lead) publishes(ev evaluation, b built) bool {
	withdraws := l.asked[ev] || l.unsure && !l.offline
	delete(l.asked, ev)
	switch {
	case b.scope == nil:
		return false
	case b.empty:
		return withdraws
	}
	l.asked[ev] = true
	return true
}

// build builds one scope.
func (l *lead) build(p *pending, now time.Time) (built, error) {
	began, moment := time.Now(), l.waiting.now()
	b, err := l.scopes.Build(p, now)
	l.waiting.seek(p.evaluation, b.seeks, moment)
	e, found := l.scopes.plan.find(p.evaluation)
	if err != nil || !found || !e.grouped() {
		return b, err
	}
	l.pace.spent(p.evaluation, began, time.Now())
	return b, nil
}

// rest is when an evaluation may be built: the group is at rest then, and not too much time went into building it.
func (l *lead) rest(ev evaluation) time.Time {
	e, found := l.scopes.plan.find(ev)
	if !found || !e.grouped() || l.offline {
		return time.Time{}
	}
	if e.measured() && !l.scopes.loads.Asked(e.gauged.Load()) {
		return l.w.now().Add(usageSettle)
	}
	rest := l.groups.rest(e, ev.key)
	if paced := l.pace.next(ev); paced.After(rest) {
		return paced
	}
	return rest
}
