package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus/embed"
)

// Errors of the bus, in addition to [schemas.ErrInvalid].
var (
	// ErrNotConnected means that no server answers. It ends when the server is back.
	ErrNotConnected = errors.New("not connected")
	// ErrNotSetUp means that a stream or consumer does not exist: [Bus.Setup] was not called on this server, or its
	// store was lost.
	ErrNotSetUp = errors.New("not set up: run rehome setup")
	// ErrOtherInstallation means that the streams belong to another installation of Rehome.
	ErrOtherInstallation = errors.New("the bus belongs to another installation")
	// ErrNotPermitted names the subject that the server does not allow this role to publish on or subscribe to. Waiting
	// does not help. [RightsOf] returns the rights that a role needs.
	ErrNotPermitted = errors.New("not permitted")
	// ErrNoListener means that there is no listener of a name, or no longer.
	ErrNoListener = errors.New("there is no such listener")
	// ErrOpen means that a request of the same sender and name is open.
	ErrOpen = errors.New("a request of this name is open")
	// ErrFull means that too many requests are open.
	ErrFull = errors.New("too many requests are open")
	// ErrNoDeadLetter means that there is no dead letter with a number, or no longer.
	ErrNoDeadLetter = errors.New("there is no such dead letter")
	// ErrCut means that a message is incomplete: it was too large for a letter. The rest is lost.
	ErrCut = errors.New("the message was cut and cannot be published again")
	// ErrNewer means that a message would replace a newer one.
	ErrNewer = errors.New("a newer message has taken its place")
	// ErrNoSpace means that the disk of the server is too full. It passes when there is space.
	ErrNoSpace = embed.ErrNoSpace
	// ErrStopped means that JetStream of an embedded server has stopped. It restarts when there is space.
	ErrStopped = embed.ErrStopped
)

// notSetUp wraps [ErrNotSetUp] around an error about a missing stream or consumer, and returns any other error
// unchanged.
func notSetUp(what string, err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("%s is missing: %w", what, ErrNotSetUp)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isRefusal reports whether the server refused a request for one of these reasons.
func isRefusal(err error, reasons ...server.ErrorIdentifier) bool {
	var refusal *jetstream.APIError
	return errors.As(err, &refusal) && slices.Contains(reasons, server.ErrorIdentifier(refusal.ErrorCode))
}

// backoff is a delay that doubles from first up to most.
type backoff struct{ first, most time.Duration }

// delay returns the delay after that many failed attempts, at least one. random is in [0, 1); it spreads delays over
// half of their length, so that clients do not all return at once.
func (b backoff) delay(attempts int, random float64) time.Duration {
	d := b.first
	for i := 1; i < attempts && d < b.most; i++ {
		d *= 2
	}
	d = min(d, b.most)
	return d - time.Duration(random*float64(d)/2)
}

// after returns delay with its own random number.
func (b backoff) after(attempts int) time.Duration { return b.delay(attempts, rand.Float64()) }

const (
	// deniedFor is how long a refused right keeps a role from being ready. A role that needs the right tries again
	// within that time.
	deniedFor = time.Minute
	// readyFor is how long Ready trusts that the streams exist: about the interval of probes of the kubelet.
	readyFor = 10 * time.Second
	// lookWithin limits the check for them in Ready: less than the time of a probe.
	lookWithin = 2 * time.Second
	// similarWithin is how long the same complaint by another reader is not reported.
	similarWithin = 5 * time.Second
)

// health is the state of the connection. The NATS client reports each change to it, one at a time.
type health struct {
	address string
	role    string // the server checks the rights of this role
	log     *slog.Logger
	closed  chan struct{} // closed when the bus is closed

	mu       sync.Mutex
	ending   bool // Close was called, so a lost connection is not reported
	up       bool
	changed  chan struct{} // closed and replaced at each change of up
	reason   error         // the reason while it is down; nil before the first attempt
	ended    error         // the reason why the client will not connect again; nil while it will
	denied   error         // the last right that was refused
	deniedAt time.Time
	noInbox  bool      // denied is the inbox, which the client asks for once in a connection
	checked  time.Time // when Ready last found all streams

	complaint   string // the last one of a reader
	complaintAt time.Time
}

func newHealth(address, role string, log *slog.Logger) *health {
	return &health{
		address: address, role: role, log: log.With("bus", address), closed: make(chan struct{}), changed: make(chan struct{}),
	}
}

// handlers connects the callbacks of the NATS client to h.
func (h *health) handlers() []nats.Option {
	connected := func(*nats.Conn) { h.set(true, nil) }
	lost := func(_ *nats.Conn, err error) { h.set(false, err) }
	return []nats.Option{
		nats.ConnectHandler(connected), nats.ReconnectHandler(connected),
		nats.DisconnectErrHandler(lost), nats.ReconnectErrHandler(lost),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { h.refused(err, time.Now()) }),
		nats.ClosedHandler(func(c *nats.Conn) { h.end(c.LastError()) }),
	}
}

