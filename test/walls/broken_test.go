package walls

import (
	"slices"
	"strings"
	"testing"
)

// sound returns an import graph without violations.
func sound() graph {
	g := graph{
		"schemas":              {"time", "k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/types", "schemas/v1alpha1"},
		"schemas/v1alpha1":     {"k8s.io/apimachinery/pkg/runtime"},
		"schemas/validation":   {"schemas", "github.com/santhosh-tekuri/jsonschema/v6"},
		"test/schematest":      {"testing", "schemas", "schemas/validation"},
		"policy":               {"schemas"},
		"functions":            {"schemas", "policy", "functions/one"},
		"functions/one":        {"schemas"},
		"watcher":              {"schemas", "policy", "k8s.io/client-go/informers"},
		"actuator":             {"schemas", "policy", "k8s.io/client-go/kubernetes", "kubeevents"},
		"kubeevents":           {"k8s.io/client-go/tools/events"},
		"bus":                  {"schemas", "github.com/nats-io/nats.go"},
		"test/e2e":             {"bus", "watcher", "test/schematest"},
		"k8s.io/api/core/v1":   {"time"},
		"github.com/lib/inner": {"k8s.io/client-go/rest"},
		"github.com/lib":       {"github.com/lib/inner"},
	}
	for _, pattern := range named() {
		if name := strings.TrimSuffix(pattern, "/..."); !slices.Contains(planned, pattern) && g[name] == nil {
			g[name] = []string{"time"}
		}
	}
	return g
}

// full converts package names to import paths.
func (g graph) full() graph {
	path := func(name string) string {
		if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") || name == "time" || name == "testing" {
			return name
		}
		return module + "/" + name
	}
	all := graph{}
	for name, imports := range g {
		all[path(name)] = nil
		for _, imported := range imports {
			all[path(name)] = append(all[path(name)], path(imported))
		}
	}
	return all
}

func TestCheckValidImports(t *testing.T) {
	if got := sound().full().broken(); len(got) > 0 {
		t.Errorf("got %q, want nothing", got)
	}
}

func TestCheckReportsTheImportPath(t *testing.T) {
	for name, test := range map[string]struct {
		from, to string
		want     string // in one of the sentences, without the module
	}{
		"the watcher imports the bus":              {"watcher", "bus", "watcher → bus: "},
		"the actuator imports a strategy":          {"actuator", "functions/one", "actuator → functions/one: "},
		"the bus imports the watcher":              {"bus", "watcher", "bus → watcher: "},
		"a strategy imports the actuator":          {"functions/one", "actuator", "functions/one → actuator: "},
		"a strategy reaches client-go by a detour": {"functions/one", "github.com/lib", "functions/one → github.com/lib → github.com/lib/inner → k8s.io/client-go/rest: "},
		"the policy reaches NATS":                  {"policy", "github.com/nats-io/nats.go", "policy → github.com/nats-io/nats.go: "},
		"the contract imports a library":           {"schemas", "github.com/lib/other", "schemas → github.com/lib/other: "},
		"the kinds import a library":               {"schemas/v1alpha1", "github.com/lib/other", "schemas/v1alpha1 → github.com/lib/other: "},
		"the kinds import the events":              {"schemas/v1alpha1", "schemas", "schemas/v1alpha1 → schemas: "},
		"the contract imports the policy":          {"schemas", "policy", "schemas → policy: "},
		"the watcher writes Kubernetes Events":     {"watcher", "k8s.io/client-go/tools/record", "watcher → k8s.io/client-go/tools/record: "},
		"a new package imports two roles":          {"policy", "bus", "policy → bus: "},
		"a role imports a test package":            {"bus", "test/e2e", "bus → test/e2e: "},
		"a role imports testing":                   {"bus", "testing", "bus → testing: "},
		"a role imports the checks of tests":       {"bus", "test/schematest", "bus → test/schematest: "},
		"a role validates events by their schemas": {"bus", "schemas/validation", "bus → schemas/validation: "},
		"a test helper compiles schemas itself": {
			"test/schematest", "github.com/santhosh-tekuri/jsonschema/v6",
			"test/schematest → github.com/santhosh-tekuri/jsonschema/v6: ",
		},
	} {
		g := sound()
		g[test.from] = append(g[test.from], test.to)
		got := strings.ReplaceAll(strings.Join(g.full().broken(), "\n"), module+"/", "")
		if !strings.Contains("\n"+got, "\n"+test.want) {
			t.Errorf("%s:\n got %q\nwant a line that begins with %q", name, got, test.want)
		}
	}
}

func TestCheckReportsPackagesWithTwoRoles(t *testing.T) {
	g := sound()
	g["middle"] = []string{"watcher", "actuator"}
	want := []string{module + "/middle imports actuator and watcher: only app may import several roles"}
	if got := g.full().broken(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckReportsUnknownPackages(t *testing.T) {
	g := sound()
	delete(g, "watcher")
	g["test/e2e"] = nil
	want := []string{"watcher/...: a rule names this package, but it does not exist"}
	if got := g.full().broken(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckReportsExistingPlannedPackages(t *testing.T) {
	var want []string
	g := sound()
	for _, pattern := range planned {
		g[strings.TrimSuffix(pattern, "/...")] = []string{"time"}
		want = append(want, pattern+": this package exists; remove it from planned")
	}
	slices.Sort(want)
	if got := g.full().broken(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
