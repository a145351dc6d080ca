package actuator

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// A record that this program did not write must be set aside without affecting others.
func TestLedgerRecord(t *testing.T) {
	for _, c := range []struct{ name, key, value, says string }{
		{"empty_object", "move.1", `{}`, `ledger record move.1 is set aside: it is about the pod with UID ""`},
		{"garbage", "move.1", "\x00garbage", `ledger record move.1 is set aside: invalid character '\x00' looking for beginning of value`},
		{"of_another_pod", "move.9", `{"intent":{"pod":{"namespace":"web","name":"a","uid":"1"}}}`,
			`ledger record move.9 is set aside: it is about the pod with UID "1"`},
		{"of_nobody", "loop.x", `{}`, "ledger record loop.x is set aside: it is not about the workload, strategy and node of its key"},
		{"garbage_of_the_breaker", "storm", "\x00", `ledger record storm is set aside: invalid character '\x00' looking for beginning of value`},
		{"foreign_key", "strange", `1`, "ledger record strange is set aside: the key is unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				m.ledger[c.key] = []byte(c.value)
				registry := prometheus.NewRegistry()
				a := New(Config{Bus: m, Ledger: m, Source: "/test/actuator", Policy: fast, Metrics: registry})
				b := &bench{Actuator: a, bus: m, start: time.Now()}
				end := leads(t, a, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0))
				b.put("A", 1, "2")
				time.Sleep(time.Second)
				expect.Equal(t, "verdicts", m.heard(t, b.start), []heard{{"A-1.2", schemas.ReasonEvictionAccepted, 0}})
				if err := a.Ready(); err == nil || err.Error() != c.says {
					t.Errorf("readiness: got %v, want %s", err, c.says)
				}
				expect.Equal(t, "metric", testutil.ToFloat64(a.metrics.invalid), 1)
				end()
			})
		})
	}
}

// fullLedger is a ledger that stores no records while it is full.
type fullLedger struct {
	*memory
	full atomic.Bool
}

func (l *fullLedger) Put(ctx context.Context, key string, value []byte) error {
	if l.full.Load() {
		return errors.New("maximum bytes exceeded")
	}
	return l.memory.Put(ctx, key, value)
}

// While verdicts or records cannot be stored, nothing must move, and Ready must report the reason.
func TestOutage(t *testing.T) {
	ready := func(t *testing.T, a *Actuator, want string) {
		t.Helper()
		got := ""
		if err := a.Ready(); err != nil {
			got = err.Error()
		}
		expect.Equal(t, "readiness", got, want)
	}
	t.Run("a_full_ledger_is_not_ready", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &fullLedger{memory: newMemory()}
			l.full.Store(true)
			a := New(Config{Client: noPods.client(t), Bus: l.memory, Ledger: l, Source: "/test/actuator", Policy: fast, View: webPods("1", "2"),
				Log: slog.New(slog.DiscardHandler)})
			b := &bench{Actuator: a, bus: l.memory, start: time.Now()}
			end := leads(t, a, stepping)
			ready(t, a, "")
			b.put("A", 1, "1", "2")
			time.Sleep(time.Minute)
			expect.Equal(t, "verdicts", l.heard(t, b.start), nil)
			ready(t, a, "cannot store records of the ledger, so no pods are moved: maximum bytes exceeded")
			l.full.Store(false)
			time.Sleep(maxBackoff)
			expect.Equal(t, "verdicts", len(l.heard(t, b.start)), 2)
			ready(t, a, "")
			end()
		})
	})
	t.Run("a_bus_without_verdicts_is_not_ready", func(t *testing.T) {
		handle := always(schemas.Rejected, schemas.ReasonProtected, 0)
		inBubble(t, Config{Policy: fast}, handle, func(t *testing.T, b *bench) {
			synctest.Wait()
			b.bus.setRefuse(errors.New("no leader"))
			b.put("A", 1, "1")
			time.Sleep(time.Minute)
			ready(t, b.Actuator, "cannot store verdicts, so no pods are moved: no leader")
			b.bus.setRefuse(nil)
			time.Sleep(2 * maxBackoff)
			ready(t, b.Actuator, "")
			b.bus.setRefuse(errors.New("no leader"))
			b.put("A", 2, "1")
			time.Sleep(time.Minute)
			b.stop()
			ready(t, b.Actuator, "") // a standby has nothing to store
		})
	})
}
