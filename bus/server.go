package bus

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// The limits of an embedded server that was not told any.
const (
	// DefaultMaxStore leaves [DefaultMaxBytes], which all streams may fill together, as much again for the tables of the
	// other roles and for files that are being compacted.
	DefaultMaxStore = 3 << 30
	// DefaultMaxMemory is for streams in memory. An external server has none; the consumers of readers are small.
	DefaultMaxMemory = 64 << 20
	// ScopesMaxMemory is for [Setup.ScopesInMemory]: the share of the scopes in [DefaultMaxBytes] on top. It is a limit; scopes use
	// memory only until they are answered.
	ScopesMaxMemory = DefaultMaxMemory + DefaultMaxBytes/4
)

// readyWithin is how long an embedded server may take to start: with 200,000 stored messages it was measured at 0.3 s.
const readyWithin = 30 * time.Second

// ServerOptions say where and how large an embedded server is.
type ServerOptions struct {
	// StoreDir holds the streams. It is made when it does not exist. Two servers must not use it at once.
	StoreDir string
	// Socket is the path of a Unix domain socket, for other processes of the same user. Empty: none.
	Socket string
	// Listen lets other programs take part over the network. The zero value: none does.
	Listen Listen
	// MaxStore and MaxMemory bound what all streams hold, in bytes. Zero: [DefaultMaxStore] and [DefaultMaxMemory].
	MaxStore, MaxMemory int64
	// Log gets what the server has to say. nil: nobody does.
	Log *slog.Logger
}

// Server is a NATS server inside this process. It is reached by [Options.Server] from this process and, if it has a socket,
// by [Options.Socket] from others. It listens to no network unless [ServerOptions] say so.
type Server struct {
	nats *server.Server
	gate *gate  // nil: no socket
	seed []byte // of the key by which this process is known. nil: everybody who reaches the server may do everything
}

// maxPayload is how large a message may be: as large as NATS advises at most. The compressed scope of some 20,000 pods fits.
const maxPayload = 8 << 20

// StartServer starts a server and waits until it serves. Every event, except scopes in memory, is on the disk before its
// publisher hears that it is stored.
//
// It fails with [ErrListen] when it cannot listen where it is told to, when the store cannot be used, and when another server
// serves the socket, which then uses the same store. Without a socket nothing keeps two servers from destroying each other's
// store.
func StartServer(o ServerOptions) (*Server, error) {
	if o.StoreDir == "" {
		return nil, errors.New("bus server: no store directory")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := new(Server)
	if o.Socket != "" {
		g, err := openGate(o.Socket) // before the server touches the store that another one may be using
		if err != nil {
			return nil, fmt.Errorf("bus server: %w", err)
		}
		s.gate = g
	}
	if err := s.start(o); err != nil {
		s.Stop()
		return nil, fmt.Errorf("bus server in %s: %w", o.StoreDir, err)
	}
	return s, nil
}

func (s *Server) start(o ServerOptions) error {
	options := &server.Options{
		ServerName: "rehome",
		DontListen: true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   filepath.Clean(o.StoreDir),
		// Otherwise what was stored in the last two minutes is lost with the power.
		SyncAlways:         true,
		MaxPayload:         maxPayload,
		JetStreamMaxStore:  cmp.Or(o.MaxStore, DefaultMaxStore),
		JetStreamMaxMemory: cmp.Or(o.MaxMemory, DefaultMaxMemory),
	}
	if err := s.open(o, options); err != nil {
		return err
	}
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
	if s.gate != nil {
		s.gate.serve(n)
	}
	return nil
}

// open lets the server listen where it was told to. If nowhere, nobody has to say who he is.
func (s *Server) open(o ServerOptions, options *server.Options) (err error) {
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

// InProcessConn opens a connection to the server, for a NATS client in this process.
func (s *Server) InProcessConn() (net.Conn, error) { return s.nats.InProcessConn() }

// Stop closes the socket and all connections, writes what is left to the disk and waits for it, some 100 ms. Work that
// is under way is lost to its worker, so close the [Bus] of each role before. Stopping twice does nothing.
func (s *Server) Stop() {
	if s.gate != nil {
		s.gate.close()
	}
	if s.nats != nil {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	}
}

// serverLog hands the log of the server to slog. What is normal to a server is detail to us.
type serverLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[string] // why it could not start, which it says nowhere else
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
