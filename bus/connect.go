// Package bus carries the events of Rehome over NATS JetStream: a server of package embed in the process, or an external cluster.
//
//	          nouns.go     the table: subjects, stream, type, and roles of each noun
//	     ┌────────┴────────────────────────┐
//	streams.go  streams, consumers            rights.go  rights    filter/  subjects of the events that a user selects
//
//	publish.go     Publish, PublishAll, Answer                  one message, stored when the call returns
//	consume.go     Work                                         durable consumers: several handlers, ack, retry, dead letters
//	listen.go      Listen                                       the same, for events of the history under a name
//	history.go     Events, Proofread, Subscribe                 one event at a time, in order; live messages
//	read.go        list, follow, Status                         the readers of streams, with a consumer; poll.go without one
//	tables.go      FollowIntents, FollowRequests, Receipt       tables: the newest message of each key
//	kv.go          Ledger, Maintenances                         key-value buckets
//	dead.go        Bury, DeadLetter, RetryDead, DropDead        messages that could not be read or handled
//	message.go     Ask                                          CloudEvents in NATS messages; functions in other programs
//	connect.go     Connect, Now       health.go  Ready, Space, errors, and reconnecting
//
// # Guarantees
//
// An event is stored when [Bus.Publish] returns. A scope is delivered to a function at least once, and again until the
// function is done with it. Of two waiting scopes of one key, the older one is dropped. Two processes can handle
// two scopes of one key at the same time; an answer in the table is never replaced by the answer to an older scope, see
// [Bus.Answer].
//
// A message that cannot be read, or that its handler calls invalid, is stored as a dead letter with the error before it
// is removed, and never blocks the others.
//
// The bus can be lost as a whole: the watcher's next resync recreates everything on it from the cluster, except
// requests and the maintenances of the bus, which must be made again.
//
// All methods are safe for concurrent use. [Bus.FollowIntents], [Bus.FollowRequests], and [Bus.Events] deliver one
// event at a time in the order of their stream, [Bus.Work] and [Bus.Listen] several in parallel in no particular order.
// These survive any loss of the connection and end with their context; nothing keeps running after they have returned.
//
// A server that distinguishes participants refuses everything that [RightsOf] does not list. The error is
// [ErrNotPermitted], and the process is not ready. Package credentials writes keys and rights for servers. Package
// bustest runs real servers for tests.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// closeWithin limits the end of a connection. The next leader sends the remaining messages again, so they are not
	// worth more of the default 30-second grace period of a pod.
	closeWithin = 5 * time.Second
	// askWithin limits one request to the server if its context has no deadline. All requests can be repeated; a server
	// that was just stopped never answers.
	askWithin = 2 * time.Second
	// pingEvery detects a vanished server after two pings without an answer, within a minute.
	pingEvery = 20 * time.Second
)

// reconnects has the delays between connection attempts: short, because nothing works without the bus, and never longer
// than a few seconds, because an attempt is cheap.
func reconnects() backoff { return backoff{first: 50 * time.Millisecond, most: 3 * time.Second} }

// Options name the server and the role. Exactly one of URL, Socket, and Server is required.
type Options struct {
	// Name is the role, such as watcher. The server shows it, and it is part of the inbox for answers and of the
	// subject of dead letters.
	Name string

	// URL is one or more NATS URLs, separated by commas.
	URL string
	// Socket is the path of the socket of a server in another process of this user.
	Socket string
	// Server is a server in this process.
	Server *embed.Server

	// CAFile, CertFile, and KeyFile are PEM files: the authority of the server's certificate, and the client
	// certificate and key.
	CAFile, CertFile, KeyFile string
	// Prefix is the prefix of the streams and subjects on the server.
	Prefix Prefix
	// NKeyFile is a file with the seed of an NKey, CredsFile one with a JWT and a seed.
	NKeyFile, CredsFile string

	// Stored gets the events that [Bus.Publish], [Bus.PublishAll], and [Bus.Answer] stored, for tracing. It also makes
	// the methods that deliver events record the time of delivery. nil disables tracing.
	Stored func(...schemas.Event)
	// Log gets changes of the connection and errors that cannot be returned. nil means [slog.Default].
	Log *slog.Logger
	// Clock is the clock of this process, see [Bus.Now]. nil means [time.Now].
	Clock func() time.Time
}

