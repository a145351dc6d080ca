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

// reloadInterval is how often the policy file is looked at. Reading a few kilobytes costs some microseconds; a ConfigMap
// that was changed takes up to a minute or two to reach the file at all.
const reloadInterval = time.Second

// reloader reads the policy file again when its content has changed. It looks at the content and not at what the file
// system tells about it, because a mounted ConfigMap is changed by swapping a symbolic link above the file.
type reloader struct {
	file string
	// current is the content of the policy that is in force.
	current settings.Content
	// apply sets a policy in all roles, or returns an error and changes nothing.
	apply   func(policy.Policy) error
	results *prometheus.CounterVec
	good    prometheus.Gauge
	log     *slog.Logger

	last    settings.Content // of the last look
	refused settings.Content // zero: nothing since a policy was applied
}

func newReloader(
	file string, current settings.Content, apply func(policy.Policy) error, metrics prometheus.Registerer, log *slog.Logger,
) *reloader {
	auto := promauto.With(metrics)
	r := &reloader{
		file: file, current: current, last: current, apply: apply, log: log,
		results: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_policy_reloads_total",
			Help: "Changes of the policy file: applied, or refused so that the policy before stays in force.",
		}, []string{"result"}),
		good: auto.NewGauge(prometheus.GaugeOpts{
			Name: "rehome_policy_last_reload_successful",
			Help: "1: the policy in force is the one of the policy file. 0: that one was refused.",
		}),
	}
	r.results.WithLabelValues("applied") // metrics with labels begin at zero
	r.results.WithLabelValues("refused")
	r.good.Set(1)
	return r
}

// run looks at the file until ctx ends. It returns nil.
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

// look reads the file once. A new content counts when it is the same at two looks, so that a file that somebody is just
// writing is not read half. The policy in force can come back after one that was refused.
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
		r.log.Error("policy refused, the one before stays in force",
			"problem", p.String(), "number", fmt.Sprintf("%d of %d", i+1, len(problems)))
	}
}