// set handles a change of the connection, or another failure to connect. It logs only changes.
func (h *health) set(up bool, err error) {
	if !up && err == nil {
		err = io.EOF // the client passes nil if either side ended the connection in good order
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case up && !h.up:
		h.denied, h.noInbox = nil, false
		h.log.Info("connected to the bus")
	case !up && !h.ending && (h.reason == nil || h.reason.Error() != err.Error()):
		h.log.Warn("not connected to the bus; retrying", "error", err)
	}
	if up != h.up {
		close(h.changed)
		h.changed = make(chan struct{})
	}
	h.up, h.reason, h.checked = up, err, time.Time{}
}

// end handles the end of the connection. The client connects again after every loss, except if the server reported an error that
// the client does not know, such as a violation of its protocol.
func (h *health) end(err error) {
	defer close(h.closed)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ending {
		h.ended = fmt.Errorf("the server ended the connection for good: %w", err)
		h.log.Error("the bus connection has ended; restart this process", "error", err)
	}
}

// refused handles an error that belongs to no call. Most are missing rights of the role.
func (h *health) refused(err error, now time.Time) {
	subject, refusal := h.refusal(err)
	if refusal != nil {
		err = refusal
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.denied == nil || h.denied.Error() != err.Error() || now.Sub(h.deniedAt) > deniedFor {
		h.log.Error("the NATS server reported an error", "role", h.role, "error", err)
	}
	if refusal != nil || errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, nats.ErrAuthorization) {
		h.denied, h.deniedAt = err, now
		h.noInbox = h.noInbox || strings.HasPrefix(subject, inbox(h.role)+".")
	}
}

