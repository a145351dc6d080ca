package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const ledgerSubjects = "$KV." + LedgerBucket + "."

// Ledger is the key-value bucket of the actuator. Keys are what NATS takes: letters, digits and - _ = . /. It is safe for
// concurrent use; of changes of one key at the same time the one that is stored last holds.
type Ledger struct{ bus *Bus }

// Ledger returns the bucket, which [Bus.Setup] makes.
func (b *Bus) Ledger() Ledger { return Ledger{b} }

// Entries returns everything in the bucket. It fails with [ErrNotSetUp] or [ErrNotConnected] among others.
func (l Ledger) Entries(ctx context.Context) (map[string][]byte, error) {
	began := time.Now()
	entries, err := l.entries(ctx)
	if err != nil {
		return nil, l.bus.explain(began, fmt.Errorf("read the ledger: %w", err))
	}
	return entries, nil
}

func (l Ledger) entries(ctx context.Context) (map[string][]byte, error) {
	bucket, err := l.bucket(ctx)
	if err != nil {
		return nil, err
	}
	ctx, done := l.bus.link.guard(ctx, api+"CONSUMER.CREATE."+StreamLedger, flowOfLedger)
	defer done()
	watcher, err := bucket.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, because(ctx, err)
	}
	defer l.stop(watcher)
	entries := map[string][]byte{}
	for {
		select {
		case e, ok := <-watcher.Updates():
			switch {
			case !ok:
				return nil, errors.New("the stream of entries broke off")
			case e == nil: // all that there were
				return entries, nil
			}
			entries[e.Key()] = e.Value()
		case <-ctx.Done():
			return nil, because(ctx, ctx.Err())
		case <-time.After(ackWithin):
			return nil, fmt.Errorf("no entry for %v: %w", ackWithin, context.DeadlineExceeded)
		}
	}
}

// Put stores a value under a key, in the place of what was there. It fails as [Bus.Publish] does, and when the bucket is
// full.
func (l Ledger) Put(ctx context.Context, key string, value []byte) error {
	if _, err := l.bus.publish(ctx, &nats.Msg{Subject: ledgerSubjects + key, Data: value}); err != nil {
		return fmt.Errorf("ledger: put %s: %w", key, err)
	}
	return nil
}

// Delete removes a key. nil, too, if there is none.
func (l Ledger) Delete(ctx context.Context, key string) error {
	if !l.bus.nc.IsConnected() {
		return fmt.Errorf("ledger: delete %s: %w", key, l.bus.link.disconnected())
	}
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	began := time.Now()
	stream, err := l.bus.stream(ctx, StreamLedger)
	if err == nil { // not a marker, as the bucket would write: markers outlast what they mark
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(ledgerSubjects+key))
	}
	if err != nil {
		return l.bus.explain(began, fmt.Errorf("ledger: delete %s: %w", key, notSetUp("stream "+StreamLedger, err)))
	}
	return nil
}

// Follow hands over each key with that prefix, which ends in a dot, that is put from now on, until ctx ends. Then it
// returns nil. Losses of the connection are waited out; what is put meanwhile may be missing.
func (l Ledger) Follow(ctx context.Context, prefix string, handle func(key string)) error {
	l.bus.forever(ctx, "ledger", func(ctx context.Context) error {
		bucket, err := l.bucket(ctx)
		if err != nil {
			return err
		}
		ctx, done := l.bus.link.guard(ctx, api+"CONSUMER.CREATE."+StreamLedger, flowOfLedger)
		defer done()
		watcher, err := bucket.Watch(ctx, prefix+">", jetstream.UpdatesOnly(), jetstream.IgnoreDeletes())
		if err != nil {
			return because(ctx, err)
		}
		defer l.stop(watcher)
		for e := range watcher.Updates() {
			if e != nil {
				handle(e.Key())
			}
		}
		return because(ctx, ctx.Err())
	})
	return nil
}

// stop ends a watcher. Where the server does not let it delete its consumer the server does that itself, in a while.
func (l Ledger) stop(w jetstream.KeyWatcher) {
	guarded, done := l.bus.link.guard(context.Background(), api+"CONSUMER.DELETE."+StreamLedger)
	defer done()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = w.Stop()
	}()
	select {
	case <-stopped:
	case <-guarded.Done():
	}
}

func (l Ledger) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if !l.bus.nc.IsConnected() {
		return nil, l.bus.link.disconnected()
	}
	bucket, err := l.bus.js.KeyValue(ctx, LedgerBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("stream %s is missing: %w", StreamLedger, ErrNotSetUp)
	}
	return bucket, err
}
