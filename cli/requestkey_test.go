package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// knowing is a server that authenticates participants by keys, with the sender batch, like after `rehome auth init`.
type knowing struct {
	t       *testing.T
	dir     string // the directory with the keys
	address string
	gate    *gate
}

// newKnowing starts the server and creates the streams. The command in the test connects through a gate with a key.
func newKnowing(t *testing.T, key string) *knowing {
	t.Helper()
	k := &knowing{t: t, dir: t.TempDir()}
	if _, err := credentials.Write(k.dir, credentials.Config{
		Senders:    []bus.Participant{{Role: bus.RoleSender, Name: "batch"}},
		Forwarders: []bus.Participant{{Role: bus.RoleForwarder, Name: "sink"}},
	}); err != nil {
		t.Fatal(err)
	}
	s := bustest.ServeParticipants(t, k.dir, "")
	k.address = s.Addr().String()
	bustest.SetUp(t, k.as(bus.RoleSetup), bus.Setup{})
	k.gate = newGate(t, k.address)
	t.Setenv("REHOME_NATS_URL", "nats://"+k.gate.Addr().String())
	t.Setenv("REHOME_NATS_NKEY_FILE", filepath.Join(k.dir, key+".nk"))
	return k
}

// as connects as a participant.
func (k *knowing) as(role bus.Role) *bus.Bus {
	k.t.Helper()
	return bustest.Connect(k.t, bus.Options{
		Name: string(role), URL: "nats://" + k.address, NKeyFile: filepath.Join(k.dir, string(role)+".nk"),
	})
}

// gate lets connections to an address through while it is open.
type gate struct {
	net.Listener
	to string

	mu      sync.Mutex
	shut    bool
	through []net.Conn
	copying sync.WaitGroup
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	g := &gate{Listener: l, to: to}
	g.copying.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			g.pass(c)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.set(true)
		g.copying.Wait()
	})
	return g
}

// pass connects a client to the address, or closes the connection.
func (g *gate) pass(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	there, err := net.Dial("tcp", g.to)
	if g.shut || err != nil {
		_ = c.Close()
		return
	}
	g.through = append(g.through, c, there)
	for _, pair := range [][2]net.Conn{{c, there}, {there, c}} {
		g.copying.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		})
	}
}

// set opens the gate, or shuts it and cuts every connection.
func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut = shut; shut {
		for _, c := range g.through {
			_ = c.Close()
		}
		g.through = nil
	}
}

func TestRequestWithSenderKey(t *testing.T) {
	k := newKnowing(t, "sender-batch")
	bustest.AnswerRequests(t, k.as(bus.RoleWatcher), func(r schemas.Request) []schemas.Payload {
		return []schemas.Payload{
			receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted, requested("a")), receipt(r, schemas.RequestFinished, schemas.ReceiptDone),
		}
	})
	got, err := execute(t, "move", "node", "n1", "--reason", "fan", "--name", "r", "--sender", "batch")
	got = strings.Replace(clockTime.ReplaceAllString(got, ""), ", by "+requester(t), "", 1)
	const want = `request batch/r: deschedule node n1: fan
receipt  batch/r                          accepted: Accepted: so it is
receipt  batch/r                          finished: Done: so it is

NAMESPACE   POD   WAS ON   RESULT
shop        a     n1       gone by itself

request batch/r finished: Done: so it is
`
	if err != nil || got != want {
		t.Errorf("error %v, got\n%s\nwant\n%s", err, got, want)
	}
	if got, err = execute(t, "evaluate", "--reason", "fan", "--sender", "batch", "--detach"); err != nil || got == "" {
		t.Errorf("without waiting: got %q, error %v", got, err)
	}
	for _, wait := range []string{"--detach=false", "--detach"} {
		got, err = execute(t, "move", "node", "n1", "--reason", "fan", wait)
		if got != "" || !errors.Is(err, bus.ErrNotPermitted) ||
			!strings.HasSuffix(err.Error(), "; --sender: want the sender of the key") {
			t.Errorf("as another sender, %s: got %q, error %v", wait, got, err)
		}
	}
	if _, err := execute(t, "events", "--since", "1h"); !errors.Is(err, bus.ErrNotPermitted) {
		t.Errorf("the history: got %v, want ErrNotPermitted", err)
	}
}

// terminal is the output of the command. It runs a function when the output has both the receipt and the first move, which two
// programs publish in any order.
type terminal struct {
	bytes.Buffer
	moved func()
}

func (w *terminal) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if shown := w.String(); strings.Contains(shown, "evicted from") && strings.Contains(shown, "accepted:") {
		w.moved()
	}
	return n, err
}

