package monitoring

import (
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// empty are the queries of the dashboard that have nothing to show in the live run, by panel and reference, with the reason.
var empty = map[string]string{}

// troubled are the alerts whose condition the troubles of the live run meet. The others need longer than a test.
var troubled = []string{"RehomeClusterBreakerOpen", "RehomeDeadLetters", "RehomeEvictionsFail", "RehomePolicyRefused"}

// TestLiveRun plays what people look at a dashboard for, while the processes are
// scraped: first all is well, then everything that can hold a pod does.
func TestLiveRun(t *testing.T) {
	s := newScene(t)
	s.deployment("shop", "cart", 6, corev1.LabelHostname, s.nodes[0], s.nodes[1])
	s.deployment("batch", "short", 1, corev1.LabelHostname, s.nodes[1])
	s.start()
	began := time.Now()
	p := newServer(t)
	p.scrape(readMonitor(t).Spec.Endpoints[0].HonorLabels, s.run.Address, s.serves.Address, s.forwards.Address)
	s.scraped(p)

	s.well()
	fine := s.scraped(p)
	t.Run("no alert is near while all is well", func(t *testing.T) {
		if got := alertsNear(t, p, fine); len(got) > 0 {
			t.Errorf("got %q, want none", got)
		}
	})

	s.trouble()
	found := families{}
	found.add(t, s.run, s.serves, s.forwards)
	time.Sleep(5 * scrapeEvery) // more samples
	ended := s.scraped(p)
	t.Run("each query of the dashboard has something to show", func(t *testing.T) { queriesShow(t, p, began, ended) })
	t.Run("each list of the dashboard has something to choose", func(t *testing.T) { listsChoose(t, p, ended) })
	t.Run("the dashboard counts the pods that were moved", func(t *testing.T) { movedIsCounted(t, p, ended) })
	t.Run("namespaces of the pods", func(t *testing.T) { namespacesAreThoseOfPods(t, p, ended) })
	t.Run("only the expected alerts are close to firing", func(t *testing.T) { alertsComeNear(t, p, troubled) })
	t.Run("each alert asks for metrics and labels that there are", func(t *testing.T) { alertsAskForWhatThereIs(t, p, ended) })
	t.Run("the page about metrics lists all of them and no others", func(t *testing.T) { found.areThoseOfThePage(t) })
}

// processes is how many are scraped.
const processes = 3

// scraped waits until there are samples of every process.
func (s *scene) scraped(p *server) (when time.Time) {
	s.t.Helper()
	expect.Eventually(s.t, "they are scraped", func() (whole bool) {
		when, whole = p.whole(processes)
		return whole
	})
	return when
}

// well makes the usual changes: a node is tainted, its pods move, and their replacements become ready.
func (s *scene) well() {
	s.t.Helper()
	s.taint(s.nodes[0], corev1.TaintEffectNoSchedule)
	s.says(s.run, `rehome_move_settled_seconds_count\{`)
	expect.Eventually(s.t, "nothing waits", func() bool {
		_, text := s.run.Get("metrics")
		return strings.Contains(text, "\nrehome_open_intents 0\n") && strings.Contains(text, "\nrehome_moves_in_flight 0\n")
	})
	time.Sleep(3 * scrapeEvery)
}

// trouble creates every situation that can defer a pod, and sends requests.
func (s *scene) trouble() {
	s.t.Helper()
	s.pool("front", s.nodes[4], s.nodes[5])
	s.deployment("web", "front", 4, "pool", "front")
	s.pool("held", s.nodes[6], s.nodes[7])
	s.deployment("web", "held", 4, "pool", "held")
	s.budget("web", "held", "keep")
	s.pool("twice", s.nodes[8])
	s.deployment("batch", "twice", 1, "pool", "twice")
	s.budget("batch", "twice", "one")
	s.budget("batch", "twice", "another")
	s.pool("twice", s.nodes[2])
	s.pinned("web", "sticky", s.nodes[3])

	s.pool("other", s.nodes[4], s.nodes[6], s.nodes[8])
	s.says(s.run, `rehome_verdicts_total\{.*namespace="web",outcome="evicted",.*strategy="RemovePodsViolatingNodeAffinity"`)
	s.says(s.run, `rehome_verdicts_total\{.*outcome="deferred",.*reason="DisruptionBudget"`)
	s.says(s.run, `rehome_verdicts_total\{.*outcome="failed",.*reason="Invalid"`)
	s.taint(s.nodes[3], corev1.TaintEffectPreferNoSchedule)
	s.says(s.run, `rehome_workload_breakers_open 1`)
	s.command("evaluate", "--name", "one", "--reason", "the scene wants it")
	s.maintain("kernel", s.nodes[7])
	s.says(s.run, `rehome_maintenance_nodes\{maintenance="kernel",stage="Draining"\} 1`)
	s.bury()
	s.says(s.run, `rehome_dead_letters\{stream="REHOME_SCOPES"\} 1`)
	s.policy(5)
	s.says(s.run, `rehome_policy_reloads_total\{result="applied"\} 1`)
	s.says(s.run, `rehome_dispatcher_requests_total\{result="answered",strategy="PodLifeTime"\}`)
	filetest.Write(s.t, filepath.Join(s.dir, "policy.yaml"), "profiles: 1\n")
	s.says(s.run, `rehome_policy_last_reload_successful 0`)
	s.taint(s.nodes[1], corev1.TaintEffectNoSchedule)
	s.taint(s.nodes[2], corev1.TaintEffectNoSchedule)
	s.says(s.run, `rehome_cluster_breaker_open\{reason="StormNodes"\} 1`)
}

// queriesShow asks everything that the dashboard asks.
func queriesShow(t *testing.T, p *server, from, to time.Time) {
	queries := 0
	for _, one := range readDashboard(t).Panels {
		for _, q := range one.Targets {
			queries++
			name := one.Title + " " + q.RefID
			series, err := p.over(substituted(q.Expr), from, to)
			why, nothing := empty[name]
			switch {
			case err != nil:
				t.Errorf("%s: %s: %v", name, q.Expr, err)
			case nothing && series > 0:
				t.Errorf("%s has %d series, want none: %s", name, series, why)
			case !nothing && series == 0:
				t.Errorf("%s has nothing to show: %s", name, substituted(q.Expr))
			}
			for _, v := range p.selectors(substituted(q.Expr)) { // a missing selector does not change the whole result
				if n, err := p.over(plain(v), from, to); (err != nil || n == 0) && !nothing {
					t.Errorf("%s: there is no %s, error %v", name, plain(v), err)
				}
			}
		}
	}
	if queries < 50 {
		t.Errorf("the dashboard has %d queries only", queries)
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// listsChoose asks what Grafana asks to fill the lists above the dashboard.
func listsChoose(t *testing.T, p *server, when time.Time) {
	got := map[string][]string{}
	for _, v := range readDashboard(t).Templating.List {
		if v.Type != "query" {
			continue
		}
		match := labelValues.FindStringSubmatch(v.Definition)
		if match == nil || !reflect.DeepEqual(v.Query, map[string]any{"query": v.Definition, "refId": "Variable"}) {
			t.Fatalf("%s asks %v, %q", v.Name, v.Query, v.Definition)
		}
		got[v.Name] = valuesOf(t, p, substituted(match[1]), match[2], when)
	}
	want := map[string][]string{
		"job":       {"rehome"},
		"namespace": {"batch", "shop", "web"},
		"strategy":  {"PodLifeTime", "RemovePodsViolatingNodeAffinity", "RemovePodsViolatingNodeTaints"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// valuesOf returns the values of a label.
func valuesOf(t *testing.T, p *server, expr, label string, when time.Time) []string {
	t.Helper()
	v, err := p.at(expr, when)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	values := map[string]bool{}
	for _, s := range v {
		values[s.Metric.Get(label)] = true
	}
	return slices.Sorted(maps.Keys(values))
}

// movedIsCounted compares the figure of the dashboard with the counters, which all began within the time that is shown.
func movedIsCounted(t *testing.T, p *server, when time.Time) {
	want, err := p.at(`sum(rehome_verdicts_total{outcome=~"evicted|restarted|requested"})`, when)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range readDashboard(t).Panels {
		if one.Title != "Pods moved" {
			continue
		}
		got, err := p.at(substituted(one.Targets[0].Expr), when)
		if err != nil || len(got) != 1 || len(want) != 1 || got[0].F != want[0].F || got[0].F < 3 {
			t.Errorf("got %v, want %v, error %v", got, want, err)
		}
		return
	}
	t.Error("no panel counts them")
}

func namespacesAreThoseOfPods(t *testing.T, p *server, when time.Time) {
	got := valuesOf(t, p, "rehome_verdicts_total", "namespace", when)
	if want := []string{"batch", "shop", "web"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := valuesOf(t, p, "rehome_leader", "namespace", when); !reflect.DeepEqual(got, []string{"rehome"}) {
		t.Errorf("of Rehome's own pods: got %q", got)
	}
}

// alertsComeNear waits until the conditions of these alerts are met, and of no others.
func alertsComeNear(t *testing.T, p *server, want []string) {
	var got []string
	for end := time.Now().Add(patience); time.Now().Before(end); {
		when, whole := p.whole(processes)
		if !whole {
			continue
		}
		if got = alertsNear(t, p, when); slices.Equal(got, want) {
			return
		}
	}
	t.Errorf("got %q, want %q", got, want)
}

// alertsNear is whose condition is met at a time: they fire if it stays so.
func alertsNear(t *testing.T, p *server, when time.Time) (got []string) {
	t.Helper()
	for _, r := range readRules(t) {
		rule := p.rule(r)
		p.evaluate(rule, when)
		for _, a := range rule.ActiveAlerts() {
			if text := a.Annotations.Get("summary") + a.Annotations.Get("description"); strings.Contains(text, "<error") || strings.Contains(text, "{{") {
				t.Errorf("%s says %q", r.Alert, text)
			}
		}
		if len(rule.ActiveAlerts()) > 0 {
			got = append(got, r.Alert)
		}
	}
	slices.Sort(got)
	return got
}

func alertsAskForWhatThereIs(t *testing.T, p *server, when time.Time) {
	for _, r := range readRules(t) {
		for _, v := range p.selectors(r.Expr.String()) {
			for _, label := range append(names(v), "job") {
				if got := valuesOf(t, p, v.Name, label, when); len(got) == 0 || slices.Equal(got, []string{""}) {
					t.Errorf("%s queries %s, which has no label %s", r.Alert, v.Name, label)
				}
			}
		}
	}
}
