package faults

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// state is the state of a wire.
type state int

const (
	open   state = iota
	slow         // 50 ms for each piece of data
	silent       // connections stay, and nothing arrives
	down         // connections are cut and refused
)

// wire is a proxy between a role and the servers of the bus.
type wire struct {
	addresses []string

	mu      sync.Mutex
	is      state
	changed chan struct{} // closed when is changes
	open    map[net.Conn]bool
}

// newWire listens until the end of the test.
func newWire(t *testing.T, servers []string) *wire {
	w := &wire{changed: make(chan struct{}), open: map[net.Conn]bool{}}
	for _, server := range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		expect.Must(t, err)
		w.addresses = append(w.addresses, l.Addr().String())
		go w.serve(l, server)
		t.Cleanup(func() {
			_ = l.Close()
			w.set(down)
		})
	}
	return w
}

func (w *wire) url() string { return natsURL(w.addresses) }

func natsURL(addresses []string) string { return "nats://" + strings.Join(addresses, ",nats://") }

func (w *wire) set(is state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.is = is
	close(w.changed)
	w.changed = make(chan struct{})
	if is == down {
		for c := range w.open {
			_ = c.Close()
		}
	}
}

func (w *wire) serve(l net.Listener, server string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go w.connect(c, server)
	}
}

// connect copies in both directions until one side closes.
func (w *wire) connect(client net.Conn, server string) {
	defer client.Close()
	s, err := net.DialTimeout("tcp", server, time.Second)
	if err != nil {
		return
	}
	defer s.Close()
	ended := make(chan struct{})
	if !w.add(client, s) {
		return
	}
	var both sync.WaitGroup
	var once sync.Once
	end := func() {
		once.Do(func() {
			close(ended)
			_, _ = client.Close(), s.Close()
		})
	}
	both.Go(func() { defer end(); w.copy(client, s, ended) })
	both.Go(func() { defer end(); w.copy(s, client, ended) })
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, client)
	delete(w.open, s)
}

// add reports false when the wire is down.
func (w *wire) add(both ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.is == down {
		return false
	}
	for _, c := range both {
		w.open[c] = true
	}
	return true
}

func (w *wire) copy(to, from net.Conn, ended <-chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !w.pass(ended) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// pass waits as long as the state requires. It reports false when the connection has ended.
func (w *wire) pass(ended <-chan struct{}) bool {
	for {
		w.mu.Lock()
		is, changed := w.is, w.changed
		w.mu.Unlock()
		switch is {
		case silent:
			select {
			case <-changed:
				continue
			case <-ended:
				return false
			}
		case slow:
			time.Sleep(50 * time.Millisecond)
		}
		return is != down
	}
}
