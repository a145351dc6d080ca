package bus_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestDuplicateDelta(t *testing.T) {
	b := bustest.New(t)
	e := bustest.Delta(t, "a")
	e.Source = "/clusters/naïve cluster" // must not break the ID
	bustest.Publish(t, b, e, e)
	if got := bustest.IDs(t, b, bus.Query{}); !reflect.DeepEqual(got, []string{e.ID}) {
		t.Errorf("got %v, want %s once", got, e.ID)
	}
}

func TestMaintenanceEventIDStoredOnce(t *testing.T) {
	b := bustest.New(t)
	first, second, other := maintenance(t, "kernel"), maintenance(t, "kernel"), maintenance(t, "kernel")
	second.ID, second.TraceParent = first.ID, ""
	bustest.Publish(t, b, first, second, other)
	expect.Equal(t, "events", bustest.IDs(t, b, bus.Query{}), []string{first.ID, other.ID})
}

func TestScopePublishedAgain(t *testing.T) {
	r := newRig(t, bus.Setup{})
	c := work(t, r.bus, bus.Work{})
	for range 2 {
		bustest.Publish(t, r.bus, scope(t, "a", 1))
		next(t, c)
		r.empty(t, bus.StreamScopes)
	}
}

// incompressible returns a JSON text that compresses to no less than half of its size.
func incompressible(n int) []byte {
	random := rand.NewChaCha8([32]byte{1})
	half := make([]byte, n/2)
	_, _ = random.Read(half) // it never fails
	return []byte(`"` + hex.EncodeToString(half) + `"`)
}

func TestUnpublishableEvent(t *testing.T) {
	b := bustest.New(t)
	for name, change := range map[string]func(*schemas.Event){
		"too large":             func(e *schemas.Event) { e.Data = incompressible(24 << 20) },
		"without an ID":         func(e *schemas.Event) { e.ID = "" },
		"without a channel":     func(e *schemas.Event) { e.Channel = "" },
		"on a wildcard":         func(e *schemas.Event) { e.Channel = "rehome.delta.>" },
		"on no channel of ours": func(e *schemas.Event) { e.Channel = "orders.new" },
		"data that are bare":    func(e *schemas.Event) { e.Data = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			e := bustest.Delta(t, "a")
			change(&e)
			if _, err := b.Publish(t.Context(), e); !errors.Is(err, schemas.ErrInvalid) {
				t.Errorf("one: got %v, want an error that is ErrInvalid", err)
			}
			if err := b.PublishAll(t.Context(), []schemas.Event{e}); !errors.Is(err, schemas.ErrInvalid) {
				t.Errorf("many: got %v, want an error that is ErrInvalid", err)
			}
		})
	}
	if got := bustest.IDs(t, b, bus.Query{}); len(got) > 0 {
		t.Errorf("stored all the same: %v", got)
	}
}

func TestPublishAllOrder(t *testing.T) {
	b := bustest.New(t)
	var events []schemas.Event
	var want []string
	for n := range 600 {
		e := bustest.Delta(t, fmt.Sprint("node-", n))
		if n == 300 {
			e.ID = ""
		} else {
			want = append(want, e.ID)
		}
		events = append(events, e)
	}
	if err := b.PublishAll(t.Context(), events); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("got %v, want the error of the one that is invalid", err)
	}
	if got := bustest.IDs(t, b, bus.Query{}); !reflect.DeepEqual(got, want) {
		t.Errorf("stored %d events, want %d in the order given", len(got), len(want))
	}
}

func TestPublishAllStored(t *testing.T) {
	var traced []string
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{}), Stored: func(events ...schemas.Event) {
		for _, e := range events {
			traced = append(traced, e.ID)
		}
	}})
	bustest.SetUp(t, b, bus.Setup{})
	first, invalid, last := bustest.Delta(t, "a"), bustest.Delta(t, "b"), bustest.Delta(t, "c")
	invalid.ID = ""
	if err := b.PublishAll(t.Context(), []schemas.Event{first, invalid, last}); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("got %v, want the error of the one that is invalid", err)
	}
	expect.Equal(t, "traced", traced, []string{first.ID, last.ID})
}

// A scope that is sent after its leader has lost the lease would replace the scope of the next leader.
func TestPublishAfterItsContext(t *testing.T) {
	b := bustest.New(t)
	ctx, end := context.WithCancel(t.Context())
	end()
	late, next := bustest.Delta(t, "a"), bustest.Delta(t, "b")
	_, one := b.Publish(ctx, late)
	for _, err := range []error{one, b.PublishAll(ctx, []schemas.Event{late})} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want an error that is context.Canceled", err)
		}
	}
	expect.Must(t, b.PublishAll(t.Context(), []schemas.Event{next}))
	expect.Equal(t, "stored", bustest.IDs(t, b, bus.Query{}), []string{next.ID})
}

func TestPublishAllTooLarge(t *testing.T) {
	b := bustest.New(t)
	good, large, unpacked := bustest.Delta(t, "a"), bustest.Delta(t, "b"), bustest.Delta(t, "c")
	large.Data = incompressible(24 << 20)
	unpacked.Data = json.RawMessage(`"` + strings.Repeat("x", 64<<20) + `"`) // which packs to less than a message holds
	refused, rest := delivery.Refused(b.PublishAll(t.Context(), []schemas.Event{large, unpacked, good}))
	got := make(map[string]string)
	for id, why := range refused {
		got[id] = why.Error()
	}
	want := map[string]string{
		large.ID:    "publish event " + large.ID + " on rehome.delta.node.taints.b: invalid event: nats: maximum payload exceeded, which is 8388608 bytes",
		unpacked.ID: fmt.Sprintf("write event %q: invalid event: its data has more than 64 MiB", unpacked.ID),
	}
	if !reflect.DeepEqual(got, want) || rest != nil {
		t.Errorf("got  %q and %v\nwant %q", got, rest, want)
	}
	if got := bustest.IDs(t, b, bus.Query{}); !reflect.DeepEqual(got, []string{good.ID}) {
		t.Errorf("stored %v, want %s alone", got, good.ID)
	}
}

