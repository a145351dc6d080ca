package bus_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestLedgerNewestValues(t *testing.T) {
	server := bustest.Server(t, embed.Options{})
	first := bustest.Connect(t, bus.Options{Name: "first", Server: server})
	if _, err := first.Ledger().Entries(t.Context()); !errors.Is(err, bus.ErrNotSetUp) {
		t.Errorf("entries before the setup: %v, want ErrNotSetUp", err)
	}
	bustest.SetUp(t, first, bus.Setup{})
	put := func(key, value string) {
		t.Helper()
		expect.Must(t, first.Ledger().Put(t.Context(), key, []byte(value)))
	}
	put("move.a", "1")
	put("move.b", "1")
	put("move.a", "2")
	put("loop.c", "1")
	for _, key := range []string{"move.b", "move.never"} {
		expect.Must(t, first.Ledger().Delete(t.Context(), key))
	}

	second := bustest.Connect(t, bus.Options{Name: "second", Server: server})
	got, err := second.Ledger().Entries(t.Context())
	expect.Must(t, err)
	if want := map[string][]byte{"move.a": []byte("2"), "loop.c": []byte("1")}; !reflect.DeepEqual(got, want) {
		t.Errorf("entries %q, want %q", got, want)
	}
}

func TestLedgerMissingRetries(t *testing.T) {
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{})})
	err := b.Ledger().Put(t.Context(), "move.a", []byte("1"))
	if !errors.Is(err, bus.ErrNotSetUp) || errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("put without a stream: %v, want ErrNotSetUp, and not ErrInvalid: it is worth another try", err)
	}
}

func TestLedgerFollow(t *testing.T) {
	r := newRig(t, bus.Setup{})
	put := func(key string) {
		t.Helper()
		expect.Must(t, r.bus.Ledger().Put(t.Context(), key, []byte("x")))
	}
	put("clear.before")
	heard, ended := make(chan string, 16), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		ended <- r.bus.Ledger().Follow(ctx, "clear.", func(key string, value []byte) { heard <- key + " " + string(value) })
	}()
	got := ""
	for deadline := time.Now().Add(10 * time.Second); got == "" && time.Now().Before(deadline); { // until it follows
		put("move.a")
		put("clear.a")
		select {
		case got = <-heard:
		case <-time.After(50 * time.Millisecond):
		}
	}
	if got != "clear.a x" {
		t.Errorf("heard %q, want clear.a with its value", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Follow: %v", err)
	}
}

func TestFullLedger(t *testing.T) {
	r := newRig(t, bus.Setup{MaxBytes: 16 << 16})
	var err error
	for i := 0; i < 10 && err == nil; i++ {
		err = r.bus.Ledger().Put(t.Context(), "move."+string(rune('a'+i)), make([]byte, 16<<10))
	}
	if err == nil {
		t.Fatal("160 KiB were stored in a ledger of 64 KiB")
	}
	entries, err := r.bus.Ledger().Entries(t.Context())
	if err != nil || len(entries) == 0 || entries["move.a"] == nil {
		t.Errorf("entries %d, %v: want what was stored first", len(entries), err)
	}
}
