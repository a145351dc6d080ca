package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// following follows the streams and sets them up when they are missing. It sends the lost ones each time
// they are found.
func following(t *testing.T, b *bus.Bus, missing func(context.Context) error) <-chan []string {
	t.Helper()
	found := make(chan []string, 16)
	expect.Background(t, func(ctx context.Context) error {
		return b.FollowStreams(ctx, missing, func(lost []string) { found <- lost })
	})
	return found
}

// restart stops the server and starts another one on a store, at the same socket.
func restart(t *testing.T, s *embed.Server, o embed.Options) *embed.Server {
	t.Helper()
	s.Stop()
	return bustest.Server(t, o)
}

func TestLostStreams(t *testing.T) {
	o := bustest.SocketOptions(t)
	server := bustest.Server(t, o)
	b := bustest.Connect(t, bus.Options{Name: "tester", Socket: o.Socket})
	setUp := func(ctx context.Context) error { return b.Setup(ctx, bus.Setup{Strategies: []string{strategy}}) }
	found := following(t, b, setUp)
	next(t, found)
	sequence, err := b.Publish(t.Context(), scope(t, "a", 1))
	expect.Must(t, err)

	// Finding the same streams again is not reported.
	server = restart(t, server, o)
	expect.Eventually(t, "the streams are there again", func() bool { return b.Ready() == nil })
	if len(found) > 0 {
		t.Error("it reported known streams")
	}

	o.StoreDir = t.TempDir()
	restart(t, server, o)
	all := []string{
		bus.StreamScopes, bus.StreamIntents, bus.StreamRequests, bus.StreamEvents, bus.StreamDead, bus.StreamLedger, bus.StreamMaintenances,
	}
	expect.Equal(t, "lost with the store", next(t, found), all)
	bustest.Publish(t, b, bustest.Delta(t, "a"))
	again, err := b.Publish(t.Context(), scope(t, "a", 2))
	expect.Must(t, err)
	if again <= sequence {
		t.Errorf("the newer scope has the number %d, the older one had %d", again, sequence)
	}
}

// After a failed setup, the streams exist and their consumers do not.
func TestIncompleteSetup(t *testing.T) {
	server := bustest.Server(t, embed.Options{})
	b := bustest.Connect(t, bus.Options{Name: "tester", Server: server})
	failed := false
	found := following(t, b, func(ctx context.Context) error {
		if !failed {
			failed = true
			return errors.Join(b.Setup(ctx, bus.Setup{}), errors.New("no answer"))
		}
		return b.Setup(ctx, bus.Setup{Strategies: []string{strategy}})
	})
	next(t, found)
	scopes := work(t, b, bus.Work{})
	bustest.Publish(t, b, scope(t, "a", 1))
	expect.Equal(t, "the next scope is", next(t, scopes), "a-1")
}

func TestWaitForStreamsWithoutSetupRight(t *testing.T) {
	server := bustest.Server(t, embed.Options{})
	b := bustest.Connect(t, bus.Options{Name: "tester", Server: server})
	waiting := following(t, b, nil)
	tries := make(chan struct{}, 16)
	refused := following(t, b, func(context.Context) error {
		tries <- struct{}{}
		return errors.New("not now")
	})
	next(t, tries)
	next(t, tries)
	if len(waiting)+len(refused) > 0 {
		t.Error("streams were found that are not there")
	}
	bustest.SetUp(t, bustest.Connect(t, bus.Options{Name: "setup", Server: server}), bus.Setup{})
	next(t, waiting)
	next(t, refused)
}

func TestSetupKeepsMessages(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.Publish(t, r.bus, scope(t, "a", 1))
	first := r.first(t, bus.StreamScopes)
	bustest.SetUp(t, r.bus, bus.Setup{Strategies: []string{strategy, "Another"}})
	expect.Equal(t, "the stream begins at", r.first(t, bus.StreamScopes), first)
	if got := len(r.messages(t, bus.StreamScopes)); got != 1 {
		t.Errorf("%d scopes, want the one that was there", got)
	}
}

func TestScopesInMemory(t *testing.T) {
	o := bustest.SocketOptions(t)
	o.MaxMemory = bus.ScopesMaxMemory
	server := bustest.Server(t, o)
	b := bustest.Connect(t, bus.Options{Name: "tester", Socket: o.Socket})
	inMemory := bus.Setup{Strategies: []string{strategy}, ScopesInMemory: true}
	open := func() uint64 {
		streams, err := b.Status(t.Context())
		expect.Must(t, err)
		for _, s := range streams {
			if s.Name == bus.StreamScopes {
				return s.Messages
			}
		}
		t.Fatal("the stream of scopes is missing")
		return 0
	}

	// An earlier version kept them on the disk.
	bustest.SetUp(t, b, bus.Setup{Strategies: []string{strategy}})
	bustest.Publish(t, b, scope(t, "a", 1))
	found := following(t, b, func(ctx context.Context) error { return b.Setup(ctx, inMemory) })
	next(t, found)
	for range 2 { // the second time changes nothing
		bustest.SetUp(t, b, inMemory)
		if got := open(); got > 0 {
			t.Errorf("%d scopes of the stream on the disk are in the one in memory", got)
		}
	}
	sequence, err := b.Publish(t.Context(), scope(t, "a", 2))
	expect.Must(t, err)
	bustest.SetUp(t, b, inMemory)
	expect.Equal(t, "open scopes", open(), 1)

	// A restart loses them. FollowStreams reports it, so the watcher evaluates everything, and workers go on.
	for len(found) > 0 {
		<-found
	}
	server = restart(t, server, o)
	expect.Equal(t, "lost with the memory", next(t, found), []string{bus.StreamScopes})
	again, err := b.Publish(t.Context(), scope(t, "a", 3))
	expect.Must(t, err)
	if again <= sequence {
		t.Errorf("the newer scope has the number %d, the older one had %d", again, sequence)
	}
	handled := make(chan schemas.Event, 16)
	expect.Background(t, func(ctx context.Context) error {
		return b.Work(ctx, bus.Work{Strategy: strategy}, func(_ context.Context, e schemas.Event) error {
			handled <- e
			return nil
		})
	})
	next(t, handled)
	restart(t, server, o)
	next(t, found)
	bustest.Publish(t, b, scope(t, "b", 1))
	if e := next(t, handled); !strings.Contains(e.Subject, "b") {
		t.Errorf("the worker got %q after a restart, want the scope of b", e.Subject)
	}
}
