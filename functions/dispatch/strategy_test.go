package dispatch

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/policy"
)

func TestBreakerChangeLog(t *testing.T) {
	for name, c := range map[string]struct {
		why  error
		want string
	}{
		"away": {
			errGone,
			`level=WARN msg="a function does not answer, its scopes wait" strategy=KeepOffSpot address=http://spot/ error="post: unreachable"`,
		},
		"unauthorized": {
			errForeign,
			`level=ERROR msg="a function rejects the dispatcher and its scopes wait; check its address and permissions" ` +
				`strategy=KeepOffSpot address=http://spot/ error="post: not authorized"`,
		},
	} {
		var log bytes.Buffer
		d := New(Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
			ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))})
		s := d.newStrategy(policy.Outside{Strategy: policy.Strategy{Name: "KeepOffSpot"}, URL: "http://spot/"}, nil)
		for range 5 {
			s.breaker.leave(pass{}, c.why)
		}
		if open := testutil.ToFloat64(d.metrics.open); open != 1 {
			t.Errorf("%s: rehome_dispatcher_open is %v, want 1", name, open)
		}
		s.breaker.mu.Lock()
		s.breaker.since = time.Now().Add(-90 * time.Second)
		s.breaker.mu.Unlock()
		for range 5 {
			s.breaker.leave(pass{}, nil)
		}
		if open := testutil.ToFloat64(d.metrics.open); open != 0 {
			t.Errorf("%s: rehome_dispatcher_open is %v, want 0", name, open)
		}
		want := c.want + "\n" +
			`level=INFO msg="a function answers again" strategy=KeepOffSpot address=http://spot/ after=1m30s` + "\n"
		if got := log.String(); got != want {
			t.Errorf("%s: logged\n%s\nwant\n%s", name, got, want)
		}
	}
}

// A request to the previous function can end after the next one has taken its place.
func TestBreakerMetric(t *testing.T) {
	t.Run("replaced_function", func(t *testing.T) {
		d := New(Config{})
		of := policy.Outside{Strategy: policy.Strategy{Name: "KeepOffSpot"}, URL: "http://spot/"}
		before := d.newStrategy(of, nil)
		d.metrics.open.DeleteLabelValues(of.Strategy.Name)
		of.URL = "http://other/"
		d.newStrategy(of, nil)
		for range failuresToOpen {
			before.breaker.leave(pass{}, errGone)
		}
		if open := testutil.ToFloat64(d.metrics.open); open != 0 {
			t.Errorf("rehome_dispatcher_open is %v, want 0", open)
		}
	})
}

// A histogram that appears with its first request hides that request from rate().
func TestRequestSeconds(t *testing.T) {
	t.Run("before_the_first_request", func(t *testing.T) {
		d := New(Config{})
		d.newStrategy(policy.Outside{Strategy: policy.Strategy{Name: "KeepOffSpot"}, URL: "http://spot/"}, nil)
		if n := testutil.CollectAndCount(d.metrics.seconds); n != 1 {
			t.Errorf("got %d histograms, want 1", n)
		}
	})
}
