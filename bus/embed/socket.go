package embed

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// maxSocketPath is the longest path of a socket. The kernel allows 108 bytes on Linux and 104 on macOS, including the terminating
// byte; 16 are for the directory in which the socket is created.
const maxSocketPath = 104 - 1 - 16

// dialWithin limits a connection to a socket, whose server is on this machine.
const dialWithin = time.Second

// gate is the Unix domain socket of a server. The mode of the file decides which processes can connect.
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
				<-time.After(100 * time.Millisecond) // such as too many open files: it passes, and an immediate retry would not help
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
