package monitoring

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rehome-dev/rehome/test/kit/program"
)

// families are metrics by their names, with their type and the labels that they were seen with.
type families map[string]family

type family struct{ kind, labels string }

// add adds the current metrics of processes.
func (f families) add(t *testing.T, processes ...*program.Program) {
	t.Helper()
	for _, p := range processes {
		_, text := p.Get("metrics")
		parser := expfmt.NewTextParser(model.UTF8Validation)
		all, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for name, m := range all {
			if !strings.HasPrefix(name, "rehome_") && !strings.HasPrefix(name, "descheduler_") {
				continue
			}
			labels := map[string]bool{}
			for _, one := range m.GetMetric() {
				for _, l := range one.GetLabel() {
					labels[l.GetName()] = true
				}
			}
			f[name] = family{strings.ToLower(m.GetType().String()), strings.Join(slices.Sorted(maps.Keys(labels)), ", ")}
		}
	}
}

var metricRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+) \\| (.*?) \\| (.+) \\|$")

// areThoseOfThePage compares them with the tables of the page, where each label is in backquotes.
func (f families) areThoseOfThePage(t *testing.T) {
	page := families{}
	for _, m := range metricRow.FindAllStringSubmatch(string(read(t, "../../docs/metrics.md")), -1) {
		if _, twice := page[m[1]]; twice {
			t.Errorf("%s is listed twice", m[1])
		}
		labels := strings.Split(strings.ReplaceAll(m[3], "`", ""), ", ")
		slices.Sort(labels)
		page[m[1]] = family{m[2], strings.Join(labels, ", ")}
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if got := page[name]; !reflect.DeepEqual(got, f[name]) {
			t.Errorf("%s: the page says %+v, want %+v", name, got, f[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(page)) {
		if _, seen := f[name]; !seen {
			t.Errorf("%s is on the page, and no process of the live run has it", name)
		}
	}
}
