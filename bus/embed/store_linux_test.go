package embed_test

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

const (
	mib      = 1 << 20
	strategy = "RemovePods"
)

func scope(t testing.TB, node string) schemas.Event {
	t.Helper()
	return bustest.Event(t, schemas.NodeScope{
		ScopeHead: schemas.ScopeHead{Kind: schemas.NodeKind, Key: node, Profile: "default", Strategy: strategy},
	})
}

// TestDiskReserve fills the disk up to a part of the reserve: the bus refuses what is written, and still reads and removes.
func TestDiskReserve(t *testing.T) {
	bustest.SmallDisk(t, "64m", func(t *testing.T, disk bustest.Disk) {
		server := bustest.Server(t, embed.Options{
			StoreDir: filepath.Join(disk.Dir, "store"), MaxMemory: bus.ScopesMaxMemory, Reserve: 16 * mib,
		})
		b := bustest.Connect(t, bus.Options{Server: server})
		bustest.SetUp(t, b, bus.Setup{ScopesInMemory: true, Strategies: []string{strategy}})
		before := bustest.Delta(t, "before")
		bustest.Publish(t, b, before, scope(t, "before"))
		if err := b.Ledger().Put(t.Context(), "move.1", []byte("1")); err != nil {
			t.Fatal(err)
		}
		free := disk.Fill(t, 8*mib)
		expect.Eventually(t, "the server refuses writes", func() bool { return server.Ready() != nil })
		began := time.Now()
		_, delta1 := b.Publish(t.Context(), bustest.Delta(t, "full"))
		_, scope1 := b.Publish(t.Context(), scope(t, "full"))
		for what, err := range map[string]error{
			"server ready": server.Ready(), "space": b.Space(t.Context()), "delta": delta1, "scope in memory": scope1,
			"many":   b.PublishAll(t.Context(), []schemas.Event{bustest.Delta(t, "full")}),
			"ledger": b.Ledger().Put(t.Context(), "move.2", nil),
		} {
			if !errors.Is(err, embed.ErrNoSpace) {
				t.Errorf("%s: got %v, want %v", what, err, embed.ErrNoSpace)
			}
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the refusals took %v, want them at once", took)
		}
		if err := server.Ready(); !strings.Contains(err.Error(), " MiB are free in "+disk.Dir) {
			t.Errorf("got %q, want the free space", err)
		}
		if err := errors.Join(server.Alive(time.Now().Add(embed.StoppedLimit)), b.Ready()); err != nil {
			t.Errorf("a full disk: got %v, want a server that lives", err)
		}
		if err := b.Ledger().Delete(t.Context(), "move.1"); err != nil {
			t.Error(err)
		}
		free()
		<-server.Resumed()
		after := bustest.Delta(t, "after")
		bustest.Publish(t, b, after, scope(t, "after"))
		if got, want := bustest.IDs(t, b, bus.Query{Channels: []string{bustest.DeltaChannels}}), []string{before.ID, after.ID}; !reflect.DeepEqual(got, want) {
			t.Errorf("the history has %v, want %v", got, want)
		}
		if err := errors.Join(server.Ready(), b.Space(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// TestFullDisk has nats-server run out of space, which stops its streams for good.
func TestFullDisk(t *testing.T) {
	bustest.SmallDisk(t, "64m", func(t *testing.T, disk bustest.Disk) {
		server := bustest.Server(t, embed.Options{
			StoreDir: filepath.Join(disk.Dir, "store"), MaxMemory: bus.ScopesMaxMemory, Reserve: mib,
		})
		b := bustest.Connect(t, bus.Options{Server: server})
		setup := bus.Setup{ScopesInMemory: true, Strategies: []string{strategy}}
		bustest.SetUp(t, b, setup)
		history, scopes, answers := bustest.Collect(t, b, bustest.DeltaChannels), make(chan string), make(chan string)
		reading, stop := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		defer readers.Wait()
		defer stop()
		take := func(to chan<- string) func(context.Context, schemas.Event) error {
			return func(_ context.Context, e schemas.Event) error {
				to <- e.ID
				return nil
			}
		}
		readers.Go(func() { _ = b.Work(reading, bus.Work{Strategy: strategy}, take(scopes)) })
		readers.Go(func() { _ = b.FollowIntents(reading, take(answers)) })
		bustest.Publish(t, b, bustest.Delta(t, "before"))
		history.Next(t)
		var free func()
		expect.Eventually(t, "a write fails before the server sees that the disk is full", func() bool {
			free = disk.Fill(t, 0)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, _ = b.Publish(ctx, bustest.Delta(t, "full"))
			stopped := errors.Is(server.Ready(), embed.ErrStopped)
			if !stopped {
				free()
			}
			return stopped
		})
		if err := server.Ready(); !errors.Is(err, embed.ErrNoSpace) || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("got %v, want both reasons", err)
		}
		_, err := b.Publish(t.Context(), bustest.Delta(t, "full"))
		if !errors.Is(err, embed.ErrNoSpace) || !errors.Is(b.Space(t.Context()), embed.ErrNoSpace) {
			t.Errorf("publish: got %v, want %v", err, embed.ErrNoSpace)
		}
		if now, later := server.Alive(time.Now()), server.Alive(time.Now().Add(embed.StoppedLimit)); now != nil || later == nil {
			t.Errorf("alive: got %v, and %v after %v", now, later, embed.StoppedLimit)
		}
		free()
		expect.Eventually(t, "the server takes events", func() bool { return server.Ready() == nil })
		<-server.Resumed()
		bustest.SetUp(t, b, setup) // the scopes were in memory
		after, evaluate := bustest.Delta(t, "after"), scope(t, "after")
		bustest.Publish(t, b, after, evaluate)
		history.Find(t, func(e schemas.Event) bool { return e.ID == after.ID })
		if got := <-scopes; got != evaluate.ID {
			t.Errorf("the next scope is %s, want %s", got, evaluate.ID)
		}
		a := schemas.Intents{
			Profile: "default", Strategy: strategy, Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "after", Event: evaluate.ID, Sequence: 1},
			Intents: []schemas.Intent{{ID: "pod-1", Pod: schemas.PodRef{Namespace: "web", Name: "pod-1"}, Node: "after"}},
		}
		given := bustest.Event(t, a)
		if err := b.Answer(t.Context(), given, a); err != nil {
			t.Fatal(err)
		}
		if got := <-answers; got != given.ID {
			t.Errorf("the next answer is %s, want %s", got, given.ID)
		}
		if err := errors.Join(server.Alive(time.Now().Add(embed.StoppedLimit)), b.Space(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// TestStartOnFullDisk starts a server that may write nothing.
func TestStartOnFullDisk(t *testing.T) {
	bustest.SmallDisk(t, "32m", func(t *testing.T, disk bustest.Disk) {
		free := disk.Fill(t, mib)
		server := bustest.Server(t, embed.Options{StoreDir: filepath.Join(disk.Dir, "store"), Reserve: 2 * mib})
		b := bustest.Connect(t, bus.Options{Server: server})
		if err := b.Setup(t.Context(), bus.Setup{}); !errors.Is(err, embed.ErrNoSpace) || !errors.Is(server.Ready(), embed.ErrNoSpace) {
			t.Errorf("got %v, want %v", err, embed.ErrNoSpace)
		}
		free()
		bustest.SetUp(t, b, bus.Setup{})
	})
}
