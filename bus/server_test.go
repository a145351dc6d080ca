package bus_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/filetest"
)

// socketOptions returns a store and a socket of the test.
func socketOptions(t testing.TB) bus.ServerOptions {
	t.Helper()
	return bus.ServerOptions{StoreDir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "bus.sock")}
}

// restartable starts a server that the test stops and starts again, with a connection that is set up.
func restartable(t *testing.T, strategies ...string) (bus.ServerOptions, *bus.Server, *bus.Bus) {
	t.Helper()
	o := socketOptions(t)
	server, err := bus.StartServer(o)
	expect.Must(t, err)
	b := bustest.Connect(t, bus.Options{Socket: o.Socket})
	bustest.SetUp(t, b, bus.Setup{Strategies: strategies})
	return o, server, b
}

func TestServerSocket(t *testing.T) {
	o := socketOptions(t)
	server := bustest.Server(t, o)
	inside := bustest.Connect(t, bus.Options{Server: server})
	outside := bustest.Connect(t, bus.Options{Socket: o.Socket})
	bustest.SetUp(t, inside, bus.Setup{})
	e := delta(t, "a")
	publish(t, outside, e)
	if got := ids(t, inside, bus.Query{}); !reflect.DeepEqual(got, []string{e.ID}) {
		t.Errorf("got %v, want %s", got, e.ID)
	}
	if err := outside.Ready(); err != nil {
		t.Error(err)
	}
}

func TestSocketPermissionsAndRemoval(t *testing.T) {
	o := socketOptions(t)
	server := bustest.Server(t, o)
	info, err := os.Stat(o.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode(), os.ModeSocket|0o600; got != want {
		t.Errorf("mode of the socket: got %v, want %v", got, want)
	}
	server.Stop()
	left, err := os.ReadDir(filepath.Dir(o.Socket))
	if err != nil || len(left) > 0 {
		t.Errorf("left beside the socket: %v, %v; want nothing", left, err)
	}
	server.Stop() // does nothing
}

func TestSocketInUse(t *testing.T) {
	o := socketOptions(t)
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, o)})
	bustest.SetUp(t, b, bus.Setup{})
	second, err := bus.StartServer(o)
	if err == nil {
		second.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), "another rehome is running and uses this store") {
		t.Errorf("got %v, want an error that says that another rehome uses the store", err)
	}
	publish(t, bustest.Connect(t, bus.Options{Socket: o.Socket}), delta(t, "a")) // the first is not disturbed
}

func TestAbandonedSocket(t *testing.T) {
	o := socketOptions(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	bustest.Server(t, o)
	bustest.SetUp(t, bustest.Connect(t, bus.Options{Socket: o.Socket}), bus.Setup{})
}

func TestServerStartErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	filetest.Write(t, file, "mine")
	long := filepath.Join(dir, strings.Repeat("x", 100))
	for name, test := range map[string]struct {
		options bus.ServerOptions
		says    string
	}{
		"no store":                  {bus.ServerOptions{}, "no store directory"},
		"the store is a file":       {bus.ServerOptions{StoreDir: file}, "not a directory"},
		"the path is too long":      {bus.ServerOptions{StoreDir: dir, Socket: long}, "bytes, want at most 87"},
		"a file is in the way":      {bus.ServerOptions{StoreDir: dir, Socket: file}, "a file that is not a socket is in the way"},
		"the socket has no place":   {bus.ServerOptions{StoreDir: dir, Socket: file + "/s"}, "not a directory"},
		"the socket's server fails": {bus.ServerOptions{StoreDir: file, Socket: filepath.Join(dir, "s")}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := bus.StartServer(test.options)
			if err == nil {
				s.Stop()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %q, want an error that says %q", err, test.says)
			}
		})
	}
	if content, err := os.ReadFile(file); string(content) != "mine" {
		t.Errorf("the file holds %q, %v; want it untouched", content, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "s")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a server that did not start: %v, want none", err)
	}
}

func TestResumeAfterServerRestart(t *testing.T) {
	o, server, b := restartable(t, strategy)
	events, scopes, answers := bustest.Collect(t, b, bus.DeltaChannels), work(t, b, bus.Work{}), follow(t, b)
	publish(t, b, delta(t, "before"), scope(t, "before", 1))
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
	if _, err := b.Publish(ctx, delta(t, "lost")); !errors.Is(err, bus.ErrNotConnected) || ctx.Err() != nil {
		t.Errorf("publish: got %v and %v, want at once that it is not connected", err, ctx.Err())
	}

	bustest.Server(t, o)
	expect.Eventually(t, "the bus is ready", func() bool { return b.Ready() == nil })
	after := delta(t, "after")
	publish(t, b, after, scope(t, "after", 1))
	given := give(t, b, "after", 1, "pod-1")
	if got := events.Next(t); got.ID != after.ID {
		t.Errorf("the next event is about %s, want nodes/after", got.Subject)
	}
	if got := next(t, scopes); got != "after-1" {
		t.Errorf("the next scope is %s, want after-1", got)
	}
	got := next(t, answers)
	got.end <- nil
	if got.event.ID != given.ID {
		t.Errorf("the next answer is %s, want %s", got.event.ID, given.ID)
	}
	if got := ids(t, b, bus.Query{Channels: []string{bus.DeltaChannels}}); len(got) != 2 {
		t.Errorf("the history has %d deltas, want the one before and the one after", len(got))
	}
}

// TestUnknownStream has a directory of a stream that the server does not know, as for a moment while a stream is created.
func TestUnknownStream(t *testing.T) {
	t.Parallel()
	for name, lasts := range map[string]bool{"for a moment": false, "for good": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			server := bustest.Server(t, bus.ServerOptions{StoreDir: dir})
			bustest.SetUp(t, bustest.Connect(t, bus.Options{Server: server}), bus.Setup{})
			all, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams"))
			if err != nil || len(all) != 1 {
				t.Fatalf("got %q, %v, want the directory of the streams", all, err)
			}
			unknown := filepath.Join(all[0], "UNKNOWN")
			if err := os.Mkdir(unknown, 0o700); err != nil {
				t.Fatal(err)
			}
			if lasts {
				expect.Eventually(t, "JetStream counts as stopped", func() bool { return errors.Is(server.Ready(), bus.ErrStopped) })
				return
			}
			time.Sleep(2 * time.Second) // the server looks every second
			if err := errors.Join(server.Ready(), os.Remove(unknown)); err != nil {
				t.Errorf("got %v, want a server that takes events", err)
			}
		})
	}
}

func TestSocketConnections(t *testing.T) {
	o := socketOptions(t)
	bustest.Server(t, o)
	dial := func() net.Conn {
		c, err := net.Dial("unix", o.Socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	greeted := func(c net.Conn) bool { // the server speaks first
		_ = c.SetReadDeadline(time.Now().Add(expect.Patience))
		n, _ := c.Read(make([]byte, 1))
		return n == 1
	}
	const most = 128
	var all []net.Conn
	for i := range most {
		all = append(all, dial())
		if !greeted(all[i]) {
			t.Fatalf("connection %d is refused", i+1)
		}
	}
	if greeted(dial()) {
		t.Errorf("connection %d is served", most+1)
	}
	_ = all[0].Close()
	expect.Eventually(t, "another one takes the place of one that ended", func() bool { return greeted(dial()) })
}
