package bus_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// TestReadsOfKeys compares the readable streams and subjects of each confined participant's key with docs/security.md.
// TestConfinedKeyWrites shows that the servers enforce the rights.
func TestReadsOfKeys(t *testing.T) {
	news := []string{"delta", "intents", "maintenance", "receipt", "verdict"}
	for _, n := range others() {
		news = append(news, n.Name)
	}
	slices.Sort(news)
	want := map[bus.Role]reads{
		bus.RoleWatcher: {[]string{bus.StreamRequests, bus.StreamEvents}, []string{"request", "verdict"}},
		bus.RoleActuator: {
			[]string{bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamLedger}, []string{"$KV.REHOME_LEDGER.>", "intents"},
		},
		bus.RoleMaintenance: {
			[]string{bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamMaintenances},
			[]string{"$KV.REHOME_MAINTENANCES.>", "request", "verdict"},
		},
		bus.RoleOperator:   {allStreams, slices.Sorted(slices.Values(append(slices.Clip(news), "scope")))},
		bus.RoleFunctions:  {streams: []string{bus.StreamScopes, bus.StreamIntents}},
		bus.RoleDispatcher: {streams: []string{bus.StreamScopes, bus.StreamIntents}},
		bus.RoleSender:     {subjects: []string{"receipt", "verdict"}},
		bus.RoleReader:     {[]string{bus.StreamRequests, bus.StreamEvents, bus.StreamLedger, bus.StreamMaintenances}, news},
		bus.RoleAPI:        {[]string{bus.StreamRequests, bus.StreamEvents, bus.StreamLedger, bus.StreamMaintenances}, news},
		bus.RoleListener:   {subjects: news},
		bus.RoleForwarder:  {streams: []string{bus.StreamEvents}},
		bus.RoleFunction:   {subjects: []string{asksOn}},
	}
	roles := []bus.Participant{{Role: bus.RoleWatcher}, {Role: bus.RoleActuator}, {Role: bus.RoleMaintenance}}
	for _, who := range append(confined(), roles...) {
		t.Run(who.String(), func(t *testing.T) {
			rights := bus.RightsOf(who, hosting)
			k, got := key{who, rights.Publish}, reads{}
			for _, stream := range allStreams {
				if slices.ContainsFunc([]string{"STREAM.MSG.GET.", "DIRECT.GET.", "STREAM.SNAPSHOT."}, func(q string) bool { return k.may("$JS.API." + q + stream) }) ||
					slices.ContainsFunc([]string{strategy, "audit", "thief"}, func(name string) bool {
						return k.works(stream, name) || k.may("$JS.API.CONSUMER.CREATE."+stream+"."+name)
					}) {
					got.streams = append(got.streams, stream)
				}
			}
			for _, subject := range rights.Subscribe {
				if noun, is := strings.CutPrefix(subject, "rehome."); is {
					subject, _, _ = strings.Cut(noun, ".")
				}
				if !slices.Contains(got.subjects, subject) && !strings.HasPrefix(subject, "_INBOX_") {
					got.subjects = append(got.subjects, subject)
				}
			}
			slices.Sort(got.subjects)
			if !reflect.DeepEqual(got, want[who.Role]) {
				t.Errorf("%s reads\n%+v\nwant\n%+v", who, got, want[who.Role])
			}
		})
	}
}

// reads are the messages that a key can read: in streams, and live ones by noun.
type reads struct{ streams, subjects []string }

