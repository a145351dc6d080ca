package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// maxSocketPath is how long the path of a socket may be. The kernel takes 108 bytes on Linux and 104 on macOS, with the
// byte that ends it; 16 are for the directory that the socket is made in.
const maxSocketPath = 104 - 1 - 16

// dialWithin bounds a connection to a socket: its server is on this machine, so it answers at once or not at all.
const dialWithin = time.Second

// gate is the Unix domain socket of an embedded server. That a process can connect proves that it may read the file.
type gate struct {
	path     string
	listener *net.UnixListener

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
	done   sync.WaitGroup
}

// openGate makes the socket, readable and writable for this user alone, and replaces one that nobody serves any more.
func openGate(path string) (*gate, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket %s: path has %d bytes, at most %d are possible", path, len(path), maxSocketPath)
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
	return &gate{path: path, listener: l, open: make(map[net.Conn]struct{})}, nil
}

// listenPrivately makes the socket in a directory that only this user may enter, so that nobody else can connect before
// its mode is set, and then moves it to its place.
func listenPrivately(path string) (*net.UnixListener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // empty by then, or the error that counts is another
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

// serve starts to connect whoever comes to the server.
func (g *gate) serve(to nats.InProcessConnProvider) {
	g.done.Go(func() {
		for {
			outside, err := g.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				pause(context.Background(), 100*time.Millisecond) // too many open files: it passes, and retrying at once would not help
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
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_, _ = outside.Close(), inside.Close()
		return
	}
	g.open[outside], g.open[inside] = struct{}{}, struct{}{}
	end := func() {
		_, _ = outside.Close(), inside.Close()
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.open, outside)
		delete(g.open, inside)
	}
	g.done.Go(func() {
		defer end()
		_, _ = io.Copy(inside, outside)
	})
	g.done.Go(func() {
		defer end()
		_, _ = io.Copy(outside, inside)
	})
}

// close removes the socket, ends all connections and waits until they are gone.
func (g *gate) close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		_ = os.Remove(g.path) // while it is still ours: after the close another server may have taken its place
		_ = g.listener.Close()
		for c := range g.open {
			_ = c.Close()
		}
	}
	g.mu.Unlock()
	g.done.Wait()
}

// socketDialer lets the NATS client use a socket the way it uses a server in its own process.
type socketDialer string

// InProcessConn connects to the socket.
func (path socketDialer) InProcessConn() (net.Conn, error) {
	return net.DialTimeout("unix", string(path), dialWithin)
}
