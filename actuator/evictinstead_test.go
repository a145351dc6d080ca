package actuator

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move/background"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// silence is an API server with one pod, whose EvictionRequest no responder answers. It records the times of the eviction calls.
type silence struct {
	answer func() *http.Response // to an eviction call
	rate   *policy.NamespaceRate // of the policy

	mu      sync.Mutex
	start   time.Time
	request *lifecycle.EvictionRequest
	called  []time.Duration
	gone    bool // the pod was evicted
}

func (s *silence) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch path := r.URL.Path; {
	case strings.Contains(path, "/evictionrequests"):
		return s.serveRequest(r)
	case strings.HasSuffix(path, "/eviction"):
		s.called = append(s.called, time.Since(s.start))
		answer := s.answer()
		s.gone = answer.StatusCode == http.StatusCreated
		return answer, nil
	case r.Method == http.MethodPost: // a Kubernetes Event
		return created(), nil
	case strings.Contains(path, "/pods/") && !s.gone:
		pod := ownedPod("pod-1", "1", "api")
		pod.Annotations = map[string]string{background.RequestOnly: ""}
		return response(http.StatusOK, pod), nil
	}
	return failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil
}

func (s *silence) serveRequest(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		s.request = &lifecycle.EvictionRequest{}
		if err := json.NewDecoder(r.Body).Decode(s.request); err != nil {
			return nil, err
		}
	}
	answer := s.request
	if r.Method == http.MethodDelete {
		s.request = nil
	}
	if answer == nil {
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil
	}
	return response(http.StatusOK, answer), nil
}

// calls returns the times of the eviction calls.
func (s *silence) calls() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.called
}

// run runs the script after the pod got its EvictionRequest, which may remain that long without an answer.
func (s *silence) run(t *testing.T, wait time.Duration, view View, script func(*testing.T, *bench)) {
	t.Helper()
	p := enabledPolicy()
	p.EvictionRequests.Wait = wait
	p.Rate.PerNamespace = s.rate
	p.Limits.Unavailable = most("1")
	inBubble(t, Config{Policy: p, View: view, Client: wire(s.RoundTrip).client(t)}, nil, func(t *testing.T, b *bench) {
		s.start = b.start
		b.put("A", 1, "1")
		script(t, b)
	})
}

// shrinking is a view of a workload without a budget, whose number of ready pods changes.
type shrinking struct {
	given
	ready *atomic.Int64
}

func (v shrinking) Tally(workload types.UID) cluster.Tally {
	return cluster.Tally{Wanted: v.given.Tally(workload).Wanted, Ready: int(v.ready.Load())}
}

// A pod is evicted when nothing responds to its EvictionRequest.
func TestEvictInstead(t *testing.T) {
	t.Run("a_webhook_takes_the_eviction_over", func(t *testing.T) {
		s := silence{answer: func() *http.Response {
			taken := failed(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
			taken.Message = "Eviction triggered evacuation of VMI web/pod-1"
			return response(http.StatusTooManyRequests, taken)
		}}
		s.run(t, 30*time.Second, webPods("1"), func(t *testing.T, b *bench) {
			time.Sleep(background.Begin)
			expect.Equal(t, "evictions", s.calls(), []time.Duration{30 * time.Second})
			expect.Equal(t, "moves", b.bus.remembers(t).Moves, []Move{{
				Pod: schemas.PodRef{Namespace: "web", Name: "pod-1", UID: "1"}, Node: "worker-1", Workload: &api, Profile: "default",
				Strategy: "A", Intent: "A-1.1", Method: schemas.MethodBackground, Begun: b.start.UTC(), Moved: b.start.UTC(),
				WaitsFor: "the webhook that took over the eviction",
			}})
			time.Sleep(time.Minute)
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
				{"A-1.1", schemas.ReasonEvictionRequestAccepted, 0},
				{"A-1.1", schemas.ReasonTakenBack, 30*time.Second + background.Begin},
			})
		})
	})
	t.Run("it_waits_until_enough_pods_are_available", func(t *testing.T) {
		view := shrinking{webPods("1", "2", "3", "4"), &atomic.Int64{}}
		for uid, p := range view.pods {
			p.Budgeted = false
			view.pods[uid] = p
		}
		view.ready.Store(4)
		s := silence{answer: func() *http.Response { return created() }}
		s.run(t, 30*time.Second, view, func(t *testing.T, _ *bench) {
			time.Sleep(10 * time.Second)
			view.ready.Store(3) // another pod fails
			time.Sleep(52 * time.Second)
			view.ready.Store(4)
			time.Sleep(10 * time.Second)
			expect.Equal(t, "evictions", s.calls(), []time.Duration{65 * time.Second})
		})
	})
	t.Run("it_waits_for_the_rate_of_the_namespace", func(t *testing.T) {
		s := silence{answer: created, rate: &policy.NamespaceRate{EvictionsPerSecond: 0.02, Burst: 1}}
		s.run(t, 30*time.Second, webPods("1"), func(t *testing.T, b *bench) {
			time.Sleep(time.Minute)
			expect.Equal(t, "evictions", s.calls(), []time.Duration{50 * time.Second})
			synctest.Wait()
			expect.Equal(t, "time until the next token", b.session.Load().namespaceBucket("web").Wait(time.Now()), 40*time.Second)
		})
	})
	t.Run("the_end_names_the_eviction", func(t *testing.T) {
		s := silence{answer: created}
		s.run(t, 30*time.Second, webPods("1"), func(t *testing.T, b *bench) {
			time.Sleep(time.Minute)
			expect.Equal(t, "method", b.bus.remembers(t).Moves[0].Method, schemas.MethodEviction)
			time.Sleep(followFor)
			synctest.Wait()
			want := schematest.Decode[schemas.Verdict](t, b.bus.published[0])
			want.Outcome, want.Reason, want.Message = schemas.Settled, schemas.ReasonReplacementPending, "the pod is still being deleted"
			want.Method, want.Settlement = schemas.MethodEviction, &schemas.Settlement{Seconds: 631}
			schematest.Check(t, b.bus.published...)
			expect.Equal(t, "verdicts", len(b.bus.published), 2)
			expect.Equal(t, "the end", schematest.Decode[schemas.Verdict](t, b.bus.published[1]), want)
		})
	})
	t.Run("ten_minutes_begin_with_the_first_try", func(t *testing.T) {
		const wait = 30 * time.Minute
		s := silence{answer: func() *http.Response {
			return failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		}}
		s.run(t, wait, webPods("1"), func(t *testing.T, b *bench) {
			time.Sleep(wait + 12*time.Second)
			b.stop()
			expect.Equal(t, "evictions", s.calls(), []time.Duration{wait, wait + 5*time.Second, wait + 10*time.Second})
			end := leads(t, b.Actuator, b.execute)
			time.Sleep(11 * time.Minute)
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
				{"A-1.1", schemas.ReasonEvictionRequestAccepted, 0}, {"A-1.1", schemas.ReasonTakenBack, wait + followFor + 2*time.Second},
			})
			end()
		})
	})
}
