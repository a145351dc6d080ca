package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// root is where the files of the repository are, and chart where the chart is.
const (
	root  = "../.."
	chart = root + "/deploy/helm/rehome"
)

// helm is a call of helm, with nothing of the person who runs the test: its caches and settings are in a folder of its own.
func helm(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(root, ".build/tools/helm"))
	expect.Must(t, err)
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("helm is not built: run make .build/tools/helm: %v", err)
	}
	home := t.TempDir()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
	}
	return c
}

// run runs a command and returns its standard output and standard error.
func run(c *exec.Cmd) (out, complaint string, err error) {
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	err = c.Run()
	return o.String(), e.String(), err
}

// must runs a command that has to work, and returns what it prints.
func must(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, complaint, err := run(c)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(c.Args, " "), err, out, complaint)
	}
	return out
}

// rendered renders a release in the namespace rehome.
func rendered(t *testing.T, release string, args ...string) objects {
	t.Helper()
	return parse(t, must(t, helm(t, append([]string{"template", release, chart, "--namespace", "rehome"}, args...)...)))
}

// objects are the objects of a rendered chart, in order.
type objects []*unstructured.Unstructured

// parse reads manifests.
func parse(t *testing.T, text string) objects {
	t.Helper()
	return manifesttest.Objects(t, []byte(text))
}

// one is the only object of a kind with that name.
func (all objects) one(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	var found objects
	for _, o := range all {
		if o.GetKind() == kind && o.GetName() == name {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s %s: there are %d, want one; all are %q", kind, name, len(found), all.names())
	}
	return found[0]
}

// names are the kinds and names of all objects.
func (all objects) names() (names []string) {
	for _, o := range all {
		names = append(names, o.GetKind()+"/"+o.GetName())
	}
	return names
}

// pods are the specs of all pods that an object has made, with the name of the object.
func (all objects) pods(t *testing.T) map[string]map[string]any {
	t.Helper()
	specs := map[string]map[string]any{}
	for _, o := range all {
		path := []string{"spec", "template", "spec"}
		switch o.GetKind() {
		case "CronJob":
			path = append([]string{"spec", "jobTemplate"}, path...)
		case "Deployment", "StatefulSet", "Job", "Service":
		default:
			continue
		}
		spec, found, err := unstructured.NestedMap(o.Object, path...)
		expect.Must(t, err)
		if found {
			specs[o.GetKind()+"/"+o.GetName()] = spec
		}
	}
	return specs
}

// environment returns the variables in the pods of Rehome, by the object that makes the pods. Names of Jobs lack their hash.
func (all objects) environment(t *testing.T) map[string]map[string]any {
	t.Helper()
	of := map[string]map[string]any{}
	for owner, spec := range all.pods(t) {
		if strings.HasPrefix(owner, "StatefulSet/") { // the servers of NATS
			continue
		}
		owner = regexp.MustCompile(`-[0-9a-f]{8}$`).ReplaceAllString(owner, "")
		of[owner] = map[string]any{}
		for _, c := range spec["containers"].([]any) {
			variables, _, err := unstructured.NestedSlice(c.(map[string]any), "env")
			expect.Must(t, err)
			for _, v := range variables {
				v := v.(map[string]any)
				of[owner][v["name"].(string)] = v["value"]
			}
		}
	}
	return of
}

// valuesOf returns a variable of the pods that have it.
func (all objects) valuesOf(t *testing.T, variable string) map[string]any {
	t.Helper()
	values := map[string]any{}
	for owner, variables := range all.environment(t) {
		if value, is := variables[variable]; is {
			values[owner] = value
		}
	}
	return values
}

// combinations are the documented ones, by name: the files in the folder ci of the chart.
func combinations(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart, "ci", "*-values.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d combinations, error %v", len(files), err)
	}
	named := map[string]string{}
	for _, file := range files {
		named[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = file
	}
	return named
}

// withInput gives a command something to read.
func withInput(c *exec.Cmd, text string) *exec.Cmd {
	c.Stdin = strings.NewReader(text)
	return c
}