// refusal returns an error with the right that the server refused, and its subject, or nil for any other error.
func (h *health) refusal(err error) (subject string, refusal error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", nil
	}
	match := regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`).FindStringSubmatch(err.Error())
	if match == nil {
		return "", nil
	}
	verb := "publish on"
	if strings.EqualFold(match[1], "subscription") {
		verb = "subscribe to"
	}
	return match[2], fmt.Errorf("%w: %s may not %s %q", ErrNotPermitted, h.role, verb, match[2])
}

// deniedSince returns the last refused right, if that was after the given time or holds for the whole connection.
func (h *health) deniedSince(t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.noInbox || h.deniedAt.After(t) {
		return h.denied
	}
	return nil
}

// disconnected returns the error of a missing connection, with the reason if there is one.
func (h *health) disconnected() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reason == nil {
		return fmt.Errorf("bus %s: %w", h.address, ErrNotConnected)
	}
	return fmt.Errorf("bus %s: %w: %w", h.address, ErrNotConnected, h.reason)
}

// wait waits for a connection, and returns a channel that is closed when it is lost. It fails when ctx ends.
func (h *health) wait(ctx context.Context) (lost <-chan struct{}, err error) {
	for {
		h.mu.Lock()
		up, changed := h.up, h.changed
		h.mu.Unlock()
		if up {
			return changed, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// complain logs a complaint of a reader of the bus. There are many readers, and a failure of the bus affects all of
// them, so of equal complaints by several readers only the first is a warning.
func (h *health) complain(log *slog.Logger, what string, err error) {
	kind := err.Error()
	if errors.Is(err, ErrNotSetUp) {
		kind = ErrNotSetUp.Error() // for any missing stream
	}
	h.mu.Lock()
	level := slog.LevelWarn
	if kind == h.complaint && time.Since(h.complaintAt) < similarWithin {
		level = slog.LevelDebug
	}
	h.complaint, h.complaintAt = kind, time.Now()
	h.mu.Unlock()
	log.Log(context.Background(), level, "reading from the bus was interrupted; retrying", "what", what, "error", err)
}

// Ready returns nil if the server answers and has all streams, and its clock is within [SkewLimit] of the local one.
// Otherwise the error describes the problem; it wraps [ErrNotConnected], [ErrNotSetUp], or [ErrNotPermitted] if it is
// one of these. It may take 2 seconds.
//
// A right that the server refused in the last minute is also an error, because the work that needs it fails.
func (b *Bus) Ready() error {
	h, now := b.health, time.Now()
	if err := h.deniedSince(now.Add(-deniedFor)); err != nil && b.nc.IsConnected() {
		return fmt.Errorf("bus %s: %w", h.address, err)
	}
	h.mu.Lock()
	fresh := h.up && now.Sub(h.checked) < readyFor
	h.mu.Unlock()
	if fresh {
		return b.skewed(SkewLimit)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookWithin)
	defer cancel()
	err := h.disconnected()
	if b.nc.IsConnected() {
		if _, err = b.births(ctx); err != nil {
			err = b.explain(now, err)
		}
	}
	if err != nil {
		now = time.Time{}
	}
	h.mu.Lock()
	h.checked = now
	h.mu.Unlock()
	return cmp.Or(err, b.skewed(SkewLimit))
}

// Alive returns an error if this Bus will never be connected again. Then only a new process helps.
func (b *Bus) Alive() error {
	b.health.mu.Lock()
	defer b.health.mu.Unlock()
	if b.health.ended == nil {
		return nil
	}
	return fmt.Errorf("bus %s: %w", b.health.address, b.health.ended)
}

// Space returns an error if the server accepts no events. It wraps [ErrNoSpace] if the disk is too full.
func (b *Bus) Space(ctx context.Context) error {
	return b.do("space of the bus", func() error {
		info, err := b.js.AccountInfo(ctx)
		if err == nil && info.Limits.MaxStore == 0 {
			err = ErrNoSpace
		}
		return err
	})
}

// do calls the server. It fails at once without a connection. It adds to an error of the call whether the connection is gone, or
// whether the server refused the call.
func (b *Bus) do(what string, call func() error) error {
	if !b.nc.IsConnected() {
		return fmt.Errorf("%s: %w", what, b.health.disconnected())
	}
	began := time.Now()
	err := call()
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, b.explain(began, err))
}

// explain adds to an error whether the connection was lost or a right was refused since the given time.
func (b *Bus) explain(began time.Time, err error) error {
	if errors.Is(err, ErrNotPermitted) || errors.Is(err, ErrNotConnected) {
		return err
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
		return fmt.Errorf("%w: %w", ErrStopped, err)
	}
	if isRefusal(err,
		server.JSAccountResourcesExceededErr, server.JSInsufficientResourcesErr, server.JSStorageResourcesExceededErr,
	) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	switch denied := b.health.deniedSince(began); {
	case denied != nil && errors.Is(err, context.DeadlineExceeded): // the server does not answer a call that it refuses
		return denied
	case denied != nil:
		return fmt.Errorf("%w: %w", err, denied)
	}
	if !b.nc.IsConnected() {
		return fmt.Errorf("%w: %w", err, b.health.disconnected())
	}
	return err
}

// errLost ends a session whose connection was lost, or whose stream was created again. [Bus.forever] does not log it.
var errLost = errors.New("the connection was lost")

// sessions has the delays before a failed session starts again. The server may just have returned without having loaded
// its streams yet, so the first delay is short.
func sessions() backoff { return backoff{first: 100 * time.Millisecond, most: 5 * time.Second} }

// forever restarts session whenever it returns, until ctx ends, which also ends the session. So does the loss of the
// connection. A session starts only while there is one.
//
// It logs an error once until another one comes. A session that worked for a while resets the delay.
func (b *Bus) forever(ctx context.Context, what string, session func(context.Context) error) {
	failures, logged := 0, ""
	for {
		lost, err := b.health.wait(ctx)
		if err != nil {
			return
		}
		began := time.Now()
		err = until(ctx, lost, session)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > sessions().most {
			failures, logged = 0, ""
		}
		if err = b.explain(began, err); err.Error() != logged && !errors.Is(err, errLost) {
			b.health.complain(b.log, what, err)
			logged = err.Error()
		}
		failures++
		pause(ctx, sessions().after(failures))
	}
}

// until runs session with a context that also ends when lost is closed.
func until(ctx context.Context, lost <-chan struct{}, session func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-lost:
			cancel(errLost)
		case <-ctx.Done():
		}
	}()
	err := session(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		err = errors.New("it ended by itself")
	}
	return err
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
