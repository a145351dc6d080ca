// Package embed runs nats-server in this process, and keeps it alive. It knows nothing about the events that it stores.
//
//	Start (server.go) ──▶ nats-server ◀── clients in this process: ClientOptions (client.go)
//	                           ▲ ▲ ▲
//	                           │ │ └── other processes of this user: SocketOptions (client.go) ──▶ gate (socket.go)
//	                           │ └──── the network, for participants with keys: Listen (listen.go)
//	                           │
//	look (store.go), each second: refuse writes while the disk is full, restart JetStream after a failed write
//	  └──▶ Ready, Alive, Resumed
package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// DefaultMaxStore limits the streams on the disk. It is twice the limit of all streams of the bus together. The rest is for
	// files that are being compacted.
	DefaultMaxStore = 3 << 30
	// DefaultMaxMemory limits the streams in memory, unless [Options.MaxMemory] is set. The consumers of readers are also in memory,
	// and small.
	DefaultMaxMemory = 64 << 20

	// maxPayload is the largest message, and the largest value that NATS recommends. A compressed scope of 64 MiB, with about
	// 50,000 pods, fits.
	maxPayload = 8 << 20
	// readyWithin limits the start. With 200,000 stored messages, the start took 0.3 s.
	readyWithin = 30 * time.Second
)

// Options configure a server.
type Options struct {
	// StoreDir has the streams. [Start] creates it. On Linux and macOS, one server at a time can use it.
	StoreDir string
	// Socket is the path of a Unix domain socket, for other processes of the same user. Empty means none.
	Socket string
	// Listen lets other programs connect over the network. The zero value disables this.
	Listen Listen
	// MaxMemory limits the streams in memory together, in bytes. Zero means [DefaultMaxMemory].
	MaxMemory int64
	// Reserve is the free space in bytes that the server leaves on its disk. With less free space it refuses events, see
	// [Server.Ready]. It is at least 1 MiB.
	Reserve int64
	// Log gets the log of the server. nil disables it.
	Log *slog.Logger
}

// Server is a NATS server in this process. Clients in this process connect with [Server.ClientOptions], and other local clients
// with [SocketOptions] if the server has a socket. It listens on the network only with [Options.Listen].
type Server struct {
	nats  *server.Server
	store *store
	lock  io.Closer // of the store; nil if another server has it
	gate  *gate     // nil means no socket
	seed  []byte    // of the key of this process. nil means every connection may do everything
	stop  sync.Once

	unwatch  func() // ends watching
	watching sync.WaitGroup
}

// Start starts a server and waits until it is ready. An event is on the disk before the server acknowledges it, except events of
// streams in memory.
//
// It fails with [ErrListen] if it cannot listen. It also fails if it cannot use the store, or if another server uses the
// store or serves the socket.
func Start(o Options) (*Server, error) {
	if o.StoreDir == "" {
		return nil, errors.New("bus server: no store directory")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := new(Server)
	if err := s.start(o); err != nil {
		s.Stop()
		return nil, fmt.Errorf("bus server in %s: %w", o.StoreDir, err)
	}
	return s, nil
}

func (s *Server) start(o Options) (err error) {
	if err := os.MkdirAll(o.StoreDir, 0o700); err != nil {
		return err
	}
	if s.lock, err = lockStore(o.StoreDir); err != nil {
		return err
	}
	if o.Socket != "" { // before the server touches the store: without locks, the socket shows that another one uses it
		if s.gate, err = openGate(o.Socket, o.Log); err != nil {
			return err
		}
	}
	options := &server.Options{
		ServerName: "rehome",
		DontListen: true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   filepath.Clean(o.StoreDir),
		// Without this, a power failure loses the events of the last two minutes.
		SyncAlways:         true,
		MaxPayload:         maxPayload,
		JetStreamMaxStore:  DefaultMaxStore,
		JetStreamMaxMemory: cmp.Or(o.MaxMemory, DefaultMaxMemory),
	}
	if err := s.open(o, options); err != nil {
		return err
	}
	if err := s.run(o, options); err != nil {
		return err
	}
	account := server.DEFAULT_GLOBAL_ACCOUNT
	if s.seed != nil {
		account = o.Listen.Account
	}
	s.store = &store{
		nats: s.nats, options: options, account: account, reserve: max(o.Reserve, leastReserve), log: o.Log,
		resumed: make(chan struct{}, 1),
	}
	s.store.look(time.Now())
	watching, unwatch := context.WithCancel(context.Background())
	s.unwatch = unwatch
	s.watching.Go(func() { s.store.watch(watching) })
	if s.gate != nil {
		s.gate.serve(s.nats)
	}
	return nil
}

// run starts the server and waits until it accepts connections.
func (s *Server) run(o Options, options *server.Options) error {
	n, err := server.NewServer(options)
	if err != nil {
		return err
	}
	log := &serverLog{log: o.Log}
	n.SetLoggerV2(log, false, false, false)
	s.nats = n
	n.Start()
	if fatal := log.fatal.Load(); fatal != nil && strings.HasPrefix(*fatal, "Error listening") {
		return fmt.Errorf("%w on %q: %s", ErrListen, o.Listen.Address, *fatal)
	} else if fatal != nil {
		return errors.New(*fatal)
	}
	if !n.ReadyForConnections(readyWithin) {
		return fmt.Errorf("not ready after %v", readyWithin)
	}
	return nil
}

// open makes the server listen on the network if the options say so. If it does not listen, clients need no key.
func (s *Server) open(o Options, options *server.Options) (err error) {
	if o.Listen.Address != "" {
		if s.seed, err = o.Listen.apply(options, o.Socket); err != nil {
			return fmt.Errorf("%w on %q: %w", ErrListen, o.Listen.Address, err)
		}
		return nil
	}
	if o.Socket != "" {
		if err := os.Remove(seedBeside(o.Socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Stop closes all connections and the socket, and writes pending data to the disk, which takes about 100 ms. Until then, no other
// server can use the store. Handlers lose their messages, so close all clients first. A second call does nothing.
func (s *Server) Stop() { s.stop.Do(s.close) }

func (s *Server) close() {
	if s.unwatch != nil {
		s.unwatch()
		s.watching.Wait()
	}
	if s.nats != nil {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	}
	if s.gate != nil {
		_ = os.Remove(s.gate.path) // first: once the listener is closed, another server may make its socket there
		_ = s.gate.listener.Close()
		s.gate.done.Wait()
	}
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

// serverLog writes the log of the server to slog, with notices at the debug level.
type serverLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[string] // why it could not start: it returns no error
}

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *serverLog) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.Store(&text)
}
func (*serverLog) Debugf(string, ...any) {}
func (*serverLog) Tracef(string, ...any) {}