// Bus is a connection to the streams. All of its methods may be called from many goroutines at once.
type Bus struct {
	name string
	log  *slog.Logger
	nc   *nats.Conn
	js   prefixed

	installation atomic.Pointer[Installation]

	health *health
	clock  *clock
	stored func(...schemas.Event) // nil means nothing is traced

	warnings *rate.Limiter // of unreadable messages

	streams sync.Map // handles, [jetstream.Stream] by name
}

// Connect returns at once, connected or not. It retries an unavailable server until [Bus.Close], and [Bus.Ready]
// reports the state. It fails only if the options are invalid or one of their files is unreadable.
func Connect(o Options) (*Bus, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	address, options, err := o.server()
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	h := newHealth(address, o.Name, o.Log)
	credentials, err := o.credentials()
	if err != nil {
		return nil, fmt.Errorf("bus %s: %w", address, err)
	}
	options = append(options, nats.Name("rehome "+o.Name), nats.CustomInboxPrefix(inbox(o.Name)),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.CustomReconnectDelay(reconnects().after),
		// The rights of a role can be granted after it has started, so a refusal must not be final.
		nats.IgnoreAuthErrorAbort(), nats.PingInterval(pingEvery), nats.DrainTimeout(closeWithin))
	options = append(append(options, h.handlers()...), credentials...)
	nc, err := nats.Connect(o.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("bus %s: %w", address, err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(allWithin), jetstream.WithDefaultTimeout(askWithin))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("bus %s: %w", address, err)
	}
	b := &Bus{name: o.Name, log: o.Log, nc: nc, js: prefixed{js, o.Prefix}, health: h, clock: newClock(o.Clock), stored: o.Stored,
		warnings: rate.NewLimiter(rate.Every(warnedAgain), warnedAtOnce)}
	b.Identify(Installation{})
	return b, nil
}

// emitted passes stored events to tracing.
func (b *Bus) emitted(events ...schemas.Event) {
	if b.stored != nil && len(events) > 0 {
		b.stored(events...)
	}
}

// taken sets the time of reading an event, for its span.
func (b *Bus) taken(e schemas.Event) schemas.Event {
	if b.stored != nil {
		e.Taken = time.Now()
	}
	return e
}

// server returns the address without secrets, and the way to reach it.
func (o Options) server() (address string, options []nats.Option, err error) {
	given := 0
	if o.Server != nil {
		given++
		address = "in this process"
		options, err = o.Server.ClientOptions()
	}
	if o.Socket != "" {
		given++
		address = "unix:" + o.Socket
		options, err = embed.SocketOptions(o.Socket)
	}
	if o.URL != "" {
		given++
		address = Redacted(o.URL)
	}
	switch {
	case given != 1:
		return "", nil, fmt.Errorf("want exactly one of URL, Socket and Server, got %d of them", given)
	case o.Name == "":
		return "", nil, errors.New("want a Name, got none")
	case err != nil:
		return "", nil, fmt.Errorf("%s: its key: %w", address, err)
	}
	return address, options, nil
}

func (o Options) credentials() ([]nats.Option, error) {
	var options []nats.Option
	if o.CAFile != "" {
		options = append(options, nats.RootCAs(o.CAFile))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("want both CertFile and KeyFile or none, got one of them")
	}
	if o.CertFile != "" {
		options = append(options, nats.ClientCert(o.CertFile, o.KeyFile))
	}
	if o.NKeyFile != "" {
		option, err := nats.NkeyOptionFromSeed(o.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("NKey file %s: %w", o.NKeyFile, err)
		}
		options = append(options, option)
	}
	if o.CredsFile != "" {
		f, err := os.Open(o.CredsFile) // otherwise the file is read, and missed, only when connecting
		if err != nil {
			return nil, fmt.Errorf("credentials: %w", err)
		}
		_ = f.Close()
		options = append(options, nats.UserCredentials(o.CredsFile))
	}
	return options, nil
}

