// Command listen prints every verdict, including verdicts from the time when it did not run.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := listen(ctx, os.Args[1]); err != nil {
		slog.Error("cannot listen", "error", err)
	}
}

func listen(ctx context.Context, url string) error {
	b, err := bus.Connect(bus.Options{Name: "audit", URL: url})
	if err != nil {
		return err
	}
	defer b.Close()
	l := bus.Listener{Name: "audit", Channels: []string{"rehome.verdict.>"}}
	return b.Listen(ctx, l, func(_ context.Context, e schemas.Event) error {
		v, err := schemas.Decode[schemas.Verdict](e)
		if err != nil {
			return err
		}
		fmt.Println(v.Outcome, v.Intent.Pod, v.Message)
		return nil
	})
}
