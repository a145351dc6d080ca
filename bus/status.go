package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// StreamStatus is the content of a stream.
type StreamStatus struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	// MaxBytes is its limit in bytes. 0 means no limit.
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// MaxMessages is its limit of messages. 0 means no limit.
	MaxMessages int64 `json:"maxMessages,omitempty"`
	// Workers are the durable consumers that share its messages, by name: one for each strategy or listener.
	Workers []WorkerStatus `json:"workers,omitempty"`
}

// WorkerStatus is the progress of one strategy, over all its processes.
type WorkerStatus struct {
	Strategy string `json:"strategy"`
	// Waiting are the undelivered messages, and InHand the delivered and unacknowledged ones.
	Waiting uint64 `json:"waiting"`
	InHand  int    `json:"inHand"`
	// Again are the messages in InHand that were delivered more than once.
	Again int `json:"again"`
	// Idle is the number of handlers that wait for a message now. If it and InHand are 0, no process works on it.
	Idle int `json:"idle"`
}

// Status returns the content of each stream, with all of its workers. Its errors include [ErrNotConnected] and
// [ErrNotSetUp].
func (b *Bus) Status(ctx context.Context) ([]StreamStatus, error) {
	return b.status(ctx, func(s jetstream.Stream) (workers []*jetstream.ConsumerInfo, err error) {
		list := s.ListConsumers(ctx)
		for c := range list.Info() {
			if c.Config.Durable != "" {
				workers = append(workers, c)
			}
		}
		if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return nil, err
		}
		return workers, nil
	})
}

// StatusFor is [Bus.Status] with only the workers of these strategies, if they have a consumer. It needs only the
// rights of a process that works on their scopes.
func (b *Bus) StatusFor(ctx context.Context, strategies []string) ([]StreamStatus, error) {
	return b.status(ctx, func(s jetstream.Stream) (workers []*jetstream.ConsumerInfo, err error) {
		if b.js.prefix.cut(s.CachedInfo().Config.Name) != StreamScopes {
			return nil, nil
		}
		for _, strategy := range strategies {
			c, err := s.Consumer(ctx, schemas.Token(strategy))
			if err == nil {
				workers = append(workers, c.CachedInfo())
			} else if !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return nil, err
			}
		}
		return workers, nil
	})
}

// status returns the content of each stream, with the consumers that workers returns.
func (b *Bus) status(
	ctx context.Context, workers func(jetstream.Stream) ([]*jetstream.ConsumerInfo, error),
) (all []StreamStatus, err error) {
	err = b.do("status of the streams", func() error {
		for _, name := range streams() {
			sent := b.clock.local()
			s, err := b.open(ctx, name)
			if err != nil {
				return err
			}
			info := s.CachedInfo()
			b.compareClocks(sent, info.TimeStamp)
			status := StreamStatus{
				Name: name, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxBytes: max(info.Config.MaxBytes, 0),
				MaxMessages: max(info.Config.MaxMsgs, 0),
			}
			consumers, err := workers(s)
			if err != nil {
				return fmt.Errorf("consumers of stream %s: %w", name, err)
			}
			for _, c := range consumers {
				strategy, ok := schemas.FromToken(c.Name)
				if !ok {
					strategy = c.Name
				}
				status.Workers = append(status.Workers, WorkerStatus{
					Strategy: strategy, Waiting: c.NumPending, InHand: c.NumAckPending, Again: c.NumRedelivered, Idle: c.NumWaiting,
				})
			}
			slices.SortFunc(status.Workers, func(a, b WorkerStatus) int { return cmp.Compare(a.Strategy, b.Strategy) })
			all = append(all, status)
		}
		return nil
	})
	return all, err
}
