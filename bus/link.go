package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// deniedFor is how long a right that the server refused keeps a role from being ready. A role that needs the right asks
// for it again within that time.
const deniedFor = time.Minute

// link is what is known about the connection. The NATS client reports each change to it, one at a time.
type link struct {
	address string
	role    string // whose rights the server holds it to
	inbox   string // what the subjects begin with to which answers come
	log     *slog.Logger
	closed  chan struct{} // closed at the very end

	mu       sync.Mutex
	ending   bool // by our own wish: no news
	isUp     bool
	up       chan struct{} // closed while connected
	down     chan struct{} // closed while not connected
	reason   error         // why it is down; nil: not tried yet
	denied   error         // the last right that was refused
	deniedAt time.Time
	deaf     error // the refusal of the inbox, which the client asks for once in a connection
	guards   map[*guard]struct{}
}

func newLink(address, role, inbox string, log *slog.Logger) *link {
	l := &link{
		address: address, role: role, inbox: inbox, log: log.With("bus", address),
		closed: make(chan struct{}), up: make(chan struct{}), down: make(chan struct{}), guards: make(map[*guard]struct{}),
	}
	close(l.down)
	return l
}

func (l *link) handlers() []nats.Option {
	connected := func(*nats.Conn) { l.connected() }
	lost := func(_ *nats.Conn, err error) { l.lost(err) }
	return []nats.Option{
		nats.ConnectHandler(connected), nats.ReconnectHandler(connected),
		nats.DisconnectErrHandler(lost), nats.ReconnectErrHandler(lost),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.refused(err, time.Now()) }),
		nats.ClosedHandler(func(*nats.Conn) { close(l.closed) }),
	}
}

func (l *link) connected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isUp {
		return
	}
	l.isUp, l.reason, l.denied, l.deaf = true, nil, nil, nil
	close(l.up)
	l.down = make(chan struct{})
	l.log.Info("connected to the bus")
}

// lost is called when the connection breaks and whenever it could not be made again. It logs only what is new.
func (l *link) lost(err error) {
	if err == nil {
		err = io.EOF // the client says nil when the connection was ended in good order, by us or by the server
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isUp {
		l.isUp = false
		close(l.down)
		l.up = make(chan struct{})
	}
	if !l.ending && (l.reason == nil || l.reason.Error() != err.Error()) {
		l.log.Warn("not connected to the bus, trying again", "error", err)
	}
	l.reason = err
}

// refused is called for errors that belong to no call. Most are rights that the user of this role does not have: it ends
// the calls that need them.
func (l *link) refused(err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := refusalOf(l.role, err); r != nil {
		l.spread(r)
		err = r
	}
	isNew := l.denied == nil || l.denied.Error() != err.Error() || now.Sub(l.deniedAt) > deniedFor
	if isNew {
		l.log.Error("the bus reports", "error", err)
	}
	if errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, nats.ErrAuthorization) {
		l.denied, l.deniedAt = err, now
	}
}

// deniedSince is the right that was refused last, if that was after the given time or holds for the whole connection.
func (l *link) deniedSince(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf != nil {
		return l.deaf
	}
	if l.deniedAt.After(t) {
		return l.denied
	}
	return nil
}

// disconnected is the error that says so, with the reason if there is one.
func (l *link) disconnected() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason == nil {
		return fmt.Errorf("bus %s: %w", l.address, ErrNotConnected)
	}
	return fmt.Errorf("bus %s: %w: %w", l.address, ErrNotConnected, l.reason)
}

// wait returns a channel that is closed when the connection is lost, as soon as there is one. It fails when ctx ends.
func (l *link) wait(ctx context.Context) (down <-chan struct{}, err error) {
	for {
		l.mu.Lock()
		isUp, up, down := l.isUp, l.up, l.down
		l.mu.Unlock()
		if isUp {
			return down, nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// changes returns two channels: one is closed when there is a connection, the other when there is none any more.
func (l *link) changes() (up, down <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.down
}

// end is called before we end the connection ourselves.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
}

func readable(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	return f.Close()
}
