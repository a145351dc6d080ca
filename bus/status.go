package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// StreamStatus is what a stream holds.
type StreamStatus struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	// MaxBytes is how much it may hold. 0: as much as there is room for.
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// Workers are those who share its messages, by name: one for each strategy. Who only looks on is not among them.
	Workers []WorkerStatus `json:"workers,omitempty"`
}

// WorkerStatus is how far the work for one strategy has come, in all processes that work on it together.
type WorkerStatus struct {
	Strategy string `json:"strategy"`
	// Waiting are the messages that nobody has taken yet, and InHand those that somebody has and is not done with.
	Waiting uint64 `json:"waiting"`
	InHand  int    `json:"inHand"`
	// Again are those in hand, or on their way there, that were handed out before.
	Again int `json:"again"`
	// Idle is how many handlers wait for a message now. None, and nothing in hand: nobody works on it.
	Idle int `json:"idle"`
}

// Status says what each stream holds, in the order of the package comment. It fails with [ErrNotConnected] and [ErrNotSetUp]
// among others.
func (b *Bus) Status(ctx context.Context) ([]StreamStatus, error) {
	return b.status(ctx, b.workers)
}

// StatusFor is [Bus.Status] as far as every process may ask: of the workers only those of these strategies are in it, and only
// where they have a consumer. Without strategies it takes no right but the one to look for the streams; with some, that of who
// works on scopes. The workers are in the order of their names.
func (b *Bus) StatusFor(ctx context.Context, strategies []string) ([]StreamStatus, error) {
	return b.status(ctx, func(ctx context.Context, s jetstream.Stream) ([]WorkerStatus, error) {
		if s.CachedInfo().Config.Name != StreamScopes {
			return nil, nil
		}
		return b.workersFor(ctx, strategies)
	})
}

// status says what each stream holds, with the workers that are asked for.
func (b *Bus) status(
	ctx context.Context, workers func(context.Context, jetstream.Stream) ([]WorkerStatus, error),
) ([]StreamStatus, error) {
	if !b.nc.IsConnected() {
		return nil, fmt.Errorf("status of the streams: %w", b.link.disconnected())
	}
	began := time.Now()
	var all []StreamStatus
	for _, name := range streamNames() {
		s, err := b.statusOf(ctx, name, workers)
		if err != nil {
			return nil, fmt.Errorf("status of the streams: %w", b.explain(began, err))
		}
		all = append(all, s)
	}
	return all, nil
}

func (b *Bus) statusOf(
	ctx context.Context, name string, workers func(context.Context, jetstream.Stream) ([]WorkerStatus, error),
) (StreamStatus, error) {
	s, err := b.js.Stream(ctx, name)
	if err != nil {
		return StreamStatus{}, notSetUp("stream "+name, err)
	}
	info := s.CachedInfo()
	status := StreamStatus{
		Name: name, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxBytes: max(info.Config.MaxBytes, 0),
	}
	if status.Workers, err = workers(ctx, s); err != nil {
		return StreamStatus{}, err
	}
	slices.SortFunc(status.Workers, func(a, b WorkerStatus) int { return cmp.Compare(a.Strategy, b.Strategy) })
	return status, nil
}

// workers are all that a stream has.
func (b *Bus) workers(ctx context.Context, s jetstream.Stream) ([]WorkerStatus, error) {
	var workers []WorkerStatus
	list := s.ListConsumers(ctx)
	for c := range list.Info() {
		if c.Config.Durable != "" {
			workers = append(workers, workerOf(c))
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("consumers of stream %s: %w", s.CachedInfo().Config.Name, err)
	}
	return workers, nil
}

// workersFor asks for one worker after the other.
func (b *Bus) workersFor(ctx context.Context, strategies []string) ([]WorkerStatus, error) {
	var workers []WorkerStatus
	for _, strategy := range strategies {
		c, err := b.js.Consumer(ctx, StreamScopes, schemas.Token(strategy))
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("consumer of %s: %w", strategy, err)
		}
		workers = append(workers, workerOf(c.CachedInfo()))
	}
	return workers, nil
}

func workerOf(c *jetstream.ConsumerInfo) WorkerStatus {
	strategy, ok := schemas.FromToken(c.Name)
	if !ok {
		strategy = c.Name
	}
	return WorkerStatus{
		Strategy: strategy, Waiting: c.NumPending, InHand: c.NumAckPending, Again: c.NumRedelivered, Idle: c.NumWaiting,
	}
}

// DeadCounts counts the dead letters by the stream that their messages were in. A stream without any is not in it. It fails
// with [ErrNotConnected] and [ErrNotSetUp] among others.
func (b *Bus) DeadCounts(ctx context.Context) (map[string]uint64, error) {
	if !b.nc.IsConnected() {
		return nil, fmt.Errorf("count dead letters: %w", b.link.disconnected())
	}
	began := time.Now()
	stream, err := b.stream(ctx, StreamDead)
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", b.explain(began, err))
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(DeadChannels))
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", b.explain(began, notSetUp("stream "+StreamDead, err)))
	}
	counts := map[string]uint64{}
	for subject, n := range info.State.Subjects {
		of, _, _ := strings.Cut(strings.TrimPrefix(subject, deadSubjects), ".")
		counts[of] += n
	}
	return counts, nil
}

// OpenRequest is a request that is not finished.
type OpenRequest struct {
	schemas.Event
	// Stored is when the server stored it, by its clock.
	Stored time.Time
}

// OpenRequests reads the requests that are open, oldest first. What is no event is left out. It fails with [ErrNotConnected]
// and [ErrNotSetUp] among others.
func (b *Bus) OpenRequests(ctx context.Context) ([]OpenRequest, error) {
	if !b.nc.IsConnected() {
		return nil, fmt.Errorf("read requests: %w", b.link.disconnected())
	}
	began := time.Now()
	var open []OpenRequest
	err := b.readWhole(ctx, StreamRequests, everything(), 0, func(l letter) error {
		if e, err := l.event(); err == nil {
			open = append(open, OpenRequest{e, l.Stored})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read requests: %w", b.explain(began, err))
	}
	return open, nil
}
