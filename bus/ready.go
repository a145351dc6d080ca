package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// readyFor is how long Ready believes that the streams are there: about as often as it is asked by the kubelet.
	readyFor = 10 * time.Second
	// lookWithin bounds how long Ready looks for them: less than the time that probes have.
	lookWithin = 2 * time.Second
)

// Ready is nil when the server answers and has all streams. Otherwise the error says to a person what is wrong; it
// wraps [ErrNotConnected] or [ErrNotSetUp] when it is one of these. It may take 2 seconds.
//
// A right that the server refused in the last minute is also an error, since the call that needed it can only say that
// nobody answered.
func (b *Bus) Ready() error {
	now := time.Now()
	if !b.nc.IsConnected() {
		b.found(time.Time{})
		return b.link.disconnected()
	}
	if err := b.link.deniedSince(now.Add(-deniedFor)); err != nil {
		return fmt.Errorf("bus %s: not permitted: %w", b.link.address, err)
	}
	b.mu.Lock()
	fresh := now.Sub(b.checked) < readyFor
	b.mu.Unlock()
	if fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookWithin)
	defer cancel()
	for _, name := range streamNames() {
		if _, err := b.js.Stream(ctx, name); err != nil {
			return b.explain(now, notSetUp("bus: stream "+name, err))
		}
	}
	b.found(now)
	return nil
}

func (b *Bus) found(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checked = at
}

// explain adds to the error of a call that began at the given time what the call could not know: that the connection is
// gone, or that the server refused it.
func (b *Bus) explain(began time.Time, err error) error {
	if err == nil {
		return nil
	}
	if denied := b.link.deniedSince(began); denied != nil {
		return fmt.Errorf("%w: %w", err, denied)
	}
	if !errors.Is(err, ErrNotConnected) && !b.nc.IsConnected() {
		return fmt.Errorf("%w: %w", err, b.link.disconnected())
	}
	return err
}

// stream returns a handle of a stream. It asks the server only the first time.
func (b *Bus) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	b.mu.Lock()
	s, ok := b.streams[name]
	b.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := b.js.Stream(ctx, name)
	if err != nil {
		return nil, notSetUp("stream "+name, err)
	}
	b.mu.Lock()
	b.streams[name] = s
	b.mu.Unlock()
	return s, nil
}
