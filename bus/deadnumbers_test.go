package bus

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestDeadNumbersWhileDropped(t *testing.T) {
	server, err := embed.Start(embed.Options{StoreDir: filepath.Join(t.TempDir(), "store")})
	expect.Must(t, err)
	defer server.Stop()
	b, err := Connect(Options{Name: "tester", Server: server})
	expect.Must(t, err)
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	expect.Must(t, b.Setup(ctx, Setup{}))
	const letters = polledAtOnce + 10 // more than a reader looks through at once
	for range letters {
		if _, err := b.publish(ctx, &nats.Msg{Subject: deadSubject("S", "by")}); err != nil {
			t.Fatal(err)
		}
	}
	dead, err := b.stream(ctx, StreamDead)
	expect.Must(t, err)
	listed := 0
	err = b.list(ctx, source{stream: StreamDead}, func(letter) error {
		if listed++; listed == 1 {
			return dead.Purge(ctx)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("after %d of %d letters: %v", listed, letters, err)
	}
	if listed > polledAtOnce {
		t.Errorf("%d letters were listed, want at most the %d that were on their way", listed, polledAtOnce)
	}
}
