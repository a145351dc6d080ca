package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

// readBefore is how far before its start a proofreader begins, because the previous one may have been behind. The bus
// ignores a dead letter that it has stored within the last two minutes, so this must be shorter.
const readBefore = 90 * time.Second

// proofread copies invalid events of the history to the dead letters. No other consumer reads all events.
func (p *process) proofread(ctx context.Context) error {
	return p.bus.Proofread(ctx, p.bus.Now().Add(-readBefore), p.flawOf)
}

// flawOf returns the error in an event of the history: its data does not match its channel, or its source is not a role
// that publishes such events. The error wraps [schemas.ErrInvalid].
func (p *process) flawOf(e schemas.Event) error {
	payload, err := schemas.DecodePayload(e)
	if err != nil {
		return err
	}
	if v, is := payload.(schemas.Verdict); is && !slices.Contains(schemas.Outcomes(), v.Outcome) {
		return fmt.Errorf("event %s: %w: outcome: want one of %v, got %.100q", e.ID, schemas.ErrInvalid, schemas.Outcomes(), v.Outcome)
	}
	if e.Channel != payload.Channel() {
		return fmt.Errorf("event %s: %w: the subject is %s, but its data belongs on %s", e.ID, schemas.ErrInvalid, e.Channel,
			payload.Channel())
	}
	by := schemas.Publishers(e.Type)
	isSource := func(role string) bool { return role != string(bus.RoleOperator) && e.Source == p.settings.Source(role) }
	if !slices.ContainsFunc(by, isSource) {
		return fmt.Errorf("event %s: %w: its source is %q, want %q", e.ID, schemas.ErrInvalid, e.Source, p.settings.Source(by[0]))
	}
	return nil
}
