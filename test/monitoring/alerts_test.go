package monitoring

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
)

// pages is where the alerts link to.
const pages = "https://github.com/rehome-dev/rehome/blob/main/"

// rule returns an alert as Prometheus evaluates it.
func (s *server) rule(r monitoringv1.Rule) *rules.AlertingRule {
	s.t.Helper()
	expr, err := s.parser.ParseExpr(r.Expr.String())
	if err != nil {
		s.t.Fatalf("%s: %v", r.Alert, err)
	}
	hold := model.Duration(0)
	if r.For != nil {
		if hold, err = model.ParseDuration(string(*r.For)); err != nil {
			s.t.Fatalf("%s: %v", r.Alert, err)
		}
	}
	return rules.NewAlertingRule(r.Alert, expr, time.Duration(hold), 0, labels.FromMap(r.Labels), labels.FromMap(r.Annotations),
		labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
}

// evaluate evaluates an alert at a time.
func (s *server) evaluate(r *rules.AlertingRule, when time.Time) {
	s.t.Helper()
	if _, err := r.Eval(context.Background(), 0, when, rules.EngineQueryFunc(s.engine, s.db), nil, 0); err != nil {
		s.t.Fatalf("%s: %v", r.Name(), err)
	}
}

// fired returns the firing alerts of a rule: labels, except the common ones, and summary.
func fired(r *rules.AlertingRule) map[string]string {
	all := map[string]string{}
	for _, a := range r.ActiveAlerts() {
		if a.State == rules.StateFiring {
			of := labels.NewBuilder(a.Labels).Del(labels.AlertName, "severity").Labels()
			all[of.String()] = a.Annotations.Get("summary")
		}
	}
	return all
}

const (
	ours = `namespace="rehome", job="rehome"`
	pod  = `instance="10.0.0.1:8642", ` + ours
)

// cases are series, a sample a minute, and what fires by them after so many minutes.
var cases = []struct {
	alert, name string
	series      []string
	after       int
	want        map[string]string
}{
	{"RehomeNotScraped", "nothing is there", []string{`other 1x30`}, 12, map[string]string{`{}`: "Prometheus does not scrape Rehome."}},
	{"RehomeNotScraped", "one process is there", []string{`rehome_build_info{` + pod + `} 1x30`}, 20, nil},

	{"RehomeNoLeader", "both processes are on standby", []string{
		`rehome_leader{lease="rehome-actuator", instance="a", ` + ours + `} 0x30`,
		`rehome_leader{lease="rehome-actuator", instance="b", ` + ours + `} 0x30`,
		`rehome_leader{lease="rehome-watcher", instance="a", ` + ours + `} 1x30`,
	}, 10, map[string]string{
		`{job="rehome", lease="rehome-actuator", namespace="rehome"}`: "No process of Rehome holds the lease rehome-actuator.",
	}},
	{"RehomeNoLeader", "one of two leads", []string{
		`rehome_leader{lease="rehome-actuator", instance="a", ` + ours + `} 0x30`,
		`rehome_leader{lease="rehome-actuator", instance="b", ` + ours + `} 1x30`,
	}, 20, nil},
	{"RehomeNoLeader", "the lease changed hands within a minute", []string{
		`rehome_leader{lease="rehome-actuator", instance="a", ` + ours + `} 1 1 1 0 0x20`,
		`rehome_leader{lease="rehome-actuator", instance="b", ` + ours + `} 0 0 0 0 1x20`,
	}, 10, nil},
	{"RehomeNoLeader", "no actuator is there", []string{
		`rehome_leader{lease="rehome-watcher", instance="a", ` + ours + `} 1x30`,
		`rehome_build_info{instance="a", ` + ours + `} 1x30`, `rehome_build_info{instance="b", ` + ours + `} 1x30`,
	}, 10, map[string]string{`{lease="rehome-actuator"}`: "No process of Rehome holds the lease rehome-actuator."}},
	{"RehomeNoLeader", "only functions are there", []string{`rehome_build_info{` + pod + `} 1x30`}, 10, map[string]string{
		`{lease="rehome-actuator"}`: "No process of Rehome holds the lease rehome-actuator.",
		`{lease="rehome-watcher"}`:  "No process of Rehome holds the lease rehome-watcher.",
	}},
	{"RehomeNoLeader", "nothing is there", []string{`other 1x30`}, 20, nil},
	{"RehomeNoLeader", "each lease is held", []string{
		`rehome_leader{lease="rehome-watcher", instance="a", ` + ours + `} 1x30`,
		`rehome_leader{lease="rehome-actuator", instance="b", ` + ours + `} 1x30`, `rehome_build_info{instance="c", ` + ours + `} 1x30`,
	}, 20, nil},

	{"RehomeNotReady", "it has not been ready for long", []string{`rehome_ready{` + pod + `} 1 0x20`}, 12, map[string]string{
		`{instance="10.0.0.1:8642", job="rehome", namespace="rehome"}`: "A process of Rehome is not ready.",
	}},
	{"RehomeNotReady", "it has just started", []string{`rehome_ready{` + pod + `} 0 0 0 1x20`}, 12, nil},

	{"RehomeWatcherIdle", "it asks for nothing any more", []string{
		`rehome_scopes_total{strategy="A", ` + pod + `} 0+10x30 310x300`, `rehome_leader{lease="rehome-watcher", ` + pod + `} 1x400`,
	}, 250, map[string]string{`{job="rehome", namespace="rehome"}`: "The watcher of Rehome builds no scopes."}},
	{"RehomeWatcherIdle", "everything is evaluated each half hour", []string{
		`rehome_scopes_total{strategy="A", ` + pod + `} 5x29 10x29 15x29 20x29 25x29 30x29 35x29 40x29`,
		`rehome_leader{lease="rehome-watcher", ` + pod + `} 1x400`,
	}, 235, nil},
	{"RehomeWatcherIdle", "another process leads", []string{
		`rehome_scopes_total{strategy="A", instance="a", ` + ours + `} 310x300`, `rehome_scopes_total{strategy="A", instance="b", ` + ours + `} 0+1x300`,
		`rehome_leader{lease="rehome-watcher", instance="b", ` + ours + `} 1x300`,
	}, 250, nil},

	{"RehomeClusterBreakerOpen", "it has held for long", []string{`rehome_cluster_breaker_open{reason="StormNodes", ` + pod + `} _ _ 1x30`}, 13,
		map[string]string{`{job="rehome", namespace="rehome", reason="StormNodes"}`: "Rehome moves nothing (StormNodes)."}},
	{"RehomeClusterBreakerOpen", "it has let go", []string{`rehome_cluster_breaker_open{reason="StormNodes", ` + pod + `} 1 1 1 1 1`}, 15, nil},

	{"RehomeBusLag", "scopes of a strategy wait all the time", []string{
		`rehome_bus_consumer_waiting_messages{stream="REHOME_SCOPES", consumer="PodLifeTime", ` + pod + `} 0 0 5+1x60`,
		`rehome_bus_consumer_waiting_messages{stream="REHOME_SCOPES", consumer="RemoveDuplicates", ` + pod + `} 0 5 9 0 3 0 0 5x9 0x60`,
	}, 40, map[string]string{
		`{consumer="PodLifeTime", job="rehome", namespace="rehome", stream="REHOME_SCOPES"}`: "Messages wait on the bus of Rehome for PodLifeTime.",
	}},
	{"RehomeBusLag", "the sink of a forwarder is too slow", []string{`rehome_forward_waiting_events{` + pod + `} 3+2x60`}, 40, map[string]string{
		`{instance="10.0.0.1:8642", job="rehome", namespace="rehome"}`: "Messages wait on the bus of Rehome for 10.0.0.1:8642.",
	}},
	{"RehomeBusLag", "many scopes wait for a moment", []string{
		`rehome_bus_consumer_waiting_messages{stream="REHOME_SCOPES", consumer="PodLifeTime", ` + pod + `} 0x9 5000x9 0x40`,
	}, 40, nil},

	{"RehomeStreamFull", "the ledger is almost full", []string{
		`rehome_bus_stream_bytes{stream="KV_REHOME_LEDGER", instance="a", ` + ours + `} 50 91x30`,
		`rehome_bus_stream_limit_bytes{stream="KV_REHOME_LEDGER", instance="a", ` + ours + `} 100x30`,
		`rehome_bus_stream_bytes{stream="KV_REHOME_LEDGER", instance="b", ` + ours + `} 50 91x30`,
		`rehome_bus_stream_limit_bytes{stream="KV_REHOME_LEDGER", instance="b", ` + ours + `} 100x30`,
	}, 10, map[string]string{`{stream="KV_REHOME_LEDGER"}`: "The stream KV_REHOME_LEDGER of Rehome is almost full."}},
	{"RehomeStreamFull", "a sender floods the requests", []string{
		`rehome_bus_stream_bytes{stream="REHOME_REQUESTS", ` + pod + `} 1x30`, `rehome_bus_stream_limit_bytes{stream="REHOME_REQUESTS", ` + pod + `} 100x30`,
		`rehome_bus_stream_messages{stream="REHOME_REQUESTS", ` + pod + `} 50 9500x30`,
	}, 10, map[string]string{`{stream="REHOME_REQUESTS"}`: "The stream REHOME_REQUESTS of Rehome is almost full."}},
	{"RehomeStreamFull", "the history is full, and the ledger is not", []string{
		`rehome_bus_stream_bytes{stream="REHOME_EVENTS", ` + pod + `} 100x30`, `rehome_bus_stream_limit_bytes{stream="REHOME_EVENTS", ` + pod + `} 100x30`,
		`rehome_bus_stream_bytes{stream="KV_REHOME_LEDGER", ` + pod + `} 89x30`, `rehome_bus_stream_limit_bytes{stream="KV_REHOME_LEDGER", ` + pod + `} 100x30`,
	}, 20, nil},

	{"RehomeBusRefusesWrites", "the disk is full", []string{
		`rehome_bus_refusing_writes{reason="full", ` + pod + `} 0 1x20`, `rehome_bus_refusing_writes{reason="stopped", ` + pod + `} 0x21`,
	}, 10, map[string]string{
		`{instance="10.0.0.1:8642", job="rehome", namespace="rehome", reason="full"}`: "The bus of Rehome takes no events (full).",
	}},
	{"RehomeBusRefusesWrites", "there is space again after a minute", []string{`rehome_bus_refusing_writes{reason="full", ` + pod + `} 0 1 0x20`}, 10, nil},

	{"RehomeDeadLetters", "there are some", []string{`rehome_dead_letters{stream="REHOME_SCOPES", ` + pod + `} _ 2x30`}, 10, map[string]string{
		`{job="rehome", namespace="rehome", stream="REHOME_SCOPES"}`: "Rehome has dead letters.",
	}},
	{"RehomeDeadLetters", "they were dropped", []string{`rehome_dead_letters{stream="REHOME_SCOPES", ` + pod + `} _ 2 2 2 0x30`}, 10, nil},

	{"RehomePolicyRefused", "it stays refused", []string{`rehome_policy_last_reload_successful{` + pod + `} 1 0x20`}, 10, map[string]string{
		`{instance="10.0.0.1:8642", job="rehome", namespace="rehome"}`: "Rehome refuses its policy file.",
	}},
	{"RehomePolicyRefused", "it was mended", []string{`rehome_policy_last_reload_successful{` + pod + `} 1 0 0 1x20`}, 10, nil},

	{"RehomeEvictionsFail", "the right is missing, from the first eviction on", []string{
		`rehome_verdicts_total{outcome="failed", reason="Forbidden", namespace="shop", job="rehome"} _ _ 4x40`,
	}, 10, map[string]string{`{job="rehome", outcome="failed", reason="Forbidden"}`: "Evictions fail (Forbidden)."}},
	{"RehomeEvictionsFail", "the API server is away", []string{
		`rehome_verdicts_total{outcome="deferred", reason="APIUnavailable", namespace="shop", job="rehome"} 7x30 7+1x30`,
	}, 45, map[string]string{`{job="rehome", outcome="deferred", reason="APIUnavailable"}`: "Evictions fail (APIUnavailable)."}},
	{"RehomeEvictionsFail", "some failed long ago", []string{
		`rehome_verdicts_total{outcome="failed", reason="Forbidden", namespace="shop", job="rehome"} 4x60`,
		`rehome_verdicts_total{outcome="evicted", reason="EvictionAccepted", namespace="shop", job="rehome"} 0+3x60`,
	}, 40, nil},

	{"RehomeMovesDoNotSettle", "three replacements are not ready", []string{
		`rehome_move_settled_seconds_count{reason="ReplacementPending", method="eviction", job="rehome"} _ 2x40`,
		`rehome_move_settled_seconds_count{reason="NotReplaced", method="eviction", job="rehome"} _ _ 1x40`,
	}, 12, map[string]string{`{job="rehome"}`: "Replacements of moved pods do not become ready."}},
	{"RehomeMovesDoNotSettle", "two are not, and many are", []string{
		`rehome_move_settled_seconds_count{reason="ReplacementPending", method="eviction", job="rehome"} _ 2x40`,
		`rehome_move_settled_seconds_count{reason="Replaced", method="eviction", job="rehome"} 0+5x40`,
	}, 20, nil},

	{"RehomeMaintenanceStuck", "a node is drained for more than an hour", []string{
		`rehome_maintenance_nodes{maintenance="kernel", stage="Draining", ` + pod + `} 1x200`,
		`rehome_maintenance_nodes{maintenance="kernel", stage="Waiting", ` + pod + `} 3x200`,
	}, 70, map[string]string{`{job="rehome", maintenance="kernel", namespace="rehome"}`: "The maintenance kernel makes no progress."}},
	{"RehomeMaintenanceStuck", "one node after the other gets on", []string{
		`rehome_maintenance_nodes{maintenance="kernel", stage="Draining", ` + pod + `} 1x200`,
		`rehome_maintenance_nodes{maintenance="kernel", stage="Drained", ` + pod + `} 1x40 2x40 3x40`,
	}, 115, nil},
	{"RehomeMaintenanceStuck", "its only node got on to another stage", []string{
		`rehome_maintenance_nodes{maintenance="kernel", stage="Cordoned", ` + pod + `} 1x50`,
		`rehome_maintenance_nodes{maintenance="kernel", stage="Draining", ` + pod + `} _x50 1x60`,
	}, 90, nil},
	{"RehomeMaintenanceStuck", "its nodes wait for their window", []string{`rehome_maintenance_nodes{maintenance="kernel", stage="Waiting", ` + pod + `} 3x200`}, 150, nil},
}

func TestAlertsFire(t *testing.T) {
	all := map[string]monitoringv1.Rule{}
	for _, r := range readRules(t) {
		all[r.Alert] = r
	}
	firing := map[string]int{}
	quiet := map[string]int{}
	for _, c := range cases {
		t.Run(c.alert+": "+c.name, func(t *testing.T) {
			s := newServer(t)
			s.load(c.series...)
			r := s.rule(all[c.alert])
			for n := range c.after + 1 {
				s.evaluate(r, minute(n))
				if n == 2 && len(fired(r)) > 0 {
					t.Errorf("after two minutes: %v", fired(r))
				}
			}
			if got := fired(r); len(got)+len(c.want) > 0 && !reflect.DeepEqual(got, c.want) {
				t.Errorf("after %d minutes: got %v, want %v", c.after, got, c.want)
			}
		})
		if c.want == nil {
			quiet[c.alert]++
		} else {
			firing[c.alert]++
		}
	}
	if got, want := slices.Sorted(maps.Keys(firing)), slices.Sorted(maps.Keys(all)); !reflect.DeepEqual(got, want) {
		t.Errorf("cases with a firing alert: got %q, want one of each of %q", got, want)
	}
	if got, want := slices.Sorted(maps.Keys(quiet)), slices.Sorted(maps.Keys(all)); !reflect.DeepEqual(got, want) {
		t.Errorf("cases without a firing alert: got %q, want one of each of %q", got, want)
	}
}

func TestAlertsHaveTextsAndRunbooks(t *testing.T) {
	for _, r := range readRules(t) {
		link, linked := strings.CutPrefix(r.Annotations["runbook_url"], pages)
		page, anchor, _ := strings.Cut(link, "#")
		if !linked || anchor != strings.ToLower(r.Alert) {
			t.Errorf("%s links to %q", r.Alert, r.Annotations["runbook_url"])
			continue
		}
		text, err := os.ReadFile("../../" + page)
		if err != nil || !strings.Contains(string(text), "\n## "+r.Alert+"\n") {
			t.Errorf("%s: %s has no section of it, error %v", r.Alert, page, err)
		}
		if len(r.Annotations["summary"]) < 20 || len(r.Annotations["description"]) < 40 || len(r.Annotations) != 3 {
			t.Errorf("%s is explained as %q", r.Alert, r.Annotations)
		}
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if r.For == nil {
			t.Errorf("%s fires at once", r.Alert)
		}
	}
}
