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

	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// DefaultHistory lets users see on Monday the events of Friday evening.
	DefaultHistory = 72 * time.Hour
	// DefaultMaxBytes is the limit of all streams together. Clusters have up to 5,000 nodes, whose scopes of 110 pods at 2 KB need
	// about 1 GB if all of them wait at once.
	DefaultMaxBytes = 1536 << 20
	// ScopesMaxMemory is [embed.Options.MaxMemory] with [Setup.ScopesInMemory]: the default, and the share of the scopes in
	// [DefaultMaxBytes]. It is a limit; scopes use memory only until they are answered.
	ScopesMaxMemory = embed.DefaultMaxMemory + DefaultMaxBytes/4
	// DefaultAckWait is how long the server waits for a worker. It delays the scopes of a worker that died. A running worker
	// reports its progress every third of this time, however long its handler takes.
	DefaultAckWait = 20 * time.Second

	// stepWithin limits the creation of one stream or consumer: far longer than a cluster with a leader needs.
	stepWithin = 5 * time.Second
	// workAge is how long intents are kept, and scopes at least.
	workAge = time.Hour
	// requestAge is how long requests are kept: longer than their latest possible deadline.
	requestAge = 25 * time.Hour
	// maxRequests limits the open requests, and maxRequest the size of one. A request with the maximum number of pods needs about
	// 100 bytes per pod.
	maxRequests = 10_000
	maxRequest  = 64 << 10
	// maxMaintenance is the largest size of the maintenance of one node: it lists twenty blocked pods, each with a
	// reason.
	maxMaintenance = 256 << 10
	// deadAge is how long dead letters are kept: longer than holidays of a few days.
	deadAge = 7 * 24 * time.Hour
	// ledgerAge limits how long the actuator can remember anything: longer than the longest window of a limit.
	ledgerAge = 25 * time.Hour
	// duplicates is how long a stream recognizes an event that was stored before: the server's default.
	duplicates = 2 * time.Minute
	// copyingWithin is how long Setup waits until the history copies intents. If the first attempt of the server fails,
	// the next one comes only after 10 s, and only the history depends on it.
	copyingWithin = 2 * time.Second
	// maxAckPending is how many scopes of one strategy are delivered at once, to all workers together: a newer scope
	// can no longer replace a delivered one.
	maxAckPending = 16
	// lookEvery is the interval of checks of the streams while nothing happens, and so the longest time for which a
	// deleted stream goes unnoticed.
	lookEvery = 10 * time.Second
)

// Setup is the layout of the streams. The zero value suits an embedded server without strategies.
type Setup struct {
	// Strategies are the names of all strategies that scopes are published for. Consumers of others are not changed.
	Strategies []string
	// Replicas is the number of servers that store each stream: 1, 3, or 5. Zero means 1.
	Replicas int
	// History is how long the events of the history are kept. Zero means [DefaultHistory].
	History time.Duration
	// Resync is the interval in which the watcher evaluates everything. Scopes are kept for two intervals, and at least an hour, so
	// none is lost between two full evaluations while its function is down.
	Resync time.Duration
	// MaxBytes limits all streams together, on each server. The history, requests, and maintenances get nine sixteenths
	// of it, requests and maintenances a thirty-sixth of that each, scopes a quarter, intents, dead letters, and the
	// actuator's ledger a sixteenth each. A full stream drops its oldest events, but requests, maintenances, and the
	// ledger accept nothing more instead. Zero means [DefaultMaxBytes].
	MaxBytes int64
	// AckWait is how long the server waits for a worker. Zero means [DefaultAckWait].
	AckWait time.Duration
	// ScopesInMemory keeps scopes in the memory of the server instead of on its disk. It is for a server inside a rehome
	// process: its watcher evaluates everything when it starts, so a restart loses no evaluation.
	ScopesInMemory bool
	// Parallel is how many scopes of a strategy are handled in parallel, if that is more than usual.
	Parallel map[string]int
	// TakeOver transfers the streams of another installation to this one.
	TakeOver bool
}

// handedOut returns how many scopes of a strategy are delivered at once if that many are handled. Scopes that wait for
// their next try are among them, and must not block the others.
func handedOut(parallel int) int { return max(maxAckPending, 2*parallel) }