// TestWritesOfKeys compares the subjects that each key may publish on with docs/security.md, without the questions to JetStream.
// TestConfinedKeyWrites and TestKeyPublishSubjects show that the servers enforce the rights.
func TestWritesOfKeys(t *testing.T) {
	const (
		node   = ".RemovePods.default.node.x"
		scopes = "rehome.dead." + bus.StreamScopes + ".RemovePods"
		ack    = "$JS.ACK." + bus.StreamScopes + ".RemovePods.1.1.1.1.0"
	)
	const clear, move = "$KV.REHOME_LEDGER.clear.all", "$KV.REHOME_LEDGER.move.x"
	want := map[bus.Role][]string{
		bus.RoleWatcher: {
			"rehome.delta.node.taints.x", "rehome.scope" + node, "rehome.receipt.other.x", "rehome.dead.REHOME_EVENTS.other",
			"rehome.receipt.batch.x", "rehome.dead.REHOME_EVENTS.audit", "rehome.scope.Unhosted.default.node.x",
		},
		// The actuator compares the intents of requests with the request: TestRequestIntents.
		bus.RoleFunctions:  {"rehome.intents" + node, "rehome.intents.Request.default.request.x", scopes, ack},
		bus.RoleDispatcher: {"rehome.intents" + node, scopes, ack, asksOn},
		bus.RoleActuator:   {"rehome.verdict.evicted.x", clear, move},
		bus.RoleMaintenance: {
			"rehome.intents.Maintenance.default.node.x", "rehome.receipt.other.x", "rehome.maintenance.x", "$KV.REHOME_MAINTENANCES.x",
			"rehome.receipt.batch.x",
		},
		bus.RoleAPI:       {"rehome.request.http.x"},
		bus.RoleSender:    {"rehome.request.batch.x"},
		bus.RoleForwarder: {"rehome.dead.REHOME_EVENTS.audit"},
		bus.RoleOperator: {
			"rehome.delta.node.taints.x", "rehome.scope" + node, "rehome.intents" + node, "rehome.verdict.evicted.x", clear,
			"rehome.scope.Unhosted.default.node.x",
		},
	}
	subjects := append(victims(), "rehome.request.batch.x", "rehome.receipt.batch.x", "rehome.dead."+bus.StreamEvents+".audit",
		"rehome.intents.Unhosted.default.node.x", "rehome.scope.Unhosted.default.node.x")
	hosting := bus.Hosting{BuiltIn: []string{strategy, schemas.RequestStrategy}, Subjects: hosting.Subjects}
	roles := []bus.Participant{{Role: bus.RoleWatcher}, {Role: bus.RoleActuator}, {Role: bus.RoleMaintenance}, {Role: bus.RoleSetup}}
	for _, who := range append(confined(), roles...) {
		t.Run(who.String(), func(t *testing.T) {
			k, got := key{who, bus.RightsOf(who, hosting).Publish}, []string(nil)
			for _, subject := range subjects {
				if k.may(subject) && !strings.HasPrefix(subject, "$JS.API.") {
					got = append(got, subject)
				}
			}
			if !slices.Equal(got, want[who.Role]) {
				t.Errorf("%s writes on\n%q\nwant\n%q", who, got, want[who.Role])
			}
		})
	}
}

// TestLiveIntents publishes intents as the key of the built-in functions. A listener receives them when they are published; the other
// keys have accounts of their own, and find them in the history.
func TestLiveIntents(t *testing.T) {
	p := listening(t)
	bustest.SetUp(t, bustest.Connect(t, bus.Options{Server: p.server}), bus.Setup{Strategies: []string{strategy}})
	live := map[string]chan *nats.Msg{}
	for _, name := range []string{"listener", "reader", "api", "operator"} {
		nc := p.bare(t, name)
		live[name] = make(chan *nats.Msg, 10)
		for _, channel := range []string{bus.IntentsChannels, bustest.DeltaChannels} {
			if _, err := nc.ChanSubscribe(channel, live[name]); err != nil {
				t.Fatal(err)
			}
		}
		expect.Must(t, nc.Flush())
	}
	e, a := answer(t, "a", 1, "pod-1")
	expect.Must(t, p.join(t, "functions").Answer(t.Context(), e, a))
	bustest.Publish(t, p.join(t, "watcher"), bustest.Delta(t, "a"))
	for name, messages := range live {
		want, got := []string{"delta"}, []string(nil)
		if name == "listener" {
			want = []string{"intents", "delta"}
		}
		for !slices.Contains(got, "delta") {
			select {
			case m := <-messages:
				got = append(got, strings.Split(m.Subject, ".")[1])
			case <-time.After(expect.Patience):
				t.Fatalf("%s received %q, want %q", name, got, want)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s received %q, want %q", name, got, want)
		}
	}
	reader := p.join(t, "reader")
	expect.Eventually(t, "the reader finds the intents in the history", func() bool {
		return slices.Contains(bustest.IDs(t, reader, bus.Query{Channels: []string{bus.IntentsChannels}}), e.ID)
	})
}

// TestHistoryOfKeys publishes the example of each type with the key of its publisher, unless another stream stores the type. A
// listener receives it, and a reader finds it in the history.
func TestHistoryOfKeys(t *testing.T) {
	p := listening(t)
	bustest.SetUp(t, bustest.Connect(t, bus.Options{Server: p.server}), bus.Setup{})
	listener, messages := p.bare(t, "listener"), make(chan *nats.Msg, 100)
	publishers, live, want := map[string]*bus.Bus{}, []string(nil), []string(nil)
	for _, example := range schematest.Examples(t) {
		e := example.Event
		if !slices.ContainsFunc(bus.Nouns(), func(n bus.Noun) bool { return n.Type == e.Type && n.Stream == bus.StreamEvents }) {
			continue
		}
		role := schemas.Publishers(e.Type)[0]
		if publishers[role] == nil {
			publishers[role] = p.join(t, role)
		}
		subscription, err := listener.ChanSubscribe(e.Channel, messages)
		if err == nil {
			err = listener.Flush()
		}
		expect.Must(t, err)
		bustest.Publish(t, publishers[role], e)
		want, live = append(want, e.ID), append(live, next(t, messages).Header.Get("ce-id"))
		expect.Must(t, subscription.Unsubscribe())
	}
	if got := bustest.IDs(t, p.join(t, "reader"), bus.Query{Since: time.Unix(1, 0)}); !slices.Equal(got, want) || !slices.Equal(live, want) {
		t.Errorf("the reader has %q and the listener %q, want %q", got, live, want)
	}
}
