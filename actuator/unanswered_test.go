package actuator

import (
	"errors"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Each call gets its answer at once. The API server evicts the pod that long after it, or not at all for zero.
func TestEvictionWithoutAnswer(t *testing.T) {
	reset := errors.New("connection reset")
	type answer func() (*http.Response, error)
	status := func(code int32, reason metav1.StatusReason) answer {
		return func() (*http.Response, error) { return failure(code, reason), nil }
	}
	fails := func(err error) answer { return func() (*http.Response, error) { return nil, err } }
	type result struct {
		outcome schemas.Outcome
		reason  schemas.ReasonCode
		after   time.Duration
	}
	later := func(after time.Duration) result { return result{schemas.Deferred, schemas.ReasonAPIUnavailable, after} }
	for _, c := range []struct {
		name   string
		answer answer
		evicts time.Duration
		away   time.Duration // of the API server after the call
		dryRun bool
		want   result
	}{
		{"evicted_after_the_connection_broke", fails(reset), 4200 * ms, 0, false,
			result{schemas.Evicted, schemas.ReasonEvictionAccepted, 4500 * ms}},
		{"evicted_at_once_by_a_server_that_is_away_then", fails(reset), 1, 5 * time.Second, false,
			result{schemas.Evicted, schemas.ReasonEvictionAccepted, 5 * time.Second}},
		{"never_evicted", fails(reset), 0, 0, false, later(15 * time.Second)},
		{"timeout_of_the_server", status(504, metav1.StatusReasonTimeout), 1800 * ms, 0, false,
			result{schemas.Evicted, schemas.ReasonEvictionAccepted, 2 * time.Second}},
		{"dry_run", fails(reset), 0, 0, true, later(0)},
		{"internal_error", status(500, metav1.StatusReasonInternalError), 0, 0, false,
			result{schemas.Deferred, schemas.ReasonInternalError, 0}},
		{"webhook_answers_401", status(401, metav1.StatusReasonUnauthorized), 0, 0, false, later(0)},
		{"throttled", status(429, metav1.StatusReasonTooManyRequests), 0, 0, false,
			result{schemas.Deferred, schemas.ReasonThrottled, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1)
				p := w.order[0]
				var back time.Time // zero before the call
				client := wire(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodGet && !time.Now().Before(back) {
						if !back.IsZero() {
							expect.Equal(t, "requested version after the call", r.URL.Query().Get("resourceVersion"), "")
						}
						return w.serve(r), nil
					}
					if r.Method == http.MethodPost {
						back = time.Now().Add(c.away)
					}
					if r.Method == http.MethodPost && c.evicts > 0 {
						time.AfterFunc(c.evicts, func() {
							w.mu.Lock()
							defer w.mu.Unlock()
							w.evict(p)
						})
					}
					return c.answer()
				}).client(t)
				a := New(Config{Client: client, View: w, Policy: enabledPolicy(), Log: slog.New(slog.DiscardHandler), DryRun: c.dryRun})
				began := time.Now()
				v, err := a.execute(t.Context(), Intent{Profile: "default", Strategy: "A", Intent: schemas.Intent{
					ID: "1", Pod: p.Ref, Node: p.Node, Expires: began.Add(time.Minute),
				}}, unsaved)
				expect.Equal(t, "error", err, nil)
				expect.Equal(t, "verdict", result{v.Outcome, v.Reason, time.Since(began)}, c.want)
				expect.Equal(t, "the message names the lost answer", strings.Contains(v.Message, "the answer was lost"), v.Outcome == schemas.Evicted)
				time.Sleep(10 * time.Second) // its replacement comes
			})
		})
	}
}

// The connection of the first eviction breaks, and the API server is away for three seconds. The second intent waits for it.
func TestOutageEndsDuringDoubt(t *testing.T) {
	var back time.Time
	client := wire(func(r *http.Request) (*http.Response, error) {
		pod := path.Base(strings.TrimSuffix(r.URL.Path, "/eviction"))
		switch {
		case strings.HasSuffix(r.URL.Path, "/events"):
			return created(), nil
		case time.Now().Before(back):
			return nil, errors.New("no route")
		case r.Method == http.MethodGet:
			return response(http.StatusOK, ownedPod(pod, types.UID(strings.TrimPrefix(pod, "pod-")), "api")), nil
		case pod == "pod-1":
			back = time.Now().Add(3 * time.Second)
			return nil, errors.New("connection reset")
		}
		return created(), nil
	}).client(t)
	inBubble(t, Config{Client: client, Policy: enabledPolicy()}, nil, func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(time.Second)
		expect.Equal(t, "unavailable", b.Ready() != nil, true)
		b.put("B", 1, "2")
		time.Sleep(time.Minute)
		expect.Equal(t, "error of Ready", b.Ready(), nil)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"B-1.2", schemas.ReasonEvictionAccepted, 3 * time.Second}, {"A-1.1", schemas.ReasonAPIUnavailable, 15 * time.Second},
		})
	})
}
