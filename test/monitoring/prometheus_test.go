package monitoring

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

// scrapeEvery is how often the processes of the live run are scraped.
const scrapeEvery = time.Second

// server is as much of a Prometheus server as the tests need: its storage, its engine and, once scrape was called, its scrape
// loops.
type server struct {
	t      *testing.T
	db     *tsdb.DB
	engine *promql.Engine
	parser parser.Parser
}

func newServer(t *testing.T) *server {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	p := parser.NewParser(parser.Options{})
	return &server{t: t, db: db, parser: p, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, Parser: p,
	})}
}

// scrape scrapes the addresses every second until the test ends, as the job rehome in the namespace rehome.
func (s *server) scrape(honorLabels bool, addresses ...string) {
	s.t.Helper()
	c, err := config.Load(fmt.Sprintf("scrape_configs: [{job_name: rehome, honor_labels: %t, scrape_interval: %v, scrape_timeout: %v}]",
		honorLabels, scrapeEvery, scrapeEvery), slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: model.Duration(10 * time.Millisecond)}, nil, nil, s.db, nil, prometheus.NewRegistry())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := m.ApplyConfig(c); err != nil {
		s.t.Fatal(err)
	}
	group := &targetgroup.Group{Source: "live", Labels: model.LabelSet{"namespace": "rehome"}}
	for _, a := range addresses {
		group.Targets = append(group.Targets, model.LabelSet{model.AddressLabel: model.LabelValue(a)})
	}
	targets := make(chan map[string][]*targetgroup.Group, 1)
	targets <- map[string][]*targetgroup.Group{"rehome": {group}}
	ended := make(chan error)
	go func() { ended <- m.Run(targets) }()
	s.t.Cleanup(func() {
		m.Stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

// at asks for the value of an expression at a time.
func (s *server) at(expr string, when time.Time) (promql.Vector, error) {
	q, err := s.engine.NewInstantQuery(context.Background(), s.db, nil, expr, when)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	r := q.Exec(context.Background())
	if r.Err != nil {
		return nil, r.Err
	}
	switch v := r.Value.(type) {
	case promql.Vector:
		return append(promql.Vector(nil), v...), nil
	case promql.Scalar:
		return promql.Vector{{T: v.T, F: v.V}}, nil
	}
	return nil, fmt.Errorf("%s is a %s", expr, r.Value.Type())
}

// whole returns a moment, and whether the last scrape of each of n processes until then came through. On a busy machine
// one can take too long: until the next one there is nothing of the process.
func (s *server) whole(n int) (when time.Time, whole bool) {
	when = time.Now()
	time.Sleep(2 * scrapeEvery) // wait for scrapes in progress
	seen, err := s.at("count(up == 1)", when)
	return when, err == nil && len(seen) == 1 && seen[0].F == float64(n)
}

// over asks for the values of an expression from one time to another, and counts the series that have a number anywhere.
func (s *server) over(expr string, from, to time.Time) (series int, err error) {
	q, err := s.engine.NewRangeQuery(context.Background(), s.db, nil, expr, from, to, scrapeEvery)
	if err != nil {
		return 0, err
	}
	defer q.Close()
	m, err := q.Exec(context.Background()).Matrix()
	if err != nil {
		return 0, err
	}
	for _, one := range m {
		for _, p := range one.Floats {
			if !math.IsNaN(p.F) {
				series++
				break
			}
		}
	}
	return series, nil
}

// load stores series as promtool's rule tests write them, a sample a minute from the time zero on.
func (s *server) load(series ...string) {
	s.t.Helper()
	a := s.db.Appender(context.Background())
	for _, text := range series {
		name, values, err := s.parser.ParseSeriesDesc(text)
		if err != nil {
			s.t.Fatalf("%s: %v", text, err)
		}
		for i, v := range values {
			if v.Omitted {
				continue
			}
			if _, err := a.Append(0, name, minute(i).UnixMilli(), v.Value); err != nil {
				s.t.Fatalf("%s: %v", text, err)
			}
		}
	}
	if err := a.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

// minute is so many minutes after the time zero.
func minute(n int) time.Time { return time.Unix(0, 0).Add(time.Duration(n) * time.Minute) }

// selectors returns the metrics that an expression asks for, with the labels that it compares.
func (s *server) selectors(expr string) (list []*parser.VectorSelector) {
	s.t.Helper()
	e, err := s.parser.ParseExpr(expr)
	if err != nil {
		s.t.Fatalf("%s: %v", expr, err)
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			list = append(list, v)
		}
		return nil
	})
	return list
}

// plain returns a selector as an expression of its own, without its offset.
func plain(v *parser.VectorSelector) string {
	var list []string
	for _, m := range v.LabelMatchers {
		list = append(list, m.String())
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// names returns the label names in a selector, except the metric name.
func names(v *parser.VectorSelector) []string {
	var list []string
	for _, m := range v.LabelMatchers {
		if m.Name != labels.MetricName {
			list = append(list, m.Name)
		}
	}
	return list
}

// substituted returns an expression of the dashboard as Grafana sends it, with everything chosen in every list.
func substituted(expr string) string {
	return strings.NewReplacer("$__rate_interval", "20s", "$__range", "10m", "$job", ".*", "$namespace", ".*", "$strategy", ".*").Replace(expr)
}
