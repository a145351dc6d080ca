package actuator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// arriving is a view that has its pods as soon as there.
type arriving struct {
	given
	there func() bool
}

func (v arriving) Pod(uid types.UID) (cluster.Pod, bool) {
	if !v.there() {
		return cluster.Pod{}, false
	}
	return v.given.Pod(uid)
}

// After a restore of etcd, the cache can lack a live pod, which an earlier move evicted. Its limits cannot be checked yet.
func TestLivePodNotInCache(t *testing.T) {
	client := wire(func(r *http.Request) (*http.Response, error) {
		switch name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; {
		case r.Method == http.MethodPost:
			return created(), nil
		case name == "pod-2":
			return failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil
		default:
			return response(http.StatusOK, ownedPod(name, types.UID(strings.TrimPrefix(name, "pod-")), "api")), nil
		}
	}).client(t)
	// lead leads with records of settled moves of pods 1 and 2, and a view that lists pods 1 and 3 from a time on.
	lead := func(t *testing.T, from time.Duration, script func(*bench)) {
		synctest.Test(t, func(t *testing.T) {
			p, m, start := enabledPolicy(), newMemory(), time.Now()
			p.Limits.InFlight.PerWorkload = new(uint(1))
			answer, e := answerTo("A", 1, "1", "2")
			for _, intent := range answer.Intents {
				r := record{
					Intent: intentOf(answer, intent, e), Method: schemas.MethodEviction, Begun: start, Moved: start, Settled: true,
				}
				m.ledger[r.key()], _ = json.Marshal(r)
			}
			view := arriving{webPods("1", "3"), func() bool { return time.Since(start) >= from }}
			a := New(Config{Client: client, Bus: m, Ledger: m, Source: "/test/actuator", Policy: p, View: view})
			end := leads(t, a, a.execute)
			script(&bench{Actuator: a, bus: m, start: start})
			end()
		})
	}
	t.Run("it_moves_when_the_cache_has_it", func(t *testing.T) {
		lead(t, 12*time.Second, func(b *bench) {
			b.put("A", 2, "1", "2", "3")
			time.Sleep(11 * time.Second)
			expect.Equal(t, "verdicts without the pods", b.bus.heard(t, b.start), []heard{{"A-2.2", schemas.ReasonPodGone, 0}})
			time.Sleep(time.Second)
			b.Changed(cluster.Change{Workload: api.UID, Pod: "1"})
			time.Sleep(10 * time.Second)
			expect.Equal(t, "verdicts with the pods", b.bus.heard(t, b.start)[1:], []heard{{"A-2.1", schemas.ReasonEvictionAccepted, 12 * time.Second}})
		})
	})
	t.Run("other_pods_do_not_wait_for_it", func(t *testing.T) {
		lead(t, time.Hour, func(b *bench) {
			b.health.fail(b.start, ErrUnavailable)
			b.put("A", 2, "1", "3")
			b.put("B", 3, "2")
			time.Sleep(2 * time.Second)
			time.Sleep(parkedFor)
			var verdicts []string
			for _, h := range b.bus.heard(t, b.start) { // the delay of the first try is random
				verdicts = append(verdicts, fmt.Sprintf("%s %s %v", h.ID, h.Reason, h.After.Truncate(time.Minute)))
			}
			expect.Equal(t, "verdicts", verdicts, []string{"B-3.2 PodGone 0s", "A-2.1 APIUnavailable 1m0s", "A-2.3 APIUnavailable 1m0s"})
			expect.Equal(t, "readiness", b.Ready(), nil)
		})
	})
}

// The limits of a workload were checked without it.
func TestPodArrivesBeforeEviction(t *testing.T) {
	var there atomic.Bool
	client := wire(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost {
			return created(), nil
		}
		there.Store(strings.HasSuffix(r.URL.Path, "/pod-1"))
		return response(http.StatusOK, ownedPod("pod-1", "1", "api")), nil
	}).client(t)
	cfg := Config{Client: client, Policy: enabledPolicy(), View: arriving{webPods("1"), there.Load}}
	inBubble(t, cfg, nil, func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(10 * time.Second)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{{"A-1.1", schemas.ReasonEvictionAccepted, trackEvery}})
	})
}

// A restore of etcd can bring back a pod whose move is in flight.
func TestMovedPodIsBack(t *testing.T) {
	for _, c := range []struct {
		name    string
		deleted *metav1.Time
		want    []heard
	}{
		{"it_runs", nil, []heard{{"A-1.1", schemas.ReasonEvictionAccepted, 0}, {"A-1.1", schemas.ReasonTakenBack, backAfter + time.Second}}},
		{"the_cache_is_behind", new(metav1.NewTime(noon)), []heard{{"A-1.1", schemas.ReasonEvictionAccepted, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := wire(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost {
					return created(), nil
				}
				pod := ownedPod("pod-1", "1", "api")
				pod.DeletionTimestamp = c.deleted
				return response(http.StatusOK, pod), nil
			}).client(t)
			cfg := Config{Client: client, Policy: fast, View: webPods("1")}
			inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
				b.put("A", 1, "1")
				time.Sleep(5 * time.Minute)
				expect.Equal(t, "verdicts", b.bus.heard(t, b.start), c.want)
			})
		})
	}
}

// Else the circuit breaker of the cluster would stay open: it holds the moves that would end its cause.
func TestPodThatIsBackIsNotPending(t *testing.T) {
	r := before("1", time.Minute)
	r.Pending = true
	s := recalled(t, remembering(t, map[string]any{r.key(): r}), fast)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trackDue(noon)
	expect.Equal(t, "pending", s.settled["1"].Pending, false)
}

// The first call has changed something, which the next record must name.
func TestPodLeavesDuringMove(t *testing.T) {
	var there atomic.Bool
	there.Store(true)
	var errs []error
	handle := func(ctx context.Context, i Intent, save saveFunc) (schemas.Verdict, error) {
		r := record{Intent: i, Method: schemas.MethodSurge, State: move.State(`{}`)}
		errs = append(errs, save(ctx, r))
		there.Store(false)
		errs = append(errs, save(ctx, r))
		return i.Verdict(schemas.Restarted, schemas.ReasonSurgeAccepted, ""), nil
	}
	cfg := Config{Policy: fast, View: arriving{webPods("1"), there.Load}}
	inBubble(t, cfg, handle, func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(time.Second)
		synctest.Wait()
		expect.Equal(t, "errors of the records", errs, []error{nil, nil})
	})
}
