package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// The streams.
const (
	StreamScopes   = "REHOME_SCOPES"
	StreamIntents  = "REHOME_INTENTS"
	StreamRequests = "REHOME_REQUESTS"
	StreamEvents   = "REHOME_EVENTS"
	StreamDead     = "REHOME_DEAD"
	StreamLedger   = "KV_" + LedgerBucket

	StreamMaintenances = "KV_" + MaintenanceBucket
)

// streamNames are the names of all streams.
func streamNames() [7]string {
	return [...]string{
		StreamScopes, StreamIntents, StreamRequests, StreamEvents, StreamDead, StreamLedger, StreamMaintenances,
	}
}

// LedgerBucket is the JetStream key-value bucket of the actuator.
const LedgerBucket = "REHOME_LEDGER"

// MaintenanceBucket is the JetStream key-value bucket of the maintenances that were asked for on the bus.
const MaintenanceBucket = "REHOME_MAINTENANCES"

// The channels, as filters that match all events of one kind.
const (
	ScopeChannels   = schemas.Prefix + ".scope.>"
	IntentsChannels = schemas.Prefix + ".intents.>"
	DeltaChannels   = schemas.Prefix + ".delta.>"
	VerdictChannels = schemas.Prefix + ".verdict.>"
	RequestChannels = schemas.Prefix + ".request.>"
	ReceiptChannels = schemas.Prefix + ".receipt.>"
	DeadChannels    = schemas.Prefix + ".dead.>"
	// MaintenanceChannels are those on which is said how far maintenances are. Their scopes and answers are on the channels of
	// all others.
	MaintenanceChannels = schemas.Prefix + ".maintenance.>"
)

const (
	// DefaultHistory lets people find on a Monday what happened on Friday evening.
	DefaultHistory = 72 * time.Hour
	// DefaultMaxBytes is what all streams may hold together: the largest known cluster has 5,000 nodes, whose scopes of
	// 110 pods at 2 KB come to about 1 GB if all of them wait at once.
	DefaultMaxBytes = 1536 << 20
	// DefaultAckWait is how long the server waits for word from a worker: what a worker that died had in hand, or what was
	// lost on its way when a server stopped, is late by this. However long its handler takes, a worker that lives reports
	// every third of it.
	DefaultAckWait = 20 * time.Second
	// DefaultMaxDeliver is how often a scope is tried. With the delays of [Work] that takes about half a minute.
	DefaultMaxDeliver = 6

	// stepWithin is how long one stream or consumer may take to be made: far longer than a cluster with a leader needs.
	stepWithin = 5 * time.Second
	// workAge is how long scopes and answers are kept. Everything is evaluated again by the watcher's resync, twice in
	// that time by default, so what is older speaks of a cluster that is no more.
	workAge = time.Hour
	// requestAge is how long requests are kept: longer than the latest deadline that one can have, so that who works on it
	// sees it end.
	requestAge = 25 * time.Hour
	// maxRequests bounds how many are open at once, and maxRequest how large each may be: one that names as many pods as it
	// may needs about 100 bytes for each, and whoever names so many leaves out their UIDs.
	maxRequests = 10_000
	maxRequest  = 64 << 10
	// maxMaintenance is how large a maintenance of one node may be: it lists twenty pods that cannot move, each with a reason.
	maxMaintenance = 256 << 10
	// deadAge is how long dead letters are kept: longer than holidays of a few days.
	deadAge = 7 * 24 * time.Hour
	// ledgerAge bounds how long the actuator can remember anything: longer than the longest window of a limit.
	ledgerAge = 25 * time.Hour
	// duplicates is how long the history recognises an event that was stored before: the server's own default, far above
	// the time for which a publisher tries again.
	duplicates = 2 * time.Minute
	// copyingWithin is how long Setup waits until answers are copied. If the first attempt of the server fails, the next
	// one comes only after 10 s, and nothing but the history depends on it.
	copyingWithin = 2 * time.Second
	// maxAckPending is how many scopes of one strategy are handed out at once, to all workers together: what is handed out
	// can no longer be replaced by a newer scope without being worked on twice.
	maxAckPending = 16
)