// Setup creates the streams and consumers, or updates them to s. Calling it again changes nothing. Two processes with
// different settings must not call it. The retention of events can be changed at any time; so can the number of
// replicas. It fails with [ErrOtherInstallation] if the streams belong to another one, see [Bus.Identify].
func (b *Bus) Setup(ctx context.Context, s Setup) error {
	s.Replicas = cmp.Or(s.Replicas, 1)
	s.History = cmp.Or(s.History, DefaultHistory)
	s.MaxBytes = cmp.Or(s.MaxBytes, DefaultMaxBytes)
	s.AckWait = cmp.Or(s.AckWait, DefaultAckWait)
	return b.do("set up the bus", func() error {
		for _, config := range s.streams() {
			if err := bounded(ctx, func(ctx context.Context) error { return b.setUpStream(ctx, config, s.TakeOver) }); err != nil {
				return fmt.Errorf("stream %s: %w", config.Name, err)
			}
		}
		for _, strategy := range s.Strategies {
			if err := bounded(ctx, func(ctx context.Context) error {
				_, err := b.js.CreateOrUpdateConsumer(ctx, StreamScopes, s.consumer(strategy))
				return err
			}); err != nil {
				return fmt.Errorf("the consumer of %s: %w", strategy, err)
			}
		}
		b.awaitCopying(ctx)
		return nil
	})
}

// bounded gives one step of the setup its own time limit: a cluster without a leader does not answer at all, and the
// first request would use up the time of the caller.
func bounded(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	return step(ctx)
}

// setUpStream creates or updates a stream.
func (b *Bus) setUpStream(ctx context.Context, config jetstream.StreamConfig, takeOver bool) error {
	config.Metadata, _ = b.installation.Load().adopt(nil) // it belongs to no other
	old, err := b.js.Stream(ctx, config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = b.js.CreateStream(ctx, config)
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
		old, err = b.js.Stream(ctx, config.Name) // another process has just created it
	}
	if err != nil {
		return err
	}
	if metadata := old.CachedInfo().Config.Metadata; !takeOver {
		if config.Metadata, err = b.installation.Load().adopt(metadata); err != nil {
			return err
		}
	}
	if old.CachedInfo().Config.Storage != config.Storage { // a server does not change it; the stream begins empty
		if err := b.js.DeleteStream(ctx, config.Name); err != nil {
			return err
		}
		_, err := b.js.CreateStream(ctx, config)
		return err
	}
	_, err = b.js.UpdateStream(ctx, config)
	return err
}

// awaitCopying waits until the history copies intents, which takes the server 100 to 200 ms. Intents that are replaced
// before that are missing from the history.
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
	b.log.Warn("the history does not copy intents yet; the server tries again by itself", "stream", StreamEvents)
}

// streams returns the configuration of each stream, after the streams that it copies.
func (s Setup) streams() []jetstream.StreamConfig {
	share := s.MaxBytes / 16
	all := []jetstream.StreamConfig{{
		Name: StreamScopes, Description: "work for functions: the newest scope of each key, until it is answered",
		// One message per key, and a new one replaces it: a change during an evaluation is evaluated too.
		Retention: jetstream.WorkQueuePolicy, MaxMsgsPerSubject: 1, MaxAge: max(workAge, 2*s.Resync), MaxBytes: 4 * share,
	}, {
		Name: StreamIntents, Description: "a table: the newest answer to each scope, until it is settled",
		MaxMsgsPerSubject: 1, MaxAge: workAge, MaxBytes: share,
		// Reads must go to the leader: a replica may not have the answer yet that an empty one must withdraw.
		AllowDirect: false,
	}, {
		Name: StreamRequests, Description: "a table: requests of users and programs, until rejected or finished",
		// An open request does not change. The stream refuses a second one with its name, and one too many.
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1, MaxMsgs: maxRequests, MaxMsgSize: maxRequest,
		MaxAge: requestAge, MaxBytes: share / 4, Duplicates: duplicates,
	}, {
		Name: StreamEvents, Description: "history of all events but scopes and requests",
		Sources: []*jetstream.StreamSource{{Name: StreamIntents}}, MaxAge: s.History, MaxBytes: 9*share - 2*(share/4),
		// Not compressed: nats-server 2.15.2 can append to a block that it has compressed already. Nothing can read that block again,
		// and each look for a time in the stream keeps the server busy for minutes.
		Duplicates: min(duplicates, s.History),
	}, {
		Name: StreamDead, Description: "messages that could not be read or handled, each with its error",
		MaxAge: deadAge, MaxBytes: share, Duplicates: duplicates,
	}, {
		Name: StreamLedger, Description: "state of the actuator: moves in flight, moves that limits count, circuit breakers",
		// A move that cannot be recorded is not made. Without rollups, because the operator may write one kind of key: a rollup of that
		// key would remove all others.
		Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, MaxAge: ledgerAge, MaxBytes: share,
	}, {
		Name: StreamMaintenances, Description: "a table: maintenances requested on the bus, until their nodes are given back",
		// Entries do not replace each other and have no age limit: a maintenance can take weeks.
		Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, MaxMsgSize: maxMaintenance, MaxBytes: share / 4,
		AllowRollup: true, AllowMsgTTL: true,
	}}
	for i := range all {
		all[i].Subjects, all[i].Replicas = subjectsOf(all[i].Name), s.Replicas
		if s.ScopesInMemory && all[i].Name == StreamScopes {
			all[i].Storage = jetstream.MemoryStorage
		}
	}
	return all
}

