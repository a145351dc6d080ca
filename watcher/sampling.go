package watcher

import (
	"slices"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/watcher/load"
)

// loadSettles is how long after a move by load nothing is decided by load. A sample can be some fifteen seconds old when it
// is read, and after the rest of two minutes, which is 21 samples, a smoothed figure has taken in nine tenths of a change.
const loadSettles = 2 * time.Minute

// measures are the loads that the strategies go by, each once, without those that are no load but requests.
func (l *lead) measures() []policy.Load {
	var all []policy.Load
	for _, e := range l.scopes.plan.all {
		if e.measured() && !slices.Contains(all, e.gauged.Load()) {
			all = append(all, e.gauged.Load())
		}
	}
	return all
}

// newSampler makes what measures the load that the strategies ask for.
func (l *lead) newSampler() *load.Sampler {
	sources := map[policy.Load]load.Source{}
	for _, from := range l.measures() {
		source, err := l.w.source(from, l.scopes.plan.metrics)
		if err != nil {
			l.w.log.Error("load cannot be measured", "source", from.Source, "query", from.Query, "error", err)
		} else if source != nil {
			sources[from] = source
		}
	}
	return load.New(load.Config{
		Sources: sources, NeedsPods: l.needsPods, Sampled: l.sampled, Now: l.w.now, Log: l.w.log,
	})
}

// sourceOf is where a load is measured; nil if there is nobody to ask.
func (w *Watcher) sourceOf(from policy.Load, metrics policy.Metrics) (load.Source, error) {
	client, server := w.config.Client, metrics.Prometheus
	switch {
	case from.Source == policy.LoadKubernetes:
		return load.Kubernetes{Client: client.Discovery().RESTClient(), Now: w.now}, nil
	case from.Source == policy.LoadPrometheus && server != nil:
		token := load.Token(load.AccountToken)
		if server.TokenSecret != nil {
			token = load.SecretToken(client, *server.TokenSecret)
		}
		return load.NewPrometheus(server.URL, from.Query, token, w.now, w.log)
	}
	return nil, nil
}
