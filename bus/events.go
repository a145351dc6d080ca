package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// Query says which events of the history to read.
type Query struct {
	// Channels are NATS subjects, with wildcards, that must not overlap. Empty: all that the history has.
	Channels []string
	// Since leaves out what was stored before. Zero: everything, or with Follow nothing but what is stored from now on.
	Since time.Time
	// Follow goes on with what is stored from now on.
	Follow bool
}

// Events hands over events of the history in the order in which they were stored, one at a time. Answers are copied to
// the history, so one can come after the first verdict about it, and one that was replaced or dropped before it was
// copied is missing. Copying takes milliseconds, and up to a few seconds after a server of the two streams has started.
//
// Without Follow it returns when it has handed over what was there at the beginning. With Follow it returns nil when
// ctx ends: losses of the connection are waited out, and it goes on after the last event that it handed over, so none
// is handed over twice. If the history itself was lost, it waits until there is one again and begins at its start.
//
// It returns the error of handle as it is. What cannot be read is logged and left out; [Bus.Proofread] buries it.
func (b *Bus) Events(ctx context.Context, q Query, handle func(schemas.Event) error) error {
	if len(q.Channels) == 0 {
		q.Channels = []string{DeltaChannels, IntentsChannels, VerdictChannels, ReceiptChannels, MaintenanceChannels}
	}
	h := &history{bus: b, query: q, handle: handle}
	if !q.Follow {
		return h.replay(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.forever(ctx, "history", func(ctx context.Context) error {
		err := h.follow(ctx)
		if h.refused != nil {
			cancel()
		}
		return err
	})
	return h.refused
}

// history is one call of [Bus.Events].
type history struct {
	bus    *Bus
	query  Query
	handle func(schemas.Event) error

	made    time.Time // when the stream was made; zero: not looked at yet
	last    uint64    // the last event that was handed over or left out
	refused error     // what handle returned
	proof   *proof    // what cannot be read is buried; nil: it is logged and left out
}

// replay reads what is there.
func (h *history) replay(ctx context.Context) error {
	if !h.bus.nc.IsConnected() {
		return fmt.Errorf("read events: %w", h.bus.link.disconnected())
	}
	began := time.Now()
	err := h.whole(ctx)
	if err != nil && h.refused == nil {
		return fmt.Errorf("read events: %w", h.bus.explain(began, err))
	}
	return err
}

func (h *history) whole(ctx context.Context) error {
	s, err := h.bus.js.Stream(ctx, StreamEvents)
	if err != nil {
		return notSetUp("stream "+StreamEvents, err)
	}
	end := s.CachedInfo().State.LastSeq
	if end == 0 {
		return nil
	}
	return h.bus.readWhole(ctx, StreamEvents, h.config(), end, func(l letter) error { return h.take(ctx, l) })
}

// follow reads what is there and what comes, after what was read before.
func (h *history) follow(ctx context.Context) error {
	s, err := h.bus.js.Stream(ctx, StreamEvents)
	if err != nil {
		return notSetUp("stream "+StreamEvents, err)
	}
	h.resume(s.CachedInfo())
	r, err := h.bus.read(ctx, StreamEvents, h.config())
	if err != nil {
		return err
	}
	defer r.close()
	for {
		m, meta, err := r.next(ctx)
		if err != nil {
			return err
		}
		if err := h.take(ctx, letterOf(m, meta)); err != nil {
			return err
		}
	}
}

// resume finds out where to go on in the stream as it is now: at the first time, whether that is at its end; later,
// whether it is still the stream that was read before.
func (h *history) resume(now *jetstream.StreamInfo) {
	switch {
	case h.made.IsZero() && h.query.Since.IsZero():
		h.last = now.State.LastSeq
	case !h.made.IsZero() && !h.made.Equal(now.Created):
		h.last = 0
	}
	h.made = now.Created
}

// config asks for everything after the last event or, before the first, since the time of the query.
func (h *history) config() jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{FilterSubjects: h.query.Channels}
	if h.last == 0 && !h.query.Since.IsZero() {
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &h.query.Since
	} else {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, h.last+1
	}
	return c
}

func (h *history) take(ctx context.Context, l letter) error {
	e, err := l.event()
	switch {
	case h.proof != nil:
		if err := h.proof.read(ctx, l, e, err); err != nil {
			return err
		}
	case errors.Is(err, schemas.ErrInvalid):
		h.bus.log.Warn("an event of the history cannot be read", "error", err)
	case err == nil:
		if h.refused = h.handle(e); h.refused != nil {
			return h.refused
		}
	}
	h.last = l.Sequence
	return nil
}
