package bus

import (
	"context"
	"errors"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// What [Bus.Proofread] buries at most: what somebody publishes by mistake is less, and a flood must not push the letters of
// others out of their stream.
const (
	mostBuried  = 300         // at once
	buriedAgain = time.Second // and then one in this time
)

// Proofread reads the deltas, verdicts, receipts and maintenances of the history from a time on, and what is stored from then
// on, until ctx ends. Then it returns nil. What is no event goes to the dead letters, and so does what flaw returns an error
// for; of more than 300 at once, and then one in a second, the others are counted in the log. They stay in the history. One
// process should do this; of two, each buries for itself. flaw is called for one event at a time.
func (b *Bus) Proofread(ctx context.Context, since time.Time, flaw func(schemas.Event) error) error {
	h := &history{
		bus: b, proof: &proof{bus: b, flaw: flaw, left: mostBuried, at: time.Now()},
		query: Query{
			Channels: []string{DeltaChannels, VerdictChannels, ReceiptChannels, MaintenanceChannels}, Since: since, Follow: true,
		},
	}
	b.forever(ctx, "history, to proofread it", h.follow)
	return nil
}

// proof is one call of [Bus.Proofread].
type proof struct {
	bus  *Bus
	flaw func(schemas.Event) error

	left   int       // how many may be buried
	at     time.Time // when left was true
	beyond int       // how many were not buried since the log said so
	said   time.Time // when it did
}

// read looks at one message, which is the event e unless it is wrong. It fails when it is to be read again.
func (p *proof) read(ctx context.Context, l letter, e schemas.Event, wrong error) error {
	if wrong == nil {
		wrong = p.flaw(e)
	}
	now := time.Now()
	if p.beyond > 0 && now.Sub(p.said) >= time.Minute {
		p.bus.log.Error("events of the history cannot be read, and are too many for the dead letters", "count", p.beyond)
		p.beyond, p.said = 0, now
	}
	if wrong == nil {
		return nil
	}
	if !p.may(now) {
		p.beyond++
		return nil
	}
	err := p.bus.bury(ctx, l, p.bus.name, wrong)
	if errors.Is(err, ErrNotPermitted) {
		p.bus.log.Error("an event of the history is wrong, and must not be buried", "channel", l.Subject, "why", wrong, "error", err)
		return nil
	}
	return err
}

// may says whether one more may be buried now, and counts it if so.
func (p *proof) may(now time.Time) bool {
	if n := int(now.Sub(p.at) / buriedAgain); n > 0 {
		p.left, p.at = min(mostBuried, p.left+n), p.at.Add(time.Duration(n)*buriedAgain)
	}
	if p.left == 0 {
		return false
	}
	p.left--
	return true
}
