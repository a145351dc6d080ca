package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/policy"
)

// reloadInterval is the interval of reads of the policy file. Reading a few kilobytes takes some microseconds; a
// changed ConfigMap takes up to two minutes to reach the file.
const reloadInterval = time.Second

// reloader reads the policy file again when its content has changed. It compares the content and not the file times,
// because a mounted ConfigMap changes by a swap of a symbolic link above the file.
type reloader struct {
	file string
	// current is the content of the active policy.
	current settings.Content
	// apply sets a policy in all roles, or returns an error and changes nothing.
	apply   func(policy.Policy) error
	results *prometheus.CounterVec
	good    prometheus.Gauge
	log     *slog.Logger

	last    settings.Content // of the last read
	refused settings.Content // zero if nothing has changed since a policy was applied
}

func newReloader(
	file string, current settings.Content, apply func(policy.Policy) error, metrics prometheus.Registerer, log *slog.Logger,
) *reloader {
	auto := promauto.With(metrics)
	r := &reloader{
		file: file, current: current, last: current, apply: apply, log: log,
		results: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_policy_reloads_total",
			Help: "Changes of the policy file by result: applied, or refused with the previous policy still active. " +
				"Only processes that read it have this metric.",
		}, []string{"result"}),
		good: auto.NewGauge(prometheus.GaugeOpts{
			Name: "rehome_policy_last_reload_successful",
			Help: "1 if the policy file is active, 0 if it was refused.",
		}),
	}
	r.results.WithLabelValues("applied") // metrics with labels begin at zero
	r.results.WithLabelValues("refused")
	r.good.Set(1)
	return r
}

// run reads the file periodically until ctx ends. It returns nil.
func (r *reloader) run(ctx context.Context) error {
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			r.look()
		}
	}
}

// look reads the file once. A new content applies only after two equal reads, so that a partly written file is not
// used. The active policy can return after a refused one.
func (r *reloader) look() {
	data, err := os.ReadFile(r.file)
	now := settings.ContentOf(data, err)
	settled := now == r.last
	r.last = now
	switch {
	case !settled || now == r.refused:
		return
	case now == r.current:
		r.refused = settings.Content{}
		r.good.Set(1)
		return
	}
	var p policy.Policy
	if err == nil {
		p, err = policy.Parse(r.file, data, settings.Strategies())
	}
	if err == nil {
		err = r.apply(p)
	}
	if err != nil {
		r.refused = now
		r.refuse(err)
		return
	}
	r.current, r.refused = now, settings.Content{}
	r.results.WithLabelValues("applied").Inc()
	r.good.Set(1)
	r.log.Info("policy changed", "file", r.file)
}

func (r *reloader) refuse(err error) {
	r.results.WithLabelValues("refused").Inc()
	r.good.Set(0)
	problems, _ := errors.AsType[policy.Problems](err)
	if len(problems) == 0 {
		problems = policy.Problems{{File: r.file, Wrong: err.Error()}}
	}
	for i, p := range problems {
		r.log.Error("policy refused; the previous one stays active",
			"problem", p.String(), "number", fmt.Sprintf("%d of %d", i+1, len(problems)))
	}
}
