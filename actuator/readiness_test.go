package actuator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestReadiness checks the readiness after the API server did not answer, when nothing calls it anymore.
func TestReadiness(t *testing.T) {
	away := func(_ context.Context, i Intent, _ saveFunc) (schemas.Verdict, error) {
		return schemas.Verdict{}, fmt.Errorf("look at pod %s: %w", i.Pod, ErrUnavailable)
	}
	for name, then := range map[string]func(*bench){
		"after the session ended in an outage": func(b *bench) { b.stop() },
		"after the intents were withdrawn":     func(b *bench) { b.put("A", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Policy: fast}, away, func(t *testing.T, b *bench) {
				b.put("A", 1, "1", "2")
				time.Sleep(time.Second)
				if err := b.Ready(); !errors.Is(err, ErrUnavailable) {
					t.Errorf("readiness in the outage: %v, want an error that wraps ErrUnavailable", err)
				}
				then(b)
				time.Sleep(2*tickEvery + maxBackoff)
				expect.Equal(t, "readiness", b.Ready(), nil)
			})
		})
	}
}
