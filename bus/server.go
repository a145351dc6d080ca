package bus

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// The default limits of an embedded server.
const (
	// DefaultMaxStore is twice [DefaultMaxBytes], which all streams together may use. The rest is for the tables of the other
	// roles and for files that are being compacted.
	DefaultMaxStore = 3 << 30
	// DefaultMaxMemory limits the streams in memory. An external server has none; the consumers of readers are small.
	DefaultMaxMemory = 64 << 20
	// ScopesMaxMemory is added with [Setup.ScopesInMemory]: the share of the scopes in [DefaultMaxBytes]. It is a limit; scopes
	// use memory only until they are answered.
	ScopesMaxMemory = DefaultMaxMemory + DefaultMaxBytes/4
)

// readyWithin limits the start of an embedded server. With 200,000 stored messages, the start took 0.3 s.
const readyWithin = 30 * time.Second

// ServerOptions configure an embedded server.
type ServerOptions struct {
	// StoreDir has the streams. [StartServer] creates it. Two servers must not use it at once.
	StoreDir string
	// Socket is the path of a Unix domain socket, for other processes of the same user. Empty means none.
	Socket string
	// Listen lets other programs connect over the network. The zero value disables this.
	Listen Listen
	// MaxStore and MaxMemory limit all streams together, in bytes. Zero means [DefaultMaxStore] and [DefaultMaxMemory].
	MaxStore, MaxMemory int64
	// Reserve is the free space in bytes that the server leaves on its disk. With less free space it refuses events, see
	// [Server.Ready]. It is at least 1 MiB.
	Reserve int64
	// Log gets the log of the server. nil disables it.
	Log *slog.Logger
}

// Server is a NATS server in this process. Clients in this process connect with [Options.Server], and other local clients with
// [Options.Socket] if the server has a socket. It listens on the network only with [ServerOptions.Listen].
type Server struct {
	nats  *server.Server
	store *store
	gate  *gate  // nil means no socket
	seed  []byte // of the key of this process. nil means every connection may do everything
	stop  sync.Once

	unwatch  func() // ends watching
	watching sync.WaitGroup
}

// maxPayload is the largest message, and the largest value that NATS recommends. A compressed scope of maxData, with about 50,000
// pods, fits.
const maxPayload = 8 << 20

