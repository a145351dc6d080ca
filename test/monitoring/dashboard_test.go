package monitoring

import (
	"reflect"
	"strings"
	"testing"
)

func TestPanelsHaveDescriptionsAndUnits(t *testing.T) {
	d := readDashboard(t)
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || titles[p.Title] || p.Title == "" {
			t.Errorf("panel %d %q: duplicate ID or title", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.Type == "row" {
			continue
		}
		if len(p.Description) < 20 || !strings.HasSuffix(p.Description, ".") {
			t.Errorf("%s: described as %q, want a sentence", p.Title, p.Description)
		}
		if p.FieldConfig.Defaults.Unit == "" && (p.Type == "timeseries" || p.Type == "stat" || p.Type == "table") {
			t.Errorf("%s has no unit", p.Title)
		}
		if len(p.FieldConfig.Defaults.Thresholds.Steps) < 2 && p.Type == "stat" && !strings.Contains("Pods moved, In flight", p.Title) {
			t.Errorf("%s has no threshold", p.Title)
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", p.Title)
		}
		for _, q := range p.Targets {
			if q.Datasource.Type != "prometheus" || q.Datasource.UID != "${datasource}" {
				t.Errorf("%s %s: asks %+v, want the data source that is chosen", p.Title, q.RefID, q.Datasource)
			}
		}
	}
}

func TestDashboardVariables(t *testing.T) {
	d := readDashboard(t)
	var got []string
	for _, v := range d.Templating.List {
		got = append(got, v.Name+" "+v.Type)
	}
	want := []string{"datasource datasource", "job query", "namespace query", "strategy query"}
	if !reflect.DeepEqual(got, want) || d.Title != "Rehome" || d.UID != "rehome" || d.SchemaVersion < 39 {
		t.Errorf("got %q of %s %s version %d, want %q", got, d.Title, d.UID, d.SchemaVersion, want)
	}
}

// TestQueryVariables looks at what each metric is chosen by.
func TestQueryVariables(t *testing.T) {
	s := newServer(t)
	byStrategy := map[string]bool{"rehome_scopes_total": true, "rehome_intents_total": true, "rehome_verdicts_total": true, "rehome_evaluation_seconds_bucket": true}
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			for _, v := range s.selectors(substituted(q.Expr)) {
				by := map[string]bool{}
				for _, name := range names(v) {
					by[name] = true
				}
				if !by["job"] || (byStrategy[v.Name] && !by["strategy"]) || (v.Name == "rehome_verdicts_total" && !by["namespace"]) {
					t.Errorf("%s %s: %s is chosen by %v only", p.Title, q.RefID, v.Name, names(v))
				}
			}
		}
	}
}