// Setup says how the streams are laid out. The zero value is right for an embedded server without strategies.
type Setup struct {
	// Strategies are the names of all strategies that scopes are published for. The consumers of others are left alone.
	Strategies []string
	// Replicas is on how many servers each stream is stored: 1, 3 or 5. Zero: 1.
	Replicas int
	// History is how long deltas, answers, verdicts, receipts and maintenances are kept. Zero: [DefaultHistory].
	History time.Duration
	// MaxBytes bounds all streams together, on each server. The history, requests and maintenances get nine sixteenths of it,
	// requests and maintenances a thirty-sixth of that each, scopes a quarter, answers, dead letters and the actuator's ledger a
	// sixteenth each; when one is full, its oldest events go, but of requests, maintenances and the ledger, which take nothing
	// more. Zero: [DefaultMaxBytes].
	MaxBytes int64
	// AckWait is how long the server waits for word from a worker. Zero: [DefaultAckWait].
	AckWait time.Duration
	// MaxDeliver is how often a scope is tried before it becomes a dead letter. Zero: [DefaultMaxDeliver].
	MaxDeliver int
	// ScopesInMemory keeps scopes in the memory of the server instead of on its disk. It is for a server inside a rehome
	// process: its watcher evaluates everything when it starts, so a restart loses no evaluation.
	ScopesInMemory bool
	// Parallel says of a strategy how many of its scopes are worked on at once, where that is more than usual. Others get 16
	// handed out at once.
	Parallel map[string]int
}

// handedOut is how many scopes of a strategy are handed out at once if so many are worked on. Those that wait for their next
// try are among them, and must not keep the others from being worked on.
func handedOut(parallel int) int { return max(maxAckPending, 2*parallel) }

// Setup makes the streams and consumers, or changes those that exist to what s says. Calling it again changes nothing.
// It must not be called by two processes with different settings. How long an event is kept can be changed at any
// time; so can the number of replicas.
func (b *Bus) Setup(ctx context.Context, s Setup) error {
	s.Replicas = cmp.Or(s.Replicas, 1)
	s.History = cmp.Or(s.History, DefaultHistory)
	s.MaxBytes = cmp.Or(s.MaxBytes, DefaultMaxBytes)
	s.AckWait = cmp.Or(s.AckWait, DefaultAckWait)
	s.MaxDeliver = cmp.Or(s.MaxDeliver, DefaultMaxDeliver)
	if !b.nc.IsConnected() {
		return fmt.Errorf("set up the bus: %w", b.link.disconnected())
	}
	began := time.Now()
	for _, config := range s.layout(began) {
		if err := bounded(ctx, func(ctx context.Context) error { return b.setUpStream(ctx, config) }); err != nil {
			return b.explain(began, fmt.Errorf("set up stream %s: %w", config.Name, err))
		}
	}
	for _, strategy := range s.Strategies {
		if err := bounded(ctx, func(ctx context.Context) error {
			_, err := b.js.CreateOrUpdateConsumer(ctx, StreamScopes, s.consumer(strategy))
			return err
		}); err != nil {
			return b.explain(began, fmt.Errorf("set up the consumer of %s: %w", strategy, err))
		}
	}
	b.awaitCopying(ctx)
	return nil
}

// bounded gives one step of the setup its own time: a cluster that has no leader yet does not answer at all, and the
// whole time of the caller would go into the first question.
func bounded(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	return step(ctx)
}

// setUpStream makes a stream, or changes the one that there is, which keeps the number that it began with: the server
// would throw away what has a lower one.
func (b *Bus) setUpStream(ctx context.Context, config jetstream.StreamConfig) error {
	there, err := b.js.Stream(ctx, config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = b.js.CreateStream(ctx, config)
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
		there, err = b.js.Stream(ctx, config.Name) // another process has just made it
	}
	if err != nil {
		return err
	}
	if there.CachedInfo().Config.Storage != config.Storage { // a server does not change it; the stream begins empty
		if err := b.js.DeleteStream(ctx, config.Name); err != nil {
			return err
		}
		_, err := b.js.CreateStream(ctx, config)
		return err
	}
	config.FirstSeq = there.CachedInfo().Config.FirstSeq
	_, err = b.js.UpdateStream(ctx, config)
	return err
}

