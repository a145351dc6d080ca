package faults

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// state is the state of a wire.
type state int

const (
	open   state = iota
	slow         // everything takes time
	silent       // nothing arrives, and connections stay
	down         // connections are cut and refused
)

// wire is between a role and the servers of the bus.
type wire struct {
	mu        sync.Mutex
	changed   *sync.Cond
	is        state
	addresses []string
	open      map[net.Conn]bool
}

// newWire makes a wire to the servers at these addresses, until the end of the test.
func newWire(t *testing.T, servers []string) *wire {
	w := &wire{open: map[net.Conn]bool{}}
	w.changed = sync.NewCond(&w.mu)
	for _, server := range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w.addresses = append(w.addresses, l.Addr().String())
		go w.serve(l, server)
		t.Cleanup(func() {
			_ = l.Close()
			w.set(down)
		})
	}
	return w
}

func (w *wire) url() string { return "nats://" + strings.Join(w.addresses, ",nats://") }

func (w *wire) set(is state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.is = is
	if is == down {
		for c := range w.open {
			_ = c.Close()
		}
		clear(w.open)
	}
	w.changed.Broadcast()
}

func (w *wire) serve(l net.Listener, server string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", server)
		if err != nil || !w.add(c, s) {
			_ = c.Close()
			continue
		}
		go w.copy(c, s)
		go w.copy(s, c)
	}
}

func (w *wire) add(both ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range both {
		if w.is == down {
			_ = c.Close()
			continue
		}
		w.open[c] = true
	}
	return w.is != down
}

func (w *wire) copy(to, from net.Conn) {
	defer func() {
		_, _ = to.Close(), from.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, from)
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		for w.is == silent {
			w.changed.Wait()
		}
		is := w.is
		w.mu.Unlock()
		if is == slow {
			time.Sleep(50 * time.Millisecond)
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
