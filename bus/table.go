package bus

import (
	"context"
	"errors"
	"time"
)

// handAgain says when a row that could not be handled is handed over again.
func handAgain() backoff { return backoff{first: 200 * time.Millisecond, most: 10 * time.Second} }

// followTable hands over every message of a stream that is a table, oldest first, and then each new one, one at a time, until
// ctx ends. After a loss of the connection it begins with the whole table again. What take fails with is logged, and the
// message handed over again after a growing delay unless a newer one of its subject has come. The context of take ends with
// the connection.
func (b *Bus) followTable(ctx context.Context, stream, noun string, take func(context.Context, letter) error) {
	b.forever(ctx, "stream "+stream, func(ctx context.Context) error {
		r, err := b.read(ctx, stream, everything())
		if err != nil {
			return err
		}
		defer r.close()
		t := table{bus: b, noun: noun, try: take, again: make(map[string]row)}
		for {
			if err := t.step(ctx, r); err != nil {
				return err
			}
		}
	})
}

// table is one pass of [Bus.followTable].
type table struct {
	bus   *Bus
	noun  string // what a row is called in the log
	try   func(context.Context, letter) error
	again map[string]row // rows to hand over again, by channel
}

// row is one message of a table, and how often handling it has failed.
type row struct {
	letter   letter
	failures int
	due      time.Time
}

// step handles the next row that comes, or one that is due again.
func (t *table) step(ctx context.Context, r *reader) error {
	wait, cancel := ctx, context.CancelFunc(func() {})
	first, due := t.first()
	if due {
		wait, cancel = context.WithDeadline(ctx, first.due)
	}
	defer cancel()
	m, meta, err := r.next(wait)
	switch {
	case due && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		t.take(ctx, first)
		return nil
	case err != nil:
		return err
	}
	t.take(ctx, row{letter: letterOf(m, meta)})
	return nil
}

// first is the row that is due first, if any is to be handed over again.
func (t *table) first() (first row, found bool) {
	for _, r := range t.again {
		if !found || r.due.Before(first.due) {
			first, found = r, true
		}
	}
	return first, found
}

// take hands a row over and sees to what comes of it.
func (t *table) take(ctx context.Context, r row) {
	delete(t.again, r.letter.Subject)
	err := t.try(ctx, r.letter)
	if err == nil || ctx.Err() != nil {
		return
	}
	r.failures++
	r.due = time.Now().Add(handAgain().after(r.failures))
	t.again[r.letter.Subject] = r
	t.bus.log.Warn("what was handed over could not be handled, trying again",
		"what", t.noun, "channel", r.letter.Subject, "failures", r.failures, "error", err)
}