// StartServer starts a server and waits until it is ready. An event is on the disk before the server acknowledges it, except
// scopes in memory.
//
// It fails with [ErrListen] if it cannot listen. It also fails if it cannot use the store, or if another server serves the
// socket. Without a socket, two servers on the same store destroy it.
func StartServer(o ServerOptions) (*Server, error) {
	if o.StoreDir == "" {
		return nil, errors.New("bus server: no store directory")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := new(Server)
	if o.Socket != "" {
		g, err := openGate(o.Socket, o.Log) // before the server touches the store that another one may be using
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
		// Without this, a power failure loses the events of the last two minutes.
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
	s.store = &store{
		nats: n, options: options, account: server.DEFAULT_GLOBAL_ACCOUNT, reserve: max(o.Reserve, leastReserve), log: o.Log, resumed: make(chan struct{}, 1),
	}
	if s.seed != nil {
		s.store.account = Account
	}
	s.store.look(time.Now())
	watching, unwatch := context.WithCancel(context.Background())
	s.unwatch = unwatch
	s.watching.Go(func() { s.store.watch(watching) })
	if s.gate != nil {
		s.gate.serve(n)
	}
	return nil
}

// open makes the server listen on the network if the options say so. If it does not listen, clients need no key.
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

// InProcessConn opens a connection to the server for a NATS client in this process.
func (s *Server) InProcessConn() (net.Conn, error) { return s.nats.InProcessConn() }

// Stop closes the socket and all connections, and writes pending data to the disk, which takes about 100 ms. Handlers lose their
// messages, so close the [Bus] of each role first. A second call does nothing.
func (s *Server) Stop() { s.stop.Do(s.close) }

func (s *Server) close() {
	if s.gate != nil {
		_ = os.Remove(s.gate.path) // first: once the listener is closed, another server may make its socket there
		_ = s.gate.listener.Close()
	}
	if s.unwatch != nil {
		s.unwatch()
		s.watching.Wait()
	}
	if s.nats != nil {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	}
	if s.gate != nil {
		s.gate.done.Wait()
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

// The limits of an embedded server that listens, far above the needs of participants. The first one also applies to the socket.
const (
	maxConnections   = 128
	maxSubscriptions = 256              // connections; a client has one or two for each stream that it reads
	maxPending       = 32 << 20         // bytes that wait for a slow connection before the server closes it
	writeWithin      = 5 * time.Second  // a connection that takes no byte for so long is closed
	introduceWithin  = 2 * time.Second  // for the handshake, and as much again for the key
	askAlive         = 20 * time.Second // between pings of a silent connection
	maxControlLine   = server.MAX_CONTROL_LINE_SIZE
)

// Listen configures how an embedded server listens on the network. With the zero value it does not listen. It requires a
// certificate, and participants with keys.
type Listen struct {
	// Address is a host and a port, such as 0.0.0.0:4222.
	Address string
	// CertFile and KeyFile are PEM files with the certificate of the server and its key.
	CertFile, KeyFile string
	// Participants is the file rehome.conf from `rehome auth init`, or its directory. Other settings in the file are ignored.
	Participants string
}

// ErrListen is wrapped by the error of a server that cannot listen.
var ErrListen = errors.New("cannot listen")

// seedBeside returns the path of the key for a socket, which other processes of this user can read.
func seedBeside(socket string) string { return socket + ".nk" }

// apply makes the server listen. It adds a user without limits for this process, and returns the seed of its key.
func (l Listen) apply(o *server.Options, socket string) (seed []byte, err error) {
	host, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return nil, fmt.Errorf("want an address such as 0.0.0.0:4222, got %q: %w", l.Address, err)
	}
	if o.Port, err = strconv.Atoi(port); err != nil || o.Port < 0 || o.Port > 65535 {
		return nil, fmt.Errorf("want a port from 0 to 65535, got %q", port)
	}
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	certificate, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %q with key %q: %w", l.CertFile, l.KeyFile, err)
	}
	known, account, err := l.participants()
	if err != nil {
		return nil, fmt.Errorf("participants: %w", err)
	}
	seed, public, err := ownKey(socket)
	if err != nil {
		return nil, fmt.Errorf("own key: %w", err)
	}
	o.DontListen, o.Host = false, host
	o.TLS, o.TLSTimeout = true, introduceWithin.Seconds()
	o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	o.Accounts = known.Accounts
	o.Nkeys = append(known.Nkeys, &server.NkeyUser{Nkey: public, Account: account})
	o.AuthTimeout = 2 * introduceWithin.Seconds() // it runs from the beginning of the handshake
	o.MaxConn, o.MaxSubs, o.MaxPending, o.MaxControlLine = maxConnections, maxSubscriptions, maxPending, maxControlLine
	o.WriteDeadline, o.PingInterval = writeWithin, askAlive
	return seed, nil
}

// participants reads the participants and their account from the file.
func (l Listen) participants() (*server.Options, *server.Account, error) {
	file := l.Participants
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, "rehome.conf")
	}
	if _, err := os.Stat(file); err != nil {
		return nil, nil, err
	}
	known, err := server.ProcessConfigFile(file)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range known.Accounts {
		if a.Name == Account && len(known.Nkeys) > 0 && len(known.Users) == 0 && known.NoAuthUser == "" {
			return known, a, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: want an account %s whose users all have nkeys, as rehome auth init writes it", file, Account)
}

// ownKey returns the key of this process. With a socket, the key is in the file beside the socket, for other processes of this
// user.
func ownKey(socket string) (seed []byte, public string, err error) {
	if socket != "" {
		if seed, err = os.ReadFile(seedBeside(socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", err
		}
	}
	var pair nkeys.KeyPair
	if len(seed) > 0 {
		pair, err = nkeys.FromSeed(seed)
	} else if pair, err = nkeys.CreateUser(); err == nil {
		if seed, err = pair.Seed(); err == nil && socket != "" {
			err = os.WriteFile(seedBeside(socket), seed, 0o600)
		}
	}
	if err != nil {
		return nil, "", err
	}
	public, err = pair.PublicKey()
	return seed, public, err
}

// known makes a client use the key of a seed.
func known(seed []byte) (nats.Option, error) {
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
	if err != nil {
		return nil, err
	}
	public, err := pair.PublicKey()
	return nats.Nkey(public, pair.Sign), err
}

// Addr returns the network address, or nil if the server does not listen.
func (s *Server) Addr() net.Addr {
	if s.seed == nil {
		return nil
	}
	return s.nats.Addr()
}

// maxSocketPath is the longest path of a socket. The kernel allows 108 bytes on Linux and 104 on macOS, including the terminating
// byte; 16 are for the directory in which the socket is created.
const maxSocketPath = 104 - 1 - 16

// dialWithin limits a connection to a socket, whose server is on this machine.
const dialWithin = time.Second

// gate is the Unix domain socket of an embedded server. The mode of the file decides which processes can connect.
type gate struct {
	path     string
	listener *net.UnixListener
	log      *slog.Logger
	done     sync.WaitGroup // ends with the listener and the connections of the server
	open     atomic.Int32   // connections
}

// openGate creates the socket for this user alone, and replaces an abandoned one.
func openGate(path string, log *slog.Logger) (*gate, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket %s: the path has %d bytes, want at most %d", path, len(path), maxSocketPath)
	}
	if c, err := net.DialTimeout("unix", path, dialWithin); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("socket %s: another rehome is running and uses this store", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("socket %s: a file that is not a socket is in the way", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := listenPrivately(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return &gate{path: path, listener: l, log: log}, nil
}

// listenPrivately creates the socket in a directory that only this user may enter, and moves it after it has set the mode, so no
// other user can connect earlier.
func listenPrivately(path string) (*net.UnixListener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	made := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// serve connects clients of the socket to the server.
func (g *gate) serve(to nats.InProcessConnProvider) {
	g.done.Go(func() {
		for {
			outside, err := g.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				pause(context.Background(), 100*time.Millisecond) // such as too many open files: it passes, and an immediate retry would not help
				continue
			}
			if g.open.Load() == maxConnections {
				g.log.Warn("the socket of the bus has reached its limit of connections and refuses a new one", "limit", maxConnections)
				_ = outside.Close()
				continue
			}
			inside, err := to.InProcessConn()
			if err != nil { // the server is stopping
				_ = outside.Close()
				continue
			}
			g.connect(outside, inside)
		}
	})
}

// connect copies in both directions until either side ends.
func (g *gate) connect(outside, inside net.Conn) {
	g.open.Add(1)
	ended := sync.OnceFunc(func() {
		_, _ = outside.Close(), inside.Close()
		g.open.Add(-1)
	})
	for _, way := range [][2]net.Conn{{inside, outside}, {outside, inside}} {
		g.done.Go(func() {
			defer ended()
			_, _ = io.Copy(way[0], way[1])
		})
	}
}

// socketDialer makes the NATS client use a socket as if the server were in its process.
type socketDialer string

// InProcessConn connects to the socket.
func (path socketDialer) InProcessConn() (net.Conn, error) {
	return net.DialTimeout("unix", string(path), dialWithin)
}
