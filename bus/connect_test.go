package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

func TestInvalidConnectOptions(t *testing.T) {
	s := bustest.Server(t, embed.Options{})
	dir := t.TempDir()
	missing, empty := filepath.Join(dir, "missing"), filepath.Join(dir, "empty")
	filetest.Write(t, empty, "")
	for name, test := range map[string]struct {
		options bus.Options
		says    string
	}{
		"no server":              {bus.Options{Name: "x"}, "want exactly one of URL, Socket and Server, got 0"},
		"two servers":            {bus.Options{Name: "x", URL: "nats://a", Server: s}, "got 2"},
		"no name":                {bus.Options{Server: s}, "want a Name"},
		"invalid URL":            {bus.Options{Name: "x", URL: "nats://a:b:c"}, "a:b:c"},
		"no CA file":             {bus.Options{Name: "x", URL: "tls://127.0.0.1:1", CAFile: missing}, missing},
		"a CA file without CA":   {bus.Options{Name: "x", URL: "tls://127.0.0.1:1", CAFile: empty}, empty},
		"a certificate, no key":  {bus.Options{Name: "x", URL: "tls://127.0.0.1:1", CertFile: empty}, "both CertFile and KeyFile"},
		"no certificate in file": {bus.Options{Name: "x", URL: "tls://127.0.0.1:1", CertFile: empty, KeyFile: empty}, "certificate"},
		"no NKey file":           {bus.Options{Name: "x", URL: "nats://127.0.0.1:1", NKeyFile: missing}, missing},
		"no NKey in file":        {bus.Options{Name: "x", URL: "nats://127.0.0.1:1", NKeyFile: empty}, empty},
		"no credentials file":    {bus.Options{Name: "x", URL: "nats://127.0.0.1:1", CredsFile: missing}, missing},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := bus.Connect(test.options)
			if err == nil {
				b.Close()
				t.Fatal("it connected")
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %q, want an error that says %q", err, test.says)
			}
		})
	}
}

func TestConnectRetries(t *testing.T) {
	o := bustest.SocketOptions(t)
	b := bustest.Connect(t, bus.Options{Socket: o.Socket}) // it would wait for good
	if err := b.Ready(); !errors.Is(err, bus.ErrNotConnected) {
		t.Errorf("ready: got %v, want that it is not connected", err)
	}
	bustest.Server(t, o)
	bustest.SetUp(t, b, bus.Setup{})
	if err := b.Ready(); err != nil {
		t.Error(err)
	}
}

func TestReadyHidesPassword(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // so that no other process has the port
	expect.Must(t, err)
	address := l.Addr().String()
	expect.Must(t, l.Close())
	for given, shown := range map[string]string{
		"nats://user:secret@" + address:                         "nats://user:xxxxx@" + address,
		"nats://secret@" + address:                              "nats://xxxxx@" + address,
		"nats://" + address + ", nats://user:secret@" + address: "nats://" + address + ",nats://user:xxxxx@" + address,
	} {
		b := bustest.Connect(t, bus.Options{URL: given})
		expect.Eventually(t, "the reason is known", func() bool {
			return strings.Contains(b.Ready().Error(), "connection refused")
		})
		err := b.Ready()
		if want := "bus " + shown + ": not connected: "; !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %q, want %q and the reason", err, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q shows the secret", err)
		}
	}
}

func TestForbiddenSubject(t *testing.T) {
	all, guarded := guardedServer(t, bus.Rights{Publish: []string{"$JS.API.STREAM.INFO.>"}, Subscribe: []string{"_INBOX_tester.>"}})
	bustest.SetUp(t, bustest.Connect(t, bus.Options{Name: "admin", URL: all}), bus.Setup{})
	b := bustest.Connect(t, bus.Options{Name: "tester", URL: guarded})
	expect.Eventually(t, "the bus is ready", func() bool { return b.Ready() == nil })
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	_, published := b.Publish(ctx, bustest.Delta(t, "a"))
	const says = `not permitted: tester may not publish on "rehome.delta.node.taints.a"`
	for name, err := range map[string]error{"publish": published, "ready": b.Ready()} {
		if !errors.Is(err, bus.ErrNotPermitted) || !strings.HasSuffix(err.Error(), says) {
			t.Errorf("%s: got %v, want %s", name, err, says)
		}
	}
	if ctx.Err() != nil {
		t.Error("publishing failed only when its time was over")
	}
}

