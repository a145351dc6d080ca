package monitoring

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

const component = "../../deploy/kustomize/components/monitoring"

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// manifest returns a file of the component as its kind. A field that the kind does not have is an error.
func manifest[K any](t *testing.T, data []byte) (object K) {
	t.Helper()
	if err := yaml.UnmarshalStrict(data, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// dashboard has the fields of the dashboard that the tests use.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []variable
	}
	Panels []panel
}

type variable struct {
	Name, Type, Label string
	Query             any
	Definition        string
}

type panel struct {
	ID                       int
	Type, Title, Description string
	FieldConfig              struct {
		Defaults struct {
			Unit       string
			Thresholds struct{ Steps []map[string]any }
		}
	}
	Targets []target
}

type target struct {
	RefID, Expr, LegendFormat string
	Datasource                struct{ Type, UID string }
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	d := expect.FromJSON[dashboard](t, read(t, component, "dashboard.json"))
	return d
}

func readRules(t *testing.T) []monitoringv1.Rule {
	t.Helper()
	r := manifest[monitoringv1.PrometheusRule](t, read(t, component, "alerts.yaml"))
	var rules []monitoringv1.Rule
	for _, g := range r.Spec.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

func readMonitor(t *testing.T) monitoringv1.ServiceMonitor {
	t.Helper()
	return manifest[monitoringv1.ServiceMonitor](t, read(t, component, "servicemonitor.yaml"))
}

// yamlBlock returns the first block of YAML of a section of a page.
func yamlBlock(t *testing.T, page, section string) []byte {
	t.Helper()
	_, rest, found := strings.Cut(string(read(t, "../../docs", page)), "\n"+section+"\n")
	_, rest, opened := strings.Cut(rest, "```yaml\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !opened || !closed {
		t.Fatalf("%s has no YAML in its section %q", page, section)
	}
	return []byte(block)
}
