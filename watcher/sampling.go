package watcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/watcher/load"
)

// loadSettles is how long after a move by load nothing is decided by load. A sample can be some fifteen seconds old when it
// is read, and after the rest of two minutes, which is 21 samples, a smoothed figure has taken in nine tenths of a change.
const loadSettles = 2 * time.Minute

// measures are the loads that the strategies go by, each once, without those that are no load but requests.
func (p *plan) measures() []policy.Load {
	var all []policy.Load
	for _, e := range p.all {
		if e.measured() && !slices.Contains(all, e.gauged.Load()) {
			all = append(all, e.gauged.Load())
		}
	}
	return all
}

// measureFor makes the sampler of a policy, which goes on where the one before ends.
func (w *Watcher) measureFor(p *plan) {
	sources := map[policy.Load]load.Source{}
	for _, from := range p.measures() {
		source, err := w.source(from, p.metrics)
		if err != nil {
			w.log.Error("load cannot be measured", "source", from.Source, "query", from.Query, "error", err)
		} else if source != nil {
			sources[from] = source
		}
	}
	w.sampler.Store(load.New(load.Config{
		Sources: sources, Before: w.sampler.Load(), Now: w.now, Log: w.log,
		NeedsPods: func(from policy.Load) bool {
			l := w.lead.Load()
			return l != nil && (l.scopes.plan != p || l.needsPods(from)) // of another plan: it is replaced just now
		},
		Sampled: func(from policy.Load) {
			if l := w.lead.Load(); l != nil {
				l.sampled(from)
			}
		},
	}))
	select {
	case w.remeasure <- struct{}{}:
	default:
	}
}

// measureLoad samples the load until ctx ends, on every replica: whichever leads next knows the smoothed figures.
func (w *Watcher) measureLoad(ctx context.Context) {
	for ctx.Err() == nil {
		current, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		select {
		case <-w.remeasure: // by what is loaded now
		default:
		}
		wg.Go(func() { w.sampler.Load().Run(current) })
		select {
		case <-ctx.Done():
		case <-w.remeasure:
			select {
			case w.remeasure <- struct{}{}:
			default:
			}
		}
		end()
		wg.Wait()
	}
}

// sourceOf is where a load is measured; nil if there is nobody to ask.
func (w *Watcher) sourceOf(from policy.Load, metrics policy.Metrics) (load.Source, error) {
	client, server := w.config.Client, metrics.Prometheus()
	switch {
	case from.Source == policy.LoadKubernetes:
		return load.Kubernetes{Client: client.Discovery().RESTClient(), Now: w.now}, nil
	case from.Source == policy.LoadPrometheus && server != nil:
		token := load.Token(load.AccountToken)
		if secret := server.TokenSecret(); secret != nil {
			token = load.SecretToken(client, *secret)
		}
		return load.NewPrometheus(server.URL, from.Query, token, w.now, w.log)
	}
	return nil, nil
}
