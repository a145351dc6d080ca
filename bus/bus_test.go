package bus_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestMain(m *testing.M) { bustest.Main(m) }

// strategy is the strategy of the scopes in these tests.
const strategy = "RemovePods"

// at is the time of most events in these tests.
var at = bustest.EventTime()

// scope returns the event of a scope of a node. Version distinguishes scopes of one node, like the ID of the event.
func scope(t testing.TB, node string, version int) schemas.Event {
	t.Helper()
	e := bustest.Event(t, schemas.NodeScope{ScopeHead: schemas.ScopeHead{
		Kind: schemas.NodeKind, Key: node, Profile: "default", Strategy: strategy, Now: at, Since: at,
	}})
	e.ID = fmt.Sprintf("%s-%d", node, version)
	return e
}

// answer returns the answer to the scope of a node with that sequence, which moves these pods, and its event.
func answer(t testing.TB, node string, sequence uint64, pods ...string) (schemas.Event, schemas.Intents) {
	t.Helper()
	a := schemas.Intents{
		Profile: "default", Strategy: strategy,
		Scope: schemas.ScopeRef{
			Kind: schemas.NodeKind, Key: node, Event: fmt.Sprint(sequence), Sequence: sequence, Since: at,
		},
	}
	for _, pod := range pods {
		a.Intents = append(a.Intents, schemas.Intent{ID: pod, Pod: schemas.PodRef{Namespace: "web", Name: pod}, Node: node})
	}
	return bustest.Event(t, a), a
}

func verdict(t testing.TB, pod string) schemas.Event {
	t.Helper()
	return bustest.Event(t, schemas.Verdict{
		Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Strategy: strategy,
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: pod}},
	})
}

func maintenance(t testing.TB, name string) schemas.Event {
	t.Helper()
	return bustest.Event(t, schemas.Maintenance{Name: name, UID: "m", Stage: v1alpha1.Drain, Accepted: true})
}

// rig is a server with a connection that is set up, and a bare client.
type rig struct {
	server *embed.Server
	bus    *bus.Bus
	raw    jetstream.JetStream
}

func newRig(t testing.TB, s bus.Setup) rig {
	t.Helper()
	if s.Strategies == nil {
		s.Strategies = []string{strategy}
	}
	server := bustest.Server(t, embed.Options{})
	b := bustest.Connect(t, bus.Options{Name: "tester", Server: server})
	r := rig{server: server, bus: b, raw: bustest.Raw(t, server)}
	bustest.SetUp(t, r.bus, s)
	return r
}

// messages returns the bodies in a stream by their channels, in no order.
func (r rig) messages(t testing.TB, stream string) map[string]string {
	t.Helper()
	s := r.stream(t, stream)
	all := make(map[string]string)
	state := s.CachedInfo().State
	for sequence := state.FirstSeq; sequence <= state.LastSeq && state.Msgs > 0; sequence++ {
		m, err := answered(t, func() (*jetstream.RawStreamMsg, error) { return s.GetMsg(t.Context(), sequence) })
		if err == nil {
			all[m.Subject] += string(m.Data)
		}
	}
	return all
}

// stream returns the current state of a stream.
func (r rig) stream(t testing.TB, name string) jetstream.Stream {
	t.Helper()
	s, err := answered(t, func() (jetstream.Stream, error) { return r.raw.Stream(t.Context(), name) })
	expect.Must(t, err)
	return s
}

// answered retries until there is an answer: eight megabytes take a busy server a while.
func answered[T any](t testing.TB, ask func() (T, error)) (T, error) {
	for {
		answer, err := ask()
		if !errors.Is(err, context.DeadlineExceeded) || t.Context().Err() != nil {
			return answer, err
		}
	}
}

// first returns the sequence of the first message that a stream ever had.
func (r rig) first(t testing.TB, stream string) uint64 {
	t.Helper()
	switch stream {
	case bus.StreamScopes, bus.StreamIntents, bus.StreamRequests:
		return uint64(r.stream(t, stream).CachedInfo().Created.UnixMicro()) + 1
	}
	return 1
}

// empty waits until a stream is empty.
func (r rig) empty(t testing.TB, stream string) {
	t.Helper()
	expect.EventuallyWithState(t, stream+" is empty", func() (bool, string) {
		left := r.messages(t, stream)
		return len(left) == 0, fmt.Sprint(slices.Sorted(maps.Keys(left)))
	})
}

// deadLetters waits for n dead letters and returns them.
func (r rig) deadLetters(t testing.TB, n int) (letters []*jetstream.RawStreamMsg) {
	t.Helper()
	s := r.stream(t, bus.StreamDead)
	for sequence := range uint64(n) {
		expect.Eventually(t, fmt.Sprintf("dead letter %d is there", sequence+1), func() bool {
			m, err := s.GetMsg(t.Context(), sequence+1)
			if err == nil {
				letters = append(letters, m)
			}
			return err == nil
		})
	}
	return letters
}

// garbage stores a message without checks.
func (r rig) garbage(t testing.TB, channel string, h nats.Header, body string) {
	t.Helper()
	if _, err := r.raw.PublishMsg(t.Context(), &nats.Msg{Subject: channel, Header: h, Data: []byte(body)}); err != nil {
		t.Fatal(err)
	}
}

// next waits for a value.
func next[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	return expect.Receive(t, "a value", c)
}
