package actuator

import (
	"context"
	"errors"
	"log/slog"

	"github.com/rehome-dev/rehome/schemas"
)

// report is the one place that a verdict goes out from. It stores the verdict on the bus, trying again until it is
// stored or the term has ended, and then counts it, logs it and records it as a Kubernetes Event. It returns an error
// when the verdict was not stored. cause is the event that led to it.
func (s *session) report(open Open, v schemas.Verdict, cause schemas.Event) (schemas.Event, error) {
	if s.lost() {
		return schemas.Event{}, ErrNotLeading
	}
	v.DryRun = s.pretended(open)
	now := s.cfg.Now()
	if cause.ID == "" {
		cause = open.Answer
	}
	e, err := schemas.NewEvent(s.cfg.Source, v, now, cause)
	if err == nil {
		e.ID = verdictID(v)
		err = s.store(e, "verdicts", "pod", v.Intent.Pod.String())
	}
	if err != nil {
		s.cfg.Log.Error("verdict lost", append(fields(v), "error", err)...)
		return schemas.Event{}, err
	}
	s.metrics.observe(v, now)
	s.cfg.Log.Log(context.Background(), level(v), "verdict", fields(v)...)
	s.events.record(v, s.policy.Load().FailureEvents)
	return e, nil
}

// verdictID is the ID of the event of a verdict: a verdict that is stored again after a crash is the same event.
func verdictID(v schemas.Verdict) string { return v.Intent.ID + "." + string(v.Outcome) }

// store publishes e, trying again until it is stored, or the term has ended, or it turns out to be invalid. what names events
// of its kind in the log, with about, a key and its value.
func (s *session) store(e schemas.Event, what string, about ...any) error {
	err := persist(s.saving, func() error {
		_, err := s.cfg.Bus.Publish(s.saving, e)
		return err
	}, isInvalid, func(err error) {
		if s.busAway.CompareAndSwap(false, true) { // said once, not for each of the events in flight
			s.cfg.Log.Warn("events cannot be stored, trying again", append(about, "events", what, "error", err)...)
		}
	})
	if err == nil && s.busAway.CompareAndSwap(true, false) {
		s.cfg.Log.Info("events are stored again", "events", what)
	}
	return err
}

// drop removes a settled answer from the bus's table, trying again until it is gone or the term has ended. In that
// case the next leader finds it and its pods gone.
func (s *session) drop(answer schemas.Event) {
	if answer.Sequence == 0 {
		return // known from the history only; the table has it no more, or will say so
	}
	err := persist(s.saving, func() error { return s.cfg.Bus.DropIntents(s.saving, answer) }, isInvalid, func(err error) {
		if s.busAway.CompareAndSwap(false, true) {
			s.cfg.Log.Warn("settled answer cannot be dropped, trying again", "answer", answer.Subject, "error", err)
		}
	})
	if err != nil {
		s.cfg.Log.Error("settled answer stays in the table", "answer", answer.Subject, "error", err)
	}
}

func isInvalid(err error) bool { return errors.Is(err, schemas.ErrInvalid) }

func level(v schemas.Verdict) slog.Level {
	missing := v.Instead != nil && v.Instead.Reason == schemas.ReasonForbidden // the pod went, but not as was wanted
	if v.Outcome == schemas.Failed || missing {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func fields(v schemas.Verdict) []any {
	list := []any{
		"outcome", v.Outcome, "reason", v.Reason, "message", v.Message,
		"pod", v.Intent.Pod.String(), "uid", v.Intent.Pod.UID, "node", v.Intent.Node,
		"profile", v.Profile, "strategy", v.Strategy, "why", v.Intent.Reason, "intent", v.Intent.ID, "dryRun", v.DryRun,
	}
	if v.Instead != nil {
		list = append(list, "insteadOf", v.Instead.Method, "insteadReason", v.Instead.Reason, "insteadMessage", v.Instead.Message)
	}
	return list
}
