package app

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/bus"
)

// apiClock compares the clock of this process with the clock of the API server, by the Date header of its answers. It is safe for
// concurrent use.
type apiClock struct {
	next http.RoundTripper
	skew *atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (c apiClock) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	answer, err := c.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		c.skew.Store(int64(skewOf(sent, time.Now(), date)))
	}
	return answer, nil
}

// skewOf returns how far the local clock is ahead, at least, from a date in whole seconds that was made between sent
// and received.
func skewOf(sent, received, date time.Time) time.Duration {
	switch {
	case date.Add(time.Second).Before(sent):
		return sent.Sub(date.Add(time.Second))
	case date.After(received):
		return received.Sub(date)
	}
	return 0
}

// watchAPIClock returns a wrapper of the client, and registers a warning, a check, and a metric. The check fails above
// [bus.SkewLimit].
func (p *process) watchAPIClock() func(http.RoundTripper) http.RoundTripper {
	skew := new(atomic.Int64)
	within := func(most time.Duration) serving.Check {
		return func(context.Context) error {
			if s := time.Duration(skew.Load()); s.Abs() > most {
				return fmt.Errorf("the clock of this process differs by %v from the clock of the API server, want at most %v: "+
					"synchronize the clocks of the machines", s.Abs().Round(time.Second), most)
			}
			return nil
		}
	}
	p.warnings = append(p.warnings, within(bus.SkewWarning))
	p.check(within(bus.SkewLimit))
	p.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rehome_apiserver_clock_skew_seconds",
		Help: "Seconds that the clock of this process is ahead of the clock of the API server, at least. Negative if it is behind. " +
			"Only processes with access to the cluster have this metric.",
	}, func() float64 { return time.Duration(skew.Load()).Seconds() }))
	return func(next http.RoundTripper) http.RoundTripper { return apiClock{next, skew} }
}