// consumer returns the one consumer of the scopes of a strategy. It has no BackOff, which would override AckWait;
// [Bus.Work] computes the delays, and limits the tries.
func (s Setup) consumer(strategy string) jetstream.ConsumerConfig {
	token := schemas.Token(strategy)
	return jetstream.ConsumerConfig{
		Durable:       token,
		Description:   "scopes of " + strategy,
		FilterSubject: strings.TrimSuffix(ScopeChannels, ">") + token + ".>",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       s.AckWait,
		MaxDeliver:    -1,
		MaxAckPending: handedOut(s.Parallel[strategy]),
	}
}

// Identify sets the installation of this process. Call it before [Bus.Setup] and [Bus.FollowStreams], which compare it
// with the owner of the streams. With a cluster, all published events name it.
func (b *Bus) Identify(i Installation) { b.installation.Store(&i) }

// FollowStreams checks the streams whenever there is a new connection, and every ten seconds, until ctx ends. Then it
// returns nil. It calls found when all of them exist for the first time, and again with the names of streams that were
// recreated: their messages have been lost. It fails with [ErrOtherInstallation] if they belong to another installation.
//
// If a stream is missing it calls missing, which may set up the bus, and again after a growing delay, up to 5 s, until
// all exist; after that every ten seconds, until missing succeeds. If missing is nil, it waits until another process
// does that. It logs an error of missing once until it changes.
func (b *Bus) FollowStreams(ctx context.Context, missing func(context.Context) error, found func(lost []string)) error {
	var known []time.Time
	var foreign error
	halfway := false // missing failed, and may have created streams without their consumers
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b.forever(ctx, "streams", func(ctx context.Context) error {
		for {
			now, err := b.births(ctx)
			if missing != nil && (halfway || errors.Is(err, ErrNotSetUp)) {
				failed := missing(ctx)
				halfway = failed != nil
				switch {
				case !halfway:
					now, err = b.births(ctx)
				case err != nil:
					err = failed
				default:
					b.log.Warn("the setup of the bus is incomplete; retrying", "error", failed)
				}
			}
			if errors.Is(err, ErrOtherInstallation) {
				foreign = err
				stop()
			}
			if err != nil {
				return err
			}
			if !slices.Equal(now, known) {
				var lost []string
				for i, name := range streams() {
					if known != nil && now[i] != known[i] {
						lost = append(lost, name)
					}
				}
				known = now
				found(lost)
			}
			pause(ctx, lookEvery)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	})
	return foreign
}

// births returns the creation times of the streams, and compares the clocks. It claims streams without an owner for
// this installation if its cluster is known.
func (b *Bus) births(ctx context.Context) (times []time.Time, err error) {
	for _, name := range streams() {
		sent := b.clock.reading()
		s, err := b.open(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("bus: %w", err)
		}
		b.compareClocks(sent, s.CachedInfo().TimeStamp)
		config := s.CachedInfo().Config
		metadata, err := b.installation.Load().adopt(config.Metadata)
		if err == nil && installationOf(metadata) != installationOf(config.Metadata) {
			config.Metadata = metadata
			began := time.Now()
			if _, err = b.js.UpdateStream(ctx, config); err != nil {
				err = fmt.Errorf("it belongs to no installation: run rehome setup with access to the cluster: %w", b.explain(began, err))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("bus: stream %s: %w", name, err)
		}
		times = append(times, s.CachedInfo().Created.UTC())
	}
	return times, nil
}
