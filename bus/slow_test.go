package bus_test

import (
	"io"
	"net"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// slowLink is a connection to a server that can delay the data from the server.
type slowLink struct {
	url  string
	held atomic.Pointer[time.Time] // until when; nil means it was never held
}

// slow returns a link to a new server.
func slow(t *testing.T) *slowLink {
	t.Helper()
	s := bustest.Serve(t, &server.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	link := &slowLink{url: "nats://" + l.Addr().String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				_ = client.Close()
				continue
			}
			go link.pass(server, client)
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
		}
	}()
	return link
}

// pass forwards the data from the server to the client, unless it is delayed.
func (l *slowLink) pass(server io.Reader, client io.Writer) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if until := l.held.Load(); until != nil {
			time.Sleep(time.Until(*until))
		}
		if err != nil {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// hold delays the data from the server for d.
func (l *slowLink) hold(d time.Duration) {
	until := time.Now().Add(d)
	l.held.Store(&until)
}

func TestSlowServer(t *testing.T) {
	t.Parallel()
	link := slow(t)
	b := bustest.Connect(t, bus.Options{URL: link.url})
	bustest.SetUp(t, b, bus.Setup{})
	var want []string
	for range 300 { // more than a reader asks for at once, so that some are still to come
		d := bustest.Delta(t, "a")
		bustest.Publish(t, b, d)
		want = append(want, d.ID)
	}
	got := []string{}
	err := b.Events(t.Context(), bus.Query{}, func(e schemas.Event) error {
		if got = append(got, e.ID); len(got) == 1 {
			link.hold(5 * time.Second) // a reader takes a server to be gone after 4
		}
		return nil
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %d events and %v, want all %d in their order", len(got), err, len(want))
	}
}