// Redacted returns a list of URLs without passwords.
func Redacted(urls string) string {
	var out []string
	for text := range strings.SplitSeq(urls, ",") {
		text = strings.TrimSpace(text)
		if u, err := url.Parse(text); err == nil && u.User != nil {
			text = u.Redacted()
			if _, hasPassword := u.User.Password(); !hasPassword { // then the user is a token
				u.User = url.User("xxxxx")
				text = u.String()
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, ",")
}

// Close sends the pending messages and ends the connection, within 5 seconds. Call it after everything that uses the
// bus has returned.
func (b *Bus) Close() {
	b.health.mu.Lock()
	b.health.ending = true
	b.health.mu.Unlock()
	if !b.nc.IsConnected() || b.nc.Drain() != nil {
		b.nc.Close()
	}
	select {
	case <-b.health.closed:
	case <-time.After(closeWithin + time.Second): // Drain gives up by itself before
		b.nc.Close()
	}
}

// open queries the server for a stream.
func (b *Bus) open(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := b.js.Stream(ctx, name)
	if err != nil {
		return nil, notSetUp("stream "+name, err)
	}
	return s, nil
}

// stream returns a handle of a stream. It queries the server only the first time, so its information may be outdated.
func (b *Bus) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if s, ok := b.streams.Load(name); ok {
		return s.(jetstream.Stream), nil
	}
	s, err := b.open(ctx, name)
	if err == nil {
		b.streams.Store(name, s)
	}
	return s, err
}

const (
	// SkewWarning is the difference from the clock of the NATS server above which [Bus.ClockWarning] returns an error.
	SkewWarning = 30 * time.Second
	// SkewLimit is the difference above which [Bus.Ready] fails.
	SkewLimit = 5 * time.Minute
	// skewStep is the smallest change of the skew that affects [Bus.Now]. Smaller changes are measurement errors.
	skewStep = time.Second
)

// clock compares the clock of this process with the clock of the server. It is safe for concurrent use.
type clock struct {
	local        func() time.Time
	began, start time.Time // the same moment by the monotonic clock and by local

	mu      sync.Mutex
	skew    time.Duration // how far local is ahead, at least; negative: behind
	applied time.Duration // how far the steady time is ahead
}

func newClock(local func() time.Time) *clock {
	return &clock{local: local, began: time.Now(), start: local().Round(0)}
}

// reading is a time of the local clock.
type reading struct {
	local time.Time
	// steady is the local time as it would be if nothing had set the clock since the start of this process. Time
	// synchronization can set it at any moment, seconds before the next measurement notices. After a suspend of the
	// machine it lags until then.
	steady time.Time
}

func (c *clock) reading() reading { return reading{c.local(), c.start.Add(time.Since(c.began))} }

// measure compares the time in an answer of the server with the local times of the request and the answer. A time
// between them is no skew, because nothing more exact is known. It reports whether the skew passed [SkewWarning] in
// either direction.
func (c *clock) measure(sent, received reading, server time.Time) (crossed bool) {
	skew, steady := ahead(sent.local, received.local, server), ahead(sent.steady, received.steady, server)
	c.mu.Lock()
	defer c.mu.Unlock()
	crossed = (skew.Abs() > SkewWarning) != (c.skew.Abs() > SkewWarning)
	c.skew = skew
	if (steady - c.applied).Abs() > skewStep {
		c.applied = steady
	}
	return crossed
}

// ahead returns how far the times of a request and its answer are ahead of the time of the server.
func ahead(sent, received, server time.Time) time.Duration {
	switch {
	case server.Before(sent):
		return sent.Sub(server)
	case server.After(received):
		return received.Sub(server)
	}
	return 0
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading().steady.Add(-c.applied)
}

func (c *clock) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew
}

// compareClocks compares the time in an answer to a request that was sent at sent.
func (b *Bus) compareClocks(sent reading, server time.Time) {
	if !b.clock.measure(sent, b.clock.reading(), server) {
		return
	}
	if err := b.ClockWarning(); err != nil {
		b.log.Warn("the clock of this process does not agree with the clock of the bus", "error", err)
	} else {
		b.log.Info("the clock of this process agrees with the clock of the bus again")
	}
}

// Now returns the time by the clock of the NATS server, within about a second, or the local time before the first
// answer of the server. Use it for times that processes on several machines compare.
func (b *Bus) Now() time.Time { return b.clock.now() }

// ClockSkew returns how far the clock of this process is ahead of the clock of the NATS server, at least; negative if
// it is behind. It is measured about every ten seconds, and is 0 before the first answer of the server.
func (b *Bus) ClockSkew() time.Duration { return b.clock.read() }

// ClockWarning returns an error with the difference of the clocks if it exceeds [SkewWarning].
func (b *Bus) ClockWarning() error { return b.skewed(SkewWarning) }

func (b *Bus) skewed(limit time.Duration) error {
	skew := b.clock.read()
	if skew.Abs() <= limit {
		return nil
	}
	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	return fmt.Errorf("the clock of this process is %v %s the clock of the bus, want at most %v: "+
		"synchronize the clocks of the machines", skew.Abs().Round(time.Second), direction, limit)
}