// missing is a request whose command misses some events.
type missing struct {
	*knowing
	watcher, actuator *bus.Bus
	request           schemas.Request
	first             chan schemas.Event
	asked             atomic.Int32
}

func (m *missing) publish(cause schemas.Event, payloads ...schemas.Payload) {
	for _, p := range payloads {
		by := m.watcher
		if _, ok := p.(schemas.Verdict); ok {
			by = m.actuator
		}
		e, err := schemas.NewEvent("/test", p, time.Now(), cause)
		if err == nil {
			_, err = by.Publish(m.t.Context(), e)
		}
		if err != nil {
			m.t.Error(err)
		}
	}
}

// handle answers the first request with a started move, and later ones with the receipt of the finished request.
func (m *missing) handle(ctx context.Context, _ schemas.Event, _ time.Time, read func() schemas.Event) error {
	e := read()
	if m.asked.Add(1) > 1 {
		m.publish(e, receipt(m.request, schemas.RequestFinished, schemas.ReceiptDone))
		return m.watcher.DropRequest(ctx, e)
	}
	m.publish(e, receipt(m.request, schemas.RequestAccepted, schemas.ReceiptAccepted, requested("a")),
		judged("a", schemas.Evicted, schemas.ReasonEvictionAccepted))
	m.first <- e
	return nil
}

// end finishes the first request while the command is disconnected, or afterwards.
func (m *missing) end(away bool) {
	first := <-m.first
	if !away {
		m.gate.set(false)
		time.Sleep(3 * time.Second) // until the command has sent it again, and was refused
	}
	m.publish(first, replaced("a", schemas.ReasonReplaced), receipt(m.request, schemas.RequestFinished, schemas.ReceiptDone))
	if err := m.watcher.DropRequest(m.t.Context(), first); err != nil {
		m.t.Error(err)
	}
	m.gate.set(false)
}

// kinds returns the subjects of the lines about events in the output, in the order of the events.
func kinds(text string) (kinds []string) {
	for _, word := range []string{"accepted:", "evicted from", "settled Replaced", "finished:"} {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "  ") && strings.Contains(line, " "+word) {
				kinds = append(kinds, word)
			}
		}
	}
	return kinds
}

func TestMissedReceiptResent(t *testing.T) {
	for _, c := range []struct {
		name   string
		away   bool // the command is disconnected when the request ends
		kinds  []string
		failed string
		asked  int32
	}{
		{"it ended meanwhile", true, []string{"accepted:", "evicted from", "finished:"},
			"request batch/r is finished; some moves are still in flight", 2},
		{"it is still open", false, []string{"accepted:", "evicted from", "settled Replaced", "finished:"}, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKnowing(t, "sender-batch")
			m := &missing{
				knowing: k, watcher: k.as(bus.RoleWatcher), actuator: k.as(bus.RoleActuator), first: make(chan schemas.Event, 1),
				request: schemas.Request{Sender: "batch", Name: "r", Action: schemas.ActionDeschedule},
			}
			ctx, cancel := context.WithCancel(t.Context())
			var beside sync.WaitGroup
			beside.Go(func() { _ = m.watcher.FollowRequests(ctx, m.handle) })
			out, notes := &terminal{moved: sync.OnceFunc(func() {
				k.gate.set(true)
				beside.Go(func() { m.end(c.away) })
			})}, &bytes.Buffer{}
			root := newRoot()
			root.SetArgs([]string{"move", "node", "n1", "--reason", "fan", "--name", "r", "--sender", "batch"})
			root.SetOut(out)
			root.SetErr(notes)
			failed := ""
			if err := root.ExecuteContext(t.Context()); err != nil {
				failed = err.Error()
			}
			cancel()
			beside.Wait()
			if got := kinds(out.String()); !slices.Equal(got, c.kinds) || failed != c.failed || m.asked.Load() != c.asked {
				t.Errorf("asked %d times, %q, error %q; want %d times, %q, error %q\n%s",
					m.asked.Load(), got, failed, c.asked, c.kinds, c.failed, out)
			}
			if want := "the connection to the bus was lost for a while; events of that time are missing here\n"; notes.String() != want {
				t.Errorf("notes: got %q, want %q", notes, want)
			}
		})
	}
}

func TestAPIKeyRequests(t *testing.T) {
	want := "rehome.request." + policy.HTTPSender + ".>"
	if got := bus.RightsOf(bus.Participant{Role: bus.RoleAPI}, bus.Hosting{}).Publish; !slices.Contains(got, want) {
		t.Errorf("it may publish on %q, want %s among them", got, want)
	}
}