// awaitCopying waits until the history copies answers, which takes the server 100 to 200 ms. An answer that is replaced
// before that is missing from the history.
func (b *Bus) awaitCopying(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, copyingWithin)
	defer cancel()
	for ctx.Err() == nil {
		s, err := b.js.Stream(ctx, StreamEvents)
		if err == nil && len(s.CachedInfo().Sources) == 1 && s.CachedInfo().Sources[0].Active >= 0 {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
	b.log.Warn("the history does not copy answers yet; the server tries again by itself", "stream", StreamEvents)
}

// layout lists the streams, each after those that it copies.
//
// Of scopes and answers the one with the higher number is the newer one, also when the streams were lost and made anew:
// roles that lived on know the old numbers. So the numbers begin with the time now in microseconds, which is above every
// number given before as long as fewer than a million a second are stored.
func (s Setup) layout(now time.Time) []jetstream.StreamConfig {
	share := s.MaxBytes / 16
	first := uint64(now.UnixMicro())
	streams := []jetstream.StreamConfig{{
		Name:        StreamScopes,
		Description: "work for functions: the newest scope of each key, until it is answered",
		Subjects:    []string{ScopeChannels},
		FirstSeq:    first,
		Retention:   jetstream.WorkQueuePolicy,
		// One message a key, and the old one gives way: a change during an evaluation is evaluated too.
		MaxMsgsPerSubject: 1,
		MaxAge:            workAge,
		MaxBytes:          4 * share,
	}, {
		Name:              StreamIntents,
		Description:       "a table: the newest answer to each scope, until it is settled",
		Subjects:          []string{IntentsChannels},
		FirstSeq:          first,
		Retention:         jetstream.LimitsPolicy,
		MaxMsgsPerSubject: 1,
		MaxAge:            workAge,
		MaxBytes:          share,
		// Reads must go to the leader: a replica may not have the answer yet that an empty one has to withdraw.
		AllowDirect: false,
	}, requests(share/4, first), {
		Name:        StreamEvents,
		Description: "history of deltas, answers, verdicts, receipts and maintenances",
		Subjects:    []string{DeltaChannels, VerdictChannels, ReceiptChannels, MaintenanceChannels},
		Sources:     []*jetstream.StreamSource{{Name: StreamIntents}},
		Retention:   jetstream.LimitsPolicy,
		MaxAge:      s.History,
		MaxBytes:    9*share - 2*(share/4),
		Duplicates:  min(duplicates, s.History),
		Compression: jetstream.S2Compression,
	}, {
		Name:        StreamDead,
		Description: "what could not be read or worked on, with its error",
		Subjects:    []string{DeadChannels},
		Retention:   jetstream.LimitsPolicy,
		MaxAge:      deadAge,
		MaxBytes:    share,
		Duplicates:  duplicates,
	}, ledger(share), maintenances(share/4, first)}
	for i := range streams {
		streams[i].Replicas = s.Replicas
		streams[i].Storage = jetstream.FileStorage
	}
	if s.ScopesInMemory {
		streams[0].Storage = jetstream.MemoryStorage
	}
	return streams
}

// consumer is the one consumer of the scopes of a strategy. It has no BackOff, which would take the place of AckWait;
// [Bus.Work] computes the delays.
func (s Setup) consumer(strategy string) jetstream.ConsumerConfig {
	token := schemas.Token(strategy)
	return jetstream.ConsumerConfig{
		Durable:       token,
		Description:   "scopes of " + strategy,
		FilterSubject: schemas.Prefix + ".scope." + token + ".>",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       s.AckWait,
		MaxDeliver:    s.MaxDeliver,
		MaxAckPending: handedOut(s.Parallel[strategy]),
	}
}

// requests is the stream of what people and programs ask. One that is open stays as it is: a second one of its name, and one
// too many, is refused to who sends it, and nobody can push out or change those of others.
func requests(bytes int64, first uint64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 StreamRequests,
		Description:          "a table: what people and programs ask for, until it is rejected or finished",
		Subjects:             []string{RequestChannels},
		FirstSeq:             first,
		Retention:            jetstream.LimitsPolicy,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		MaxMsgsPerSubject:    1,
		MaxMsgs:              maxRequests,
		MaxMsgSize:           maxRequest,
		MaxAge:               requestAge,
		MaxBytes:             bytes,
		Duplicates:           duplicates,
	}
}

// ledger is the stream of the key-value bucket, with what the clients of NATS expect of one.
func ledger(bytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        StreamLedger,
		Description: "what the actuator has to remember: moves in flight, moves that limits count, loop breakers",
		Subjects:    []string{ledgerSubjects + ">"},
		Retention:   jetstream.LimitsPolicy,
		// A move that cannot be remembered is not made.
		Discard:           jetstream.DiscardNew,
		MaxMsgsPerSubject: 1,
		MaxAge:            ledgerAge,
		MaxBytes:          bytes,
		AllowRollup:       true,
	}
}

// maintenances is the stream of the key-value bucket, with what the clients of NATS expect of one. What is in it stays until
// it is removed: a node can be worked on for weeks.
func maintenances(bytes int64, first uint64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        StreamMaintenances,
		Description: "a table: the maintenances that were asked for on the bus, until their nodes are given back",
		Subjects:    []string{maintenanceSubjects + ">"},
		FirstSeq:    first,
		Retention:   jetstream.LimitsPolicy,
		// Nobody's node is forgotten for that of another.
		Discard:           jetstream.DiscardNew,
		MaxMsgsPerSubject: 1,
		MaxMsgSize:        maxMaintenance,
		MaxBytes:          bytes,
		AllowRollup:       true,
		AllowMsgTTL:       true,
	}
}
