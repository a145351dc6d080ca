package bus_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// port is an embedded server that listens, and the directory with the files of the participants.
type port struct {
	dir     string
	options embed.Options
	server  *embed.Server
}

// listening starts a server that listens on a free port of the loopback interface.
func listening(t *testing.T) port {
	t.Helper()
	server, o := bustest.Listening(t, credentials.Config{
		Functions:  []bus.Participant{{Role: bus.RoleFunction, Name: "KeepOffSpot", Subject: asksOn}},
		Senders:    []bus.Participant{{Role: bus.RoleSender, Name: "batch"}},
		Forwarders: []bus.Participant{{Role: bus.RoleForwarder, Name: "audit"}},
		BuiltIn:    []string{strategy},
	})
	return port{dir: o.Listen.Participants, options: o, server: server}
}

func (p port) url() string { return "tls://" + p.server.Addr().String() }

// join connects over the network as a participant.
func (p port) join(t *testing.T, name string) *bus.Bus {
	t.Helper()
	return bustest.Connect(t, bus.Options{
		Name: name, URL: p.url(), CAFile: filepath.Join(p.dir, credentials.CACert),
		NKeyFile: filepath.Join(p.dir, name+credentials.SeedSuffix),
	})
}

// bare connects as a participant with the plain NATS client.
func (p port) bare(t *testing.T, name string) *nats.Conn {
	t.Helper()
	seed, err := nats.NkeyOptionFromSeed(filepath.Join(p.dir, name+credentials.SeedSuffix))
	expect.Must(t, err)
	nc, err := nats.Connect(p.url(), seed, nats.RootCAs(filepath.Join(p.dir, credentials.CACert)),
		nats.CustomInboxPrefix("_INBOX_"+name), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	expect.Must(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func TestNetworkParticipants(t *testing.T) {
	p := listening(t)
	inside := bustest.Connect(t, bus.Options{Server: p.server})
	bustest.SetUp(t, inside, bus.Setup{Strategies: []string{strategy}})
	socket := bustest.Connect(t, bus.Options{Socket: p.options.Socket})
	expect.Eventually(t, "the socket is ready", func() bool { return socket.Ready() == nil })
	bustest.Publish(t, socket, bustest.Delta(t, "a"))
	bustest.Publish(t, inside, verdict(t, "pod-1"))

	reader := p.join(t, "reader")
	var got []string
	expect.Eventually(t, "the reader is connected", func() bool {
		got = nil
		err := reader.Events(t.Context(), bus.Query{}, func(e schemas.Event) error {
			got = append(got, e.Channel)
			return nil
		})
		if err != nil && !errors.Is(err, bus.ErrNotConnected) {
			t.Fatal(err)
		}
		return err == nil
	})
	if want := []string{"rehome.delta.node.taints.a", verdict(t, "pod-1").Channel}; !reflect.DeepEqual(got, want) {
		t.Errorf("the reader has %q, want %q", got, want)
	}

	function := p.bare(t, "function-KeepOffSpot")
	if _, err := function.Subscribe(asksOn, func(m *nats.Msg) { _ = m.Respond([]byte("none")) }); err != nil {
		t.Fatal(err)
	}
	expect.Must(t, function.Flush())
	answer, err := p.bare(t, "dispatcher").Request(asksOn, nil, expect.Patience)
	if err != nil || string(answer.Data) != "none" {
		t.Errorf("the function: got %v, %v; want its answer", answer, err)
	}
}

// TestFunctionsWorkInTheirAccounts answers a scope with the key of each host of functions, and calls an external function.
func TestFunctionsWorkInTheirAccounts(t *testing.T) {
	p := listening(t)
	inside := bustest.Connect(t, bus.Options{Server: p.server})
	bustest.SetUp(t, inside, bus.Setup{Strategies: []string{strategy}})
	for _, name := range []string{"functions", "dispatcher"} {
		b := p.join(t, name)
		expect.Eventually(t, name+" is connected", func() bool { return b.Ready() == nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- b.Work(ctx, bus.Work{Strategy: strategy}, func(ctx context.Context, e schemas.Event) error {
				given, a := answer(t, name, e.Sequence, "pod-1")
				return b.Answer(ctx, given, a)
			})
		}()
		bustest.Publish(t, inside, scope(t, name, 1))
		expect.Eventually(t, name+" answers", func() bool {
			given, _ := answer(t, name, 1, "pod-1")
			e, err := inside.Intents(t.Context(), given.Channel)
			streams, more := inside.Status(t.Context())
			if err != nil || more != nil {
				return false
			}
			scopes := slices.IndexFunc(streams, func(s bus.StreamStatus) bool { return s.Name == bus.StreamScopes })
			return e.ID != "" && streams[scopes].Messages == 0
		})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	dispatcher := p.join(t, "dispatcher")
	expect.Eventually(t, "the dispatcher is connected", func() bool { return dispatcher.Ready() == nil })
	_, _, err := dispatcher.Ask(t.Context(), asksOn, scope(t, "a", 1))
	if want := "no function listens on " + asksOn; !errors.Is(err, delivery.ErrUnreachable) || !strings.Contains(err.Error(), want) {
		t.Errorf("without a function: got %v, want %v: %s", err, delivery.ErrUnreachable, want)
	}
}

func TestRightsDoNotOverlap(t *testing.T) {
	p := listening(t)
	inside := bustest.Connect(t, bus.Options{Server: p.server})
	bustest.SetUp(t, inside, bus.Setup{Strategies: []string{strategy}})
	given, _ := answer(t, "a", 1, "pod-1")
	request := func(sender string) schemas.Event {
		e := bustest.Delta(t, "a")
		e.Channel = "rehome.request." + sender + ".one"
		return e
	}
	for name, forbidden := range map[string][]schemas.Event{
		"reader":       {bustest.Delta(t, "a"), verdict(t, "a"), given, scope(t, "a", 1), request("batch"), request("reader")},
		"functions":    {bustest.Delta(t, "a"), verdict(t, "a"), scope(t, "a", 1), request("batch")},
		"watcher":      {verdict(t, "a"), given, request("batch")},
		"actuator":     {bustest.Delta(t, "a"), given, scope(t, "a", 1), request("batch")},
		"dispatcher":   {bustest.Delta(t, "a"), verdict(t, "a"), scope(t, "a", 1), request("batch")},
		"listener":     {bustest.Delta(t, "a"), verdict(t, "a"), given, scope(t, "a", 1), request("batch"), request("listener")},
		"sender-batch": {bustest.Delta(t, "a"), verdict(t, "a"), given, scope(t, "a", 1), request("other")},
	} {
		b := p.join(t, name)
		for _, e := range forbidden {
			var err error
			expect.Eventually(t, name+" is connected", func() bool {
				_, err = b.Publish(t.Context(), e)
				return !errors.Is(err, bus.ErrNotConnected)
			})
			want := fmt.Sprintf("%s may not publish on %q", name, e.Channel)
			if name == "listener" && errors.Is(err, bus.ErrNotPermitted) { // and it needs the right to get the acknowledgment, which the server checks first
				continue
			}
			if !errors.Is(err, bus.ErrNotPermitted) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
	if got := bustest.IDs(t, inside, bus.Query{}); len(got) > 0 {
		t.Errorf("the history has %v, want nothing", got)
	}
}

func TestExternalFunctionRights(t *testing.T) {
	p := listening(t)
	nc := p.bare(t, "function-KeepOffSpot")
	for _, do := range []func() error{
		func() error { return nc.Publish(asksOn, nil) },
		func() error { return nc.Publish("rehome.intents.a.b.c.d", nil) },
		func() error { return nc.Publish("$JS.API.STREAM.LIST", nil) },
		func() error { _, err := nc.SubscribeSync("rehome.>"); return err },
		func() error { _, err := nc.SubscribeSync("_INBOX_actuator.>"); return err },
	} {
		before := nc.LastError()
		if err := errors.Join(do(), nc.Flush()); err != nil && !errors.Is(err, nats.ErrPermissionViolation) {
			t.Fatal(err)
		}
		if err := nc.LastError(); !errors.Is(err, nats.ErrPermissionViolation) || err == before { //nolint:errorlint // another one
			t.Errorf("got %v, want that it is not permitted", err)
		}
	}
}

func TestForwarderKeyHistory(t *testing.T) {
	p := listening(t)
	admin := bustest.Connect(t, bus.Options{Server: p.server})
	bustest.SetUp(t, admin, bus.Setup{})
	b := p.join(t, "forwarder-audit")
	listen := func(handle func(schemas.Event) error) {
		expect.Background(t, func(ctx context.Context) error {
			return b.Listen(ctx, bus.Listener{Name: "audit", Existing: true}, func(_ context.Context, e schemas.Event) error { return handle(e) })
		})
	}
	var mu sync.Mutex
	got, want := map[string]int{}, map[string]int{}
	listen(func(e schemas.Event) error {
		mu.Lock()
		defer mu.Unlock()
		if got[e.ID]++; e.Subject == "nodes/refused" {
			return schemas.ErrInvalid
		}
		return nil
	})
	setup := p.join(t, "setup")
	expect.Eventually(t, "the name is added", func() bool {
		return setup.AddListener(t.Context(), bus.Listener{Name: "audit"}) == nil
	})
	for i := range 300 {
		e := bustest.Delta(t, fmt.Sprint("node-", i))
		bustest.Publish(t, admin, e)
		want[e.ID] = 1
	}
	refused := bustest.Delta(t, "refused")
	bustest.Publish(t, admin, refused)
	want[refused.ID] = 1
	expect.Eventually(t, "it has all", func() bool {
		backlog, err := b.Backlog(t.Context(), "audit")
		return err == nil && backlog == bus.Backlog{}
	})
	mu.Lock()
	defer mu.Unlock()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %d events, want %d, each once", len(got), len(want))
	}
	if dead := numbers(t, admin, bus.DeadQuery{By: "audit"}); len(dead) != 1 {
		t.Errorf("dead letters: %v, want one", dead)
	}
}

func TestParsedServerRights(t *testing.T) {
	p := listening(t)
	own := filepath.Join(p.dir, "nats-server.conf")
	text := "listen: 127.0.0.1:-1\njetstream { store_dir: \"x\", sync_interval: always }\ninclude \"rehome.conf\"\n"
	filetest.Write(t, own, text)
	o, err := server.ProcessConfigFile(own)
	expect.Must(t, err)
	want := map[string]bool{}
	for _, job := range jobs {
		r := bus.RightsOf(job.who, bus.Hosting{
			BuiltIn: hosting.BuiltIn, Outside: []string{"KeepOffSpot"}, Subjects: hosting.Subjects,
		})
		want[fmt.Sprint(r.Publish, r.Subscribe, r.Reply)] = true
	}
	got := map[string]bool{}
	for _, u := range o.Nkeys {
		publish := u.Permissions.Publish.Allow
		if len(publish) == 0 {
			publish = nil
		}
		got[fmt.Sprint(publish, u.Permissions.Subscribe.Allow, u.Permissions.Response != nil)] = true
	}
	expect.Equal(t, "result", got, want)
}
