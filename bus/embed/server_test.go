package embed_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestMain(m *testing.M) { bustest.Main(m) }

func TestServerSocket(t *testing.T) {
	o := bustest.SocketOptions(t)
	server := bustest.Server(t, o)
	inside := bustest.Connect(t, bus.Options{Server: server})
	outside := bustest.Connect(t, bus.Options{Socket: o.Socket})
	bustest.SetUp(t, inside, bus.Setup{})
	e := bustest.Delta(t, "a")
	bustest.Publish(t, outside, e)
	if got := bustest.IDs(t, inside, bus.Query{Channels: []string{bustest.DeltaChannels}}); !reflect.DeepEqual(got, []string{e.ID}) {
		t.Errorf("got %v, want %s", got, e.ID)
	}
	if err := outside.Ready(); err != nil {
		t.Error(err)
	}
}

func TestSocketPermissionsAndRemoval(t *testing.T) {
	o := bustest.SocketOptions(t)
	server := bustest.Server(t, o)
	info, err := os.Stat(o.Socket)
	expect.Must(t, err)
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
	o := bustest.SocketOptions(t)
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, o)})
	bustest.SetUp(t, b, bus.Setup{})
	second, err := embed.Start(o)
	if err == nil {
		second.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), "another rehome is running and uses this store") {
		t.Errorf("got %v, want an error that says that another rehome uses the store", err)
	}
	bustest.Publish(t, bustest.Connect(t, bus.Options{Socket: o.Socket}), bustest.Delta(t, "a")) // the first is not disturbed
}

// TestStoreInUse uses servers without a socket, so only the lock can refuse the second one.
func TestStoreInUse(t *testing.T) {
	o := embed.Options{StoreDir: filepath.Join(t.TempDir(), "store")}
	refused := "bus server in " + o.StoreDir + ": another rehome is running and uses this store"
	t.Run("two start at once", func(t *testing.T) {
		servers, failures := make(chan *embed.Server, 2), make(chan error, 2)
		for range 2 {
			go func() {
				s, err := embed.Start(o)
				servers <- s
				failures <- err
			}()
		}
		var got []string
		for range 2 {
			if err := <-failures; err != nil {
				got = append(got, err.Error())
			}
		}
		for range 2 {
			if s := <-servers; s != nil {
				s.Stop()
			}
		}
		expect.Equal(t, "errors", got, []string{refused})
	})
	t.Run("one after the other", func(t *testing.T) {
		bustest.Server(t, o).Stop()
		bustest.Server(t, o).Stop()
	})
}

// TestStoreWhileStopping looks and starts another server at the last line that the first one logs.
func TestStoreWhileStopping(t *testing.T) {
	o := bustest.SocketOptions(t)
	second, socket := errors.New("none started"), error(nil)
	first := o
	first.Log = slog.New(slog.NewTextHandler(writer(func(line string) {
		if !strings.Contains(line, "Server Exiting") {
			return
		}
		_, socket = os.Stat(o.Socket)
		s, err := embed.Start(o)
		if second = err; err == nil {
			s.Stop()
		}
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	bustest.Server(t, first).Stop()
	expect.Equal(t, "socket", socket, nil)
	expect.Equal(t, "the second server", fmt.Sprint(second),
		"bus server in "+o.StoreDir+": another rehome is running and uses this store")
}

type writer func(line string)

func (w writer) Write(line []byte) (int, error) {
	w(string(line))
	return len(line), nil
}

func TestAbandonedSocket(t *testing.T) {
	o := bustest.SocketOptions(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.Socket, Net: "unix"})
	expect.Must(t, err)
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
		options embed.Options
		says    string
	}{
		"no store":                  {embed.Options{}, "no store directory"},
		"the store is a file":       {embed.Options{StoreDir: file}, "not a directory"},
		"the path is too long":      {embed.Options{StoreDir: dir, Socket: long}, "bytes, want at most 87"},
		"a file is in the way":      {embed.Options{StoreDir: dir, Socket: file}, "a file that is not a socket is in the way"},
		"the socket has no place":   {embed.Options{StoreDir: dir, Socket: file + "/s"}, "not a directory"},
		"the socket's server fails": {embed.Options{StoreDir: file, Socket: filepath.Join(dir, "s")}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := embed.Start(test.options)
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

// TestUnknownStream has a directory of a stream that the server does not know, as for a moment while a stream is created.
func TestUnknownStream(t *testing.T) {
	t.Parallel()
	for name, lasts := range map[string]bool{"for a moment": false, "for good": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			server := bustest.Server(t, embed.Options{StoreDir: dir})
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
	o := bustest.SocketOptions(t)
	bustest.Server(t, o)
	dial := func() net.Conn {
		c, err := net.Dial("unix", o.Socket)
		expect.Must(t, err)
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
