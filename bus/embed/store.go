package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// lookAtStore is the interval of checks of the disk.
	lookAtStore = time.Second
	// leastReserve is the minimum of [Options.Reserve]. With less space a restart of JetStream succeeds, but the next
	// write fails.
	leastReserve = 1 << 20
	// restartEvery is the interval of attempts to restart JetStream.
	restartEvery = 10 * time.Second
	// creationLimit is how long the health check may report a stream that is only being created or deleted. Its
	// directory exists, but the server does not know the stream.
	creationLimit = 10 * time.Second
	// StoppedLimit is how long JetStream may be stopped before [Server.Alive] fails.
	StoppedLimit = time.Minute
)

var (
	// ErrNoSpace means that the disk of the server is too full. It passes when there is space.
	ErrNoSpace = errors.New("the bus accepts no events: its disk is full")
	// ErrStopped means that JetStream of the server has stopped. It restarts when there is space.
	ErrStopped = errors.New("the bus accepts no events: JetStream has stopped")
)

// store watches the disk of a server. While less than the reserve is free, the server refuses all writes, because
// nats-server also needs space to remove messages. A stream refuses everything after one failed write: then store restarts
// JetStream.
type store struct {
	nats    *server.Server
	options *server.Options
	account string
	reserve int64
	log     *slog.Logger
	resumed chan struct{}

	refuses   bool      // used only by look, like the next four
	failed    bool      // whether JetStream did not work at the last look, before a restart
	restarted time.Time // when a restart of JetStream was tried last
	failing   string    // the report of the health check, the same since failingAt
	failingAt time.Time

	mu      sync.Mutex
	err     error     // why the server takes no events
	stopped time.Time // since when JetStream does not work; zero means it does
}

// watch checks the disk until ctx ends.
func (s *store) watch(ctx context.Context) {
	tick := time.NewTicker(lookAtStore)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.look(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

func (s *store) look(now time.Time) {
	full, stopped := s.full(), s.failure(now)
	s.failed = stopped != nil
	if stopped != nil && full == nil && now.Sub(s.restarted) > restartEvery {
		s.restarted = now
		s.log.Warn("starting JetStream again", "reason", stopped)
		stopped = s.restart(now)
	}
	if s.refuses != (full != nil) {
		if err := s.refuse(full != nil); err != nil && stopped == nil {
			s.log.Error("cannot change the limits of the bus", "error", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.err
	s.err = errors.Join(full, stopped)
	switch {
	case stopped == nil:
		s.stopped = time.Time{}
	case s.stopped.IsZero():
		s.stopped = now
	}
	switch {
	case before == nil && s.err != nil:
		s.log.Error("the bus cannot store events", "error", s.err)
	case before != nil && s.err == nil:
		s.log.Info("the bus accepts events again")
		select {
		case s.resumed <- struct{}{}:
		default:
		}
	}
}

// full returns an error while too little space is free, until the free space exceeds the reserve by a quarter.
func (s *store) full() error {
	want := s.reserve
	if s.refuses {
		want += want / 4
	}
	if free, err := freeSpace(s.options.StoreDir); err == nil && free < want {
		return fmt.Errorf("%w: %d MiB are free in %s, want %d MiB (REHOME_STORE_RESERVE)",
			ErrNoSpace, free>>20, s.options.StoreDir, want>>20)
	}
	return nil // a disk that cannot be asked may have space
}

// failure returns the reason why JetStream does not work: at once if a write failed, because the stream then refuses
// everything, and until the health check succeeds again. Other failures must last for creationLimit.
func (s *store) failure(now time.Time) error {
	// Without an account, the server also checks accounts that are not in use: REHOME_LISTEN decides which one is.
	failing := s.nats.Healthz(&server.HealthzOptions{Account: s.account}).Error
	if failing != s.failing {
		s.failing, s.failingAt = failing, now
	}
	if failing == "" || !s.failed && !strings.Contains(failing, "write error") && now.Sub(s.failingAt) < creationLimit {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrStopped, failing)
}

func (s *store) restart(now time.Time) error {
	err := s.nats.ShutdownJetStream()
	if err == nil {
		s.refuses = false
		err = s.nats.EnableJetStream(&server.JetStreamConfig{
			StoreDir: s.options.StoreDir, SyncAlways: s.options.SyncAlways, SyncInterval: s.options.SyncInterval, Strict: true,
			MaxStore: s.options.JetStreamMaxStore, MaxMemory: s.options.JetStreamMaxMemory, CompressOK: true,
		})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStopped, err)
	}
	return s.failure(now)
}

// refuse makes the server refuse or accept writes. It refuses them by limits of zero bytes; messages can still be
// removed.
func (s *store) refuse(on bool) error {
	account, err := s.nats.LookupAccount(s.account)
	if err != nil {
		return err
	}
	var limits map[string]server.JetStreamAccountLimits // none
	if on {
		limits = map[string]server.JetStreamAccountLimits{"": {
			MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
		}}
	}
	if err := account.UpdateJetStreamLimits(limits); err != nil {
		return err
	}
	s.refuses = on
	return nil
}

// Ready returns the reason why the server accepts no events: an error that wraps [ErrNoSpace] or [ErrStopped].
func (s *Server) Ready() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.err
}

// Alive returns an error if JetStream has been stopped for [StoppedLimit] at the given time. A full disk alone is no
// error.
func (s *Server) Alive(now time.Time) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.store.stopped.IsZero() || now.Sub(s.store.stopped) < StoppedLimit {
		return nil
	}
	return s.store.err
}

// FreeSpace returns the number of free bytes on the disk of the streams.
func (s *Server) FreeSpace() (int64, error) { return freeSpace(s.store.options.StoreDir) }

// Resumed gets a value when the server accepts events again after it accepted none.
func (s *Server) Resumed() <-chan struct{} { return s.store.resumed }
