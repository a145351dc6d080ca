// Package bustest runs real servers for tests and waits for events.
package bustest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// DeltaChannels are the subjects of all deltas, as [Delta] makes them.
const DeltaChannels = schemas.Prefix + ".delta.>"

// Main runs the tests of a package, from its TestMain, and fails when goroutines are left at the end.
func Main(m *testing.M) {
	// The server waits up to 30 s for the answer to a request about copying a stream, also while it is stopped. One that is
	// stopped while it makes a stream, which takes a busy machine long, may leave what writes its state from time to time, and
	// the clock of that. A server that is not stopped at all has many more.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*stream).trySetupSourceConsumer.func3"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}

// New returns a connection to a server of its own in this process, set up for the given strategies with the
// settings that a user gets. Both end with the test.
func New(t testing.TB, strategies ...string) *bus.Bus {
	t.Helper()
	b := Connect(t, bus.Options{Server: Server(t, embed.Options{})})
	SetUp(t, b, bus.Setup{Strategies: strategies})
	return b
}

// Server starts a server that ends with the test. Without a StoreDir it stores in a directory of the test.
func Server(t testing.TB, o embed.Options) *embed.Server {
	t.Helper()
	if o.StoreDir == "" {
		o.StoreDir = filepath.Join(t.TempDir(), "store")
	}
	s, err := embed.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// SocketOptions returns the options of a server with a store and a socket of the test.
func SocketOptions(t testing.TB) embed.Options {
	t.Helper()
	return embed.Options{StoreDir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "bus.sock")}
}

// Listening starts a server with a socket that listens on a free port of the loopback interface, for the participants of c. Their
// files are in o.Listen.Participants.
func Listening(t testing.TB, c credentials.Config) (s *embed.Server, o embed.Options) {
	t.Helper()
	c.Hosts = []string{"127.0.0.1"}
	dir := filepath.Join(t.TempDir(), "auth")
	if _, err := credentials.Write(dir, c); err != nil {
		t.Fatal(err)
	}
	o = SocketOptions(t)
	o.Listen = embed.Listen{
		Address: "127.0.0.1:0", Participants: dir, Account: bus.Account,
		CertFile: filepath.Join(dir, credentials.ServerCert), KeyFile: filepath.Join(dir, credentials.ServerKey),
	}
	return Server(t, o), o
}

// MaxStore limits the streams of a server in a test, in bytes. Without it, the server takes a share of the free disk, and refuses
// the streams if the disk is nearly full.
const MaxStore = 64 << 30

// Serve starts a server with the options, by default on a free loopback port, in a temporary directory, and with [MaxStore]. It ends
// with the test.
func Serve(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	if o.Host == "" {
		o.Host, o.Port = "127.0.0.1", server.RANDOM_PORT
	}
	if o.StoreDir == "" {
		o.StoreDir = filepath.Join(t.TempDir(), "store")
	}
	if o.JetStreamMaxStore == 0 {
		o.JetStreamMaxStore = MaxStore
	}
	o.JetStream, o.NoSigs, o.NoLog = true, true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(expect.Patience) {
		t.Fatal("the server does not accept connections")
	}
	return s
}

// ServeParticipants is [Serve] with the participants that [credentials.Write] has written into a directory, and other settings. You
// can reload the server. Its configuration states [MaxStore], because a reload must not change the limit.
func ServeParticipants(t testing.TB, dir, settings string) *server.Server {
	t.Helper()
	path := filepath.Join(dir, "nats-server.conf")
	filetest.Write(t, path, fmt.Sprintf("listen: 127.0.0.1:-1\njetstream { store_dir: %q, max_file_store: %d }\ninclude rehome.conf\n%s\n",
		filepath.Join(dir, "store"), MaxStore, settings))
	return ServeFile(t, path)
}

// ServeFile is [Serve] with the configuration of a file.
func ServeFile(t testing.TB, path string) *server.Server {
	t.Helper()
	o, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Serve(t, o)
}

// Connect connects until the end of the test. It does not wait for the connection. The log goes to the test.
func Connect(t testing.TB, o bus.Options) *bus.Bus {
	t.Helper()
	if o.Name == "" {
		o.Name = "test"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	b, err := bus.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// SetUp makes the streams, as soon as the server lets it.
func SetUp(t testing.TB, b *bus.Bus, s bus.Setup) {
	t.Helper()
	var err error
	expect.Eventually(t, "the streams are set up", func() bool {
		err = b.Setup(t.Context(), s)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
}

// EventTime returns the time of each [Event].
func EventTime() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }

// Event returns an event without a cause.
func Event(t testing.TB, p schemas.Payload) schemas.Event {
	t.Helper()
	return schematest.Event(t, "/clusters/test/test", p, EventTime(), schemas.Event{})
}

// Delta returns an event about the taints of a node.
func Delta(t testing.TB, node string) schemas.Event {
	t.Helper()
	return Event(t, schemas.Delta{Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: node}})
}

// Publish publishes the events one after the other. It ends the test at an error. Unlike [bus.Bus.Publish], it never sends an event
// twice, however slow the server is, so that a test can count messages.
func Publish(t testing.TB, b *bus.Bus, events ...schemas.Event) {
	t.Helper()
	for _, e := range events {
		expect.Must(t, b.PublishAll(t.Context(), []schemas.Event{e}))
	}
}

// IDs returns the IDs of the events of the history for a query that does not follow.
func IDs(t testing.TB, b *bus.Bus, q bus.Query) []string {
	t.Helper()
	ids := []string{}
	expect.Must(t, b.Events(t.Context(), q, func(e schemas.Event) error {
		ids = append(ids, e.ID)
		return nil
	}))
	return ids
}

// Events are the events of a history as they come.
type Events struct{ c chan schemas.Event }

// Collect follows the history until the end of the test: all channels, or those given. It has everything from the
// beginning of the history.
func Collect(t testing.TB, b *bus.Bus, channels ...string) *Events {
	t.Helper()
	events := &Events{c: make(chan schemas.Event, 65536)}
	expect.Background(t, func(ctx context.Context) error {
		q := bus.Query{Channels: channels, Since: time.Unix(1, 0), Follow: true}
		return b.Events(ctx, q, func(e schemas.Event) error {
			events.c <- e
			return nil
		})
	})
	return events
}

// Next returns the next event. It fails the test when none comes.
func (e *Events) Next(t testing.TB) schemas.Event {
	t.Helper()
	return expect.Receive(t, "an event", e.c)
}

// Find returns the next event that matches, and drops those before it. It fails the test when none comes.
func (e *Events) Find(t testing.TB, matches func(schemas.Event) bool) schemas.Event {
	t.Helper()
	for {
		if event := e.Next(t); matches(event) {
			return event
		}
	}
}

// Quiet fails the test when an event comes within d.
func (e *Events) Quiet(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case event := <-e.c:
		t.Fatalf("an event came that should not: %s on %s: %s", event.Type, event.Channel, event.Data)
	case <-time.After(d):
	}
}

// Raw returns a bare JetStream client of a server, for writes that a [bus.Bus] refuses and reads that it does not
// offer. It ends with the test.
func Raw(t testing.TB, s *embed.Server) jetstream.JetStream {
	t.Helper()
	options, err := s.ClientOptions()
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// AnswerRequests answers each open request with these payloads until the test ends.
func AnswerRequests(t *testing.T, b *bus.Bus, answer func(schemas.Request) []schemas.Payload) {
	t.Helper()
	expect.Background(t, func(ctx context.Context) error {
		return b.FollowRequests(ctx, func(ctx context.Context, _ schemas.Event, _ time.Time, read func() schemas.Event) error {
			e := read()
			r, err := schemas.Decode[schemas.Request](e)
			if err != nil {
				return err
			}
			for _, p := range answer(r) {
				next, err := schemas.NewEvent("/test", p, time.Now(), e)
				if err == nil {
					_, err = b.Publish(ctx, next)
				}
				if err != nil {
					return err
				}
			}
			return b.DropRequest(ctx, e)
		})
	})
}
