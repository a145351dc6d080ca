package actuator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// slowPuts is a ledger that needs 10 ms for each write, one after the other.
type slowPuts struct {
	*memory
	disk chan struct{} // capacity 1
	keys []string
}

func (l *slowPuts) Put(ctx context.Context, key string, value []byte) error {
	l.disk <- struct{}{} // not a mutex: fake time goes on only while channels block
	defer func() { <-l.disk }()
	time.Sleep(10 * ms)
	l.mu.Lock()
	l.keys = append(l.keys, key)
	l.mu.Unlock()
	return l.memory.Put(ctx, key, value)
}

// saves evicts a pod like the real execution: it saves the record, then it calls.
func saves(called func(o Intent)) executeFunc {
	return func(ctx context.Context, o Intent, save saveFunc) (schemas.Verdict, error) {
		if err := save(ctx, record{Intent: o, Method: schemas.MethodEviction}); err != nil {
			return schemas.Verdict{}, err
		}
		called(o)
		return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
	}
}

// Moves that begin together must share one write of the ledger, and none may be lost or made twice.
func TestBegunMoves(t *testing.T) {
	t.Run("twenty_pods_begin_after_two_writes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &slowPuts{memory: newMemory(), disk: make(chan struct{}, 1)}
			var mu sync.Mutex
			var last time.Time
			calls, writes := 0, 0
			a := New(Config{Bus: l.memory, Ledger: l, Source: "/test/actuator", Policy: fast, Parallel: 64})
			end := leads(t, a, saves(func(Intent) {
				mu.Lock()
				if calls++; calls == 20 {
					last = time.Now()
					l.mu.Lock()
					for _, key := range l.keys {
						if key == keyBegun {
							writes++
						}
					}
					l.mu.Unlock()
				}
				mu.Unlock()
				time.Sleep(time.Second)
			}))
			b := &bench{Actuator: a, bus: l.memory, start: time.Now()}
			var uids []types.UID
			for i := range 20 {
				uids = append(uids, types.UID(fmt.Sprint(i)))
			}
			b.put("A", 1, uids...)
			time.Sleep(time.Minute)
			end()
			if calls != 20 || writes > 2 {
				t.Errorf("%d calls after %d writes and %v, want 20 after at most 2", calls, writes, last.Sub(b.start))
			}
			expect.Equal(t, "verdicts", len(l.heard(t, b.start)), 20)
			_, left := l.ledger[keyBegun]
			expect.Equal(t, "the key begun is left", left, false)
		})
	})
	t.Run("a_new_leader_finds_what_became_of_each", func(t *testing.T) {
		gone := wire(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/pod-2") {
				return response(http.StatusOK, ownedPod("pod-2", "2", "api")), nil
			}
			return failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil
		}).client(t)
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			answer, e := answerTo("A", 1, "1", "2", "3")
			begun := map[string]any{"4": map[string]any{}}
			for i, intent := range answer.Intents { // pod-1 is gone, pod-2 was never evicted
				r := record{Intent: intentOf(answer, intent, e), Method: schemas.MethodEviction, Begun: time.Now()}
				begun[string(intent.Pod.UID)] = r
				if i == 2 { // accepted, and its verdict is stored
					r.Moved = time.Now()
					m.ledger[r.key()], _ = json.Marshal(r)
				}
			}
			m.ledger[keyBegun], _ = json.Marshal(begun)
			a := New(Config{Client: gone, Bus: m, Ledger: m, Source: "/test/actuator", Policy: fast, View: webPods("2")})
			start := time.Now()
			end := leads(t, a, saves(func(Intent) {}))
			time.Sleep(5 * time.Second)
			expect.Equal(t, "verdicts", m.heard(t, start), []heard{
				{"A-1.1", schemas.ReasonEvictionAccepted, 0}, {"A-1.1", schemas.ReasonNotReplaced, 0}, {"A-1.3", schemas.ReasonNotReplaced, 0},
			})
			expect.Equal(t, "ledger", m.keys(), []string{"begun", "move.1", "move.3"})
			time.Sleep(answeredWithin)
			expect.Equal(t, "ledger, when pod 2 was not evicted", m.keys(), []string{"move.1", "move.3"})
			expect.Equal(t, "readiness", fmt.Sprint(a.Ready()), `ledger record move.4 of begun is set aside: it is about the pod with UID ""`)
			end()
		})
	})
	t.Run("the_API_server_evicts_after_the_next_leader_began", func(t *testing.T) {
		var start time.Time
		client := wire(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/pod-1") && time.Since(start) >= 8*time.Second {
				return failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil
			}
			name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
			return response(http.StatusOK, ownedPod(name, types.UID(strings.TrimPrefix(name, "pod-")), "api")), nil
		}).client(t)
		synctest.Test(t, func(t *testing.T) {
			m, p := newMemory(), fast
			p.Limits = policy.Limits{Total: new(uint(3)), Window: time.Hour}
			start = time.Now()
			answer, e := answerTo("A", 1, "1", "2")
			begun := map[string]any{}
			for _, intent := range answer.Intents {
				begun[string(intent.Pod.UID)] = record{
					Intent: intentOf(answer, intent, e), Method: schemas.MethodEviction, Begun: start, Newest: noon.Add(time.Hour),
				}
			}
			m.ledger[keyBegun], _ = json.Marshal(begun)
			a := New(Config{Client: client, Bus: m, Ledger: m, Source: "/test/actuator", Policy: p, View: webPods("1", "2", "3", "4")})
			end := leads(t, a, saves(func(Intent) {}))
			b := &bench{Actuator: a, bus: m, start: start}
			b.put("A", 1, "1", "2", "3", "4")
			time.Sleep(answeredWithin + 5*time.Second)
			expect.Equal(t, "verdicts", m.heard(t, start), []heard{
				{"A-1.3", schemas.ReasonEvictionAccepted, 0},
				{"A-1.4", schemas.ReasonLimitTotal, 0},
				{"A-1.1", schemas.ReasonEvictionAccepted, 8 * time.Second},
				{"A-1.2", schemas.ReasonEvictionAccepted, answeredWithin},
			})
			end()
		})
	})
	t.Run("another_intent_moves_the_pod_when_the_answer_is_known", func(t *testing.T) {
		client := serving(ownedPod("pod-1", "1", "api")).client(t)
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			answer, e := answerTo("A", 1, "1")
			r := record{Intent: intentOf(answer, answer.Intents[0], e), Method: schemas.MethodEviction, Begun: time.Now()}
			m.ledger[keyBegun], _ = json.Marshal(map[string]any{"1": r})
			a := New(Config{Client: client, Bus: m, Ledger: m, Source: "/test/actuator", Policy: fast, View: webPods("1")})
			b := &bench{Actuator: a, bus: m, start: time.Now()}
			end := leads(t, a, saves(func(Intent) {}))
			b.put("B", 1, "1")
			time.Sleep(answeredWithin + 5*time.Second)
			expect.Equal(t, "verdicts", m.heard(t, b.start), []heard{{"B-1.1", schemas.ReasonEvictionAccepted, answeredWithin}})
			end()
		})
	})
	// A leader that found the record, and the pod gone, would report an eviction.
	t.Run("a_refused_move_leaves_the_ledger_before_its_verdict", func(t *testing.T) {
		refused := func(ctx context.Context, o Intent, save saveFunc) (schemas.Verdict, error) {
			err := save(ctx, record{Intent: o, Method: schemas.MethodEviction})
			return o.Verdict(schemas.Deferred, schemas.ReasonDisruptionBudget, ""), err
		}
		synctest.Test(t, func(t *testing.T) {
			l := slowLedger{newMemory()}
			a := New(Config{Bus: l.memory, Ledger: l, Source: "/test/actuator", Policy: fast})
			b := &bench{Actuator: a, bus: l.memory, start: time.Now()}
			end := leads(t, a, refused)
			b.put("A", 1, "1")
			time.Sleep(5 * time.Second)
			expect.Equal(t, "ledger", l.keys(), []string(nil))
			expect.Equal(t, "verdicts after the delete", l.heard(t, b.start), []heard{{"A-1.1", schemas.ReasonDisruptionBudget, 2 * time.Second}})
			end()
		})
	})
}

// A pod can move again after a move that was undone, whose record stays for its cooldown.
func TestBegunAfterSettledMove(t *testing.T) {
	answer, e := answerTo("A", 1, "1")
	settled := record{Intent: intentOf(answer, answer.Intents[0], e), Method: schemas.MethodSurge, Begun: noon, Moved: noon, Settled: true}
	again := settled
	again.Intent.ID, again.Begun, again.Moved, again.Settled = "again", noon.Add(time.Minute), time.Time{}, false
	for _, c := range []struct {
		name       string
		own, begun record
	}{
		{"the_begun_move_is_newer", settled, again},
		{"the_move_with_its_own_key_is_newer", again, settled},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries := map[string][]byte{}
			entries[c.own.key()], _ = json.Marshal(c.own)
			entries[keyBegun], _ = json.Marshal(map[string]record{"1": c.begun})
			got, invalid := ReadLedger(entries)
			expect.Equal(t, "moves", got.Moves, []Move{again.move()})
			expect.Equal(t, "invalid records", len(invalid), 0)
		})
	}
}
