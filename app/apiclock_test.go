package app

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestAPIServerClock(t *testing.T) {
	for name, c := range map[string]struct {
		ahead time.Duration // of the server
		want  float64       // the metric; a Date has whole seconds, so it can be up to two seconds nearer to zero
		warns bool
		fails bool
	}{
		"the same": {0, 0, false, false}, "a little ahead": {20 * time.Second, -20, false, false},
		"ahead": {time.Minute, -60, true, false}, "behind": {-time.Minute, 60, true, false},
		"far ahead": {6 * time.Minute, -360, true, true}, "far behind": {-6 * time.Minute, 360, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", time.Now().Add(c.ahead).UTC().Format(http.TimeFormat))
			}))
			defer s.Close()
			p := process{metrics: prometheus.NewRegistry()}
			client := http.Client{Transport: p.watchAPIClock()(http.DefaultTransport)}
			defer client.CloseIdleConnections()
			answer, err := client.Get(s.URL)
			expect.Must(t, err)
			_ = answer.Body.Close()
			families, err := p.metrics.Gather()
			if err != nil || len(families) != 1 {
				t.Fatalf("got %d metrics and %v, want one", len(families), err)
			}
			if got := families[0].Metric[0].Gauge.GetValue(); math.Abs(got-c.want) > 2 {
				t.Errorf("metric: got %v, want %v", got, c.want)
			}
			err = p.warnings[0](t.Context())
			if (err != nil) != c.warns || c.warns && !strings.Contains(err.Error(), "from the clock of the API server, want at most 30s") {
				t.Errorf("warning: got %v, want one: %v", err, c.warns)
			}
			err = p.checks[0](t.Context())
			if (err != nil) != c.fails || c.fails && !strings.Contains(err.Error(), "from the clock of the API server, want at most 5m0s") {
				t.Errorf("check: got %v, want an error: %v", err, c.fails)
			}
		})
	}
}
