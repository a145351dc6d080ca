package bus_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/bustest"
)

// following follows the streams and sets them up when they are missing. Each time that they are found is one value.
func following(t *testing.T, b *bus.Bus, missing func(context.Context) error) <-chan struct{} {
	t.Helper()
	found := make(chan struct{}, 16)
	background(t, func(ctx context.Context) error {
		return b.FollowStreams(ctx, missing, func() { found <- struct{}{} })
	})
	return found
}

// restart stops the server and starts another one on a store, at the same socket.
func restart(t *testing.T, s *bus.Server, o bus.ServerOptions) *bus.Server {
	t.Helper()
	s.Stop()
	return bustest.Server(t, o)
}

func TestStreamsThatWereLostAreMadeAnewAndWhoFollowsThemHearsOfIt(t *testing.T) {
	o := bus.ServerOptions{StoreDir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "s")}
	server := bustest.Server(t, o)
	b := bustest.Connect(t, bus.Options{Name: "tester", Socket: o.Socket})
	setUp := func(ctx context.Context) error { return b.Setup(ctx, bus.Setup{Strategies: []string{strategy}}) }
	found := following(t, b, setUp)
	next(t, found)
	sequence, err := b.Publish(t.Context(), scope(t, "a", 1))
	if err != nil {
		t.Fatal(err)
	}

	// The same streams again are no news.
	server = restart(t, server, o)
	bustest.Eventually(t, "the streams are there again", func() bool { return b.Ready() == nil })
	if len(found) > 0 {
		t.Error("it was told of streams that it knew")
	}

	o.StoreDir = t.TempDir()
	restart(t, server, o)
	next(t, found)
	publish(t, b, delta(t, "a"))
	again, err := b.Publish(t.Context(), scope(t, "a", 2))
	if err != nil {
		t.Fatal(err)
	}
	if again <= sequence {
		t.Errorf("the newer scope has the number %d, the older one had %d", again, sequence)
	}
}

func TestWhoMayNotSetUpTheStreamsWaitsForThem(t *testing.T) {
	server := bustest.Server(t, bus.ServerOptions{})
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

func TestSettingUpAgainKeepsWhatIsThere(t *testing.T) {
	r := newRig(t, bus.Setup{})
	publish(t, r.bus, scope(t, "a", 1))
	first := r.first(t, bus.StreamScopes)
	bustest.SetUp(t, r.bus, bus.Setup{Strategies: []string{strategy, "Another"}})
	if again := r.first(t, bus.StreamScopes); again != first {
		t.Errorf("the stream begins at %d, before at %d", again, first)
	}
	if got := len(r.messages(t, bus.StreamScopes)); got != 1 {
		t.Errorf("%d scopes, want the one that was there", got)
	}
}