func TestWrongPasswordRetry(t *testing.T) {
	all, _ := guardedServer(t, bus.Rights{})
	var log program.Log
	b := bustest.Connect(t, bus.Options{URL: strings.Replace(all, ":a@", ":wrong@", 1), Log: slog.New(slog.NewTextHandler(&log, nil))})
	expect.Eventually(t, "the reason is known", func() bool {
		return strings.Contains(strings.ToLower(b.Ready().Error()), "authorization violation")
	})
	expect.Eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), "not connected to the bus") })
}

func TestLostConnectionLog(t *testing.T) {
	o := bustest.SocketOptions(t)
	s, err := embed.Start(o)
	expect.Must(t, err)
	var log program.Log
	b := bustest.Connect(t, bus.Options{Socket: o.Socket, Log: slog.New(slog.NewTextHandler(&log, nil))})
	bustest.SetUp(t, b, bus.Setup{})
	s.Stop()
	expect.Eventually(t, "it was tried again and again", func() bool {
		return strings.Contains(b.Ready().Error(), "no such file")
	})
	// Tries come every few hundred milliseconds by now.
	expect.Eventually(t, "the reason is logged", func() bool { return strings.Contains(log.String(), "no such file") })
	before := log.String()
	bustest.Server(t, o)
	expect.Eventually(t, "the bus is ready", func() bool { return b.Ready() == nil })
	if got := strings.Count(log.String(), "no such file"); got != 1 {
		t.Errorf("the reason is logged %d times, want once:\n%s", got, before)
	}
	if got := strings.Count(log.String(), "connected to the bus\""); got != 2 {
		t.Errorf("connecting is logged %d times, want twice:\n%s", got, log.String())
	}
}

// restartable starts a server that the test stops and starts again, with a connection that is set up.
func restartable(t *testing.T, strategies ...string) (embed.Options, *embed.Server, *bus.Bus) {
	t.Helper()
	o := bustest.SocketOptions(t)
	server, err := embed.Start(o)
	expect.Must(t, err)
	b := bustest.Connect(t, bus.Options{Socket: o.Socket})
	bustest.SetUp(t, b, bus.Setup{Strategies: strategies})
	return o, server, b
}

func TestResumeAfterServerRestart(t *testing.T) {
	o, server, b := restartable(t, strategy)
	events, scopes, answers := bustest.Collect(t, b, bustest.DeltaChannels), work(t, b, bus.Work{}), follow(t, b)
	bustest.Publish(t, b, bustest.Delta(t, "before"), scope(t, "before", 1))
	events.Next(t)
	next(t, scopes)
	server.Stop()

	expect.Eventually(t, "the bus is not ready", func() bool { return b.Ready() != nil })
	ready := b.Ready()
	if !errors.Is(ready, bus.ErrNotConnected) || !strings.HasPrefix(ready.Error(), "bus unix:"+o.Socket+": not connected") {
		t.Errorf("ready: got %v, want that it is not connected", ready)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := b.Publish(ctx, bustest.Delta(t, "lost")); !errors.Is(err, bus.ErrNotConnected) || ctx.Err() != nil {
		t.Errorf("publish: got %v and %v, want at once that it is not connected", err, ctx.Err())
	}

	bustest.Server(t, o)
	expect.Eventually(t, "the bus is ready", func() bool { return b.Ready() == nil })
	after := bustest.Delta(t, "after")
	bustest.Publish(t, b, after, scope(t, "after", 1))
	given := give(t, b, "after", 1, "pod-1")
	if got := events.Next(t); got.ID != after.ID {
		t.Errorf("the next event is about %s, want nodes/after", got.Subject)
	}
	expect.Equal(t, "the next scope is", next(t, scopes), "after-1")
	got := next(t, answers)
	got.end <- nil
	expect.Equal(t, "the next answer is", got.event.ID, given.ID)
	if got := bustest.IDs(t, b, bus.Query{Channels: []string{bustest.DeltaChannels}}); len(got) != 2 {
		t.Errorf("the history has %d deltas, want the one before and the one after", len(got))
	}
}

// The client does not connect again after an error of the protocol. The process must notice that only a restart helps.
func TestEndedConnection(t *testing.T) {
	r := newRig(t, bus.Setup{})
	expect.Must(t, r.bus.Alive())
	e := bustest.Delta(t, "a")
	e.Channel += strings.Repeat("x", server.MAX_CONTROL_LINE_SIZE)
	if _, err := r.bus.Publish(t.Context(), e); !errors.Is(err, bus.ErrNotConnected) {
		t.Errorf("got error %v, want %v", err, bus.ErrNotConnected)
	}
	var err error
	expect.Eventually(t, "the bus is not alive", func() bool { err = r.bus.Alive(); return err != nil })
	if want := "bus in this process: the server ended the connection for good: nats: maximum control line exceeded"; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