func TestPublishWithoutStreams(t *testing.T) {
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{})})
	e, a := answer(t, "a", 1, "pod-1")
	_, one := b.Publish(t.Context(), bustest.Delta(t, "a"))
	for name, err := range map[string]error{
		"one":    one,
		"many":   b.PublishAll(t.Context(), []schemas.Event{bustest.Delta(t, "a")}),
		"answer": b.Answer(t.Context(), e, a),
		"drop":   b.DropIntents(t.Context(), schemas.Event{Sequence: 1}),
		"ready":  b.Ready(),
	} {
		if !errors.Is(err, bus.ErrNotSetUp) {
			t.Errorf("%s: got %v, want an error that is ErrNotSetUp", name, err)
		}
	}
	expect.Equal(t, "ready", b.Ready().Error(), "bus: stream REHOME_SCOPES is missing: not set up: run rehome setup")
}

func TestSetupTwice(t *testing.T) {
	r := newRig(t, bus.Setup{Strategies: []string{"One", "Two.Three"}})
	before := configs(t, r.raw)
	bustest.Publish(t, r.bus, bustest.Delta(t, "a"))
	bustest.SetUp(t, r.bus, bus.Setup{Strategies: []string{"One"}})
	if after := configs(t, r.raw); !reflect.DeepEqual(after, before) {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
	if got := bustest.IDs(t, r.bus, bus.Query{}); len(got) != 1 {
		t.Errorf("the history has %d events, want 1", len(got))
	}
	if err := r.bus.Ready(); err != nil {
		t.Error(err)
	}
}

func TestSetupUpdate(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.SetUp(t, r.bus, bus.Setup{
		Strategies: []string{strategy}, History: time.Hour, MaxBytes: 160 << 20, AckWait: time.Second,
	})
	events, err := r.raw.Stream(t.Context(), bus.StreamEvents)
	expect.Must(t, err)
	c, err := r.raw.Consumer(t.Context(), bus.StreamScopes, strategy)
	expect.Must(t, err)
	s, k := events.CachedInfo().Config, c.CachedInfo().Config
	got := fmt.Sprint(s.MaxAge, s.MaxBytes, k.AckWait, k.MaxDeliver)
	if want := fmt.Sprint(time.Hour, 85<<20, time.Second, -1); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestScopeAge(t *testing.T) {
	got, want := map[time.Duration]time.Duration{}, map[time.Duration]time.Duration{
		0: time.Hour, time.Minute: time.Hour, 30 * time.Minute: time.Hour, 6 * time.Hour: 12 * time.Hour,
	}
	r := newRig(t, bus.Setup{})
	for resync := range want {
		bustest.SetUp(t, r.bus, bus.Setup{Strategies: []string{strategy}, Resync: resync})
		scopes, err := r.raw.Stream(t.Context(), bus.StreamScopes)
		expect.Must(t, err)
		got[resync] = scopes.CachedInfo().Config.MaxAge
	}
	expect.Equal(t, "result", got, want)
}

// configs returns the settings of all streams and consumers.
func configs(t testing.TB, js jetstream.JetStream) map[string]any {
	t.Helper()
	all := make(map[string]any)
	streams := js.ListStreams(t.Context())
	for s := range streams.Info() {
		all[s.Config.Name] = s.Config
	}
	scopes, err := js.Stream(t.Context(), bus.StreamScopes)
	expect.Must(t, errors.Join(streams.Err(), err))
	consumers := scopes.ListConsumers(t.Context())
	for c := range consumers.Info() {
		all["consumer "+c.Name] = c.Config
	}
	if len(all) != 9 || consumers.Err() != nil {
		t.Fatalf("streams and consumers: got %v, %v; want 7 streams and 2 consumers", all, consumers.Err())
	}
	return all
}

func TestBury(t *testing.T) {
	r := newRig(t, bus.Setup{})
	e := scope(t, "a", 1)
	bustest.Publish(t, r.bus, e)
	e.Sequence = 1
	for range 2 { // a second letter about the same message is none
		expect.Must(t, r.bus.Bury(t.Context(), bus.StreamScopes, e, errors.New("the function\nsaid 400")))
	}
	want := map[string]string{"rehome.dead.REHOME_SCOPES." + strategy: string(e.Data)}
	expect.Equal(t, "messages", r.messages(t, bus.StreamDead), want)
	l := r.deadLetters(t, 1)[0]
	wantHeader := nats.Header{
		bus.HeaderError: {"the function said 400"}, bus.HeaderSubject: {e.Channel}, bus.HeaderStream: {bus.StreamScopes},
		bus.HeaderSequence: {"1"}, "ce-id": {e.ID},
	}
	gotHeader := nats.Header{}
	for name := range wantHeader {
		gotHeader[name] = l.Header[name]
	}
	if !reflect.DeepEqual(gotHeader, wantHeader) || len(r.messages(t, bus.StreamScopes)) != 1 {
		t.Errorf("headers: got %v, want %v; in the stream: %v", gotHeader, wantHeader, r.messages(t, bus.StreamScopes))
	}
}
