package kinds

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// groups are the API groups that Check must know.
var groups = []string{"monitoring.coreos.com/"}

// TestStrictDecoding renders each overlay, and the distributed overlay with each component that has objects of other
// projects, like kubectl.
func TestStrictDecoding(t *testing.T) {
	copied := t.TempDir()
	if err := os.CopyFS(filepath.Join(copied, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, folder := range folders(t, copied) {
		text := render(t, folder)
		found, err := Check(text)
		if err != nil {
			t.Errorf("%s: %v", folder, err)
		}
		for kind, n := range found {
			seen[kind] += n
		}
	}
	for _, kind := range foreign(t, filepath.Join(root, "deploy/kustomize")) {
		if seen[kind] == 0 {
			t.Errorf("no rendering has a %s, which a file in deploy/kustomize names", kind)
		}
	}
}

// folders returns the overlays, and kustomizations that are made here for the components.
func folders(t *testing.T, copied string) []string {
	t.Helper()
	all := glob(t, filepath.Join(copied, "deploy/kustomize/overlays/*"))
	for _, component := range glob(t, filepath.Join(copied, "deploy/kustomize/components/*")) {
		if len(foreign(t, component)) == 0 {
			continue
		}
		mine := filepath.Join(copied, "mine-"+filepath.Base(component))
		if err := os.Mkdir(mine, 0o700); err != nil {
			t.Fatal(err)
		}
		text := "resources: [../deploy/kustomize/overlays/distributed]\ncomponents: [../deploy/kustomize/components/" + filepath.Base(component) + "]\n"
		if err := os.WriteFile(filepath.Join(mine, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, mine)
	}
	return all
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: got %d, error %v", pattern, len(found), err)
	}
	return found
}

// foreign returns the kinds of others that the files below a folder name.
func foreign(t *testing.T, folder string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		version := ""
		for line := range strings.Lines(string(text)) {
			if v, is := strings.CutPrefix(strings.TrimSpace(line), "apiVersion: "); is {
				version = v
			}
			kind, is := strings.CutPrefix(line, "kind: ")
			if kind = version + " " + strings.TrimSpace(kind); is && slices.ContainsFunc(groups, func(g string) bool { return strings.HasPrefix(version, g) }) && !slices.Contains(found, kind) {
				found = append(found, kind)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func render(t *testing.T, folder string) []byte {
	t.Helper()
	var complaint bytes.Buffer
	c := exec.CommandContext(t.Context(), filepath.Join(root, ".build/controlplane/kubectl"), "kustomize", folder)
	c.Stderr = &complaint
	text, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", folder, err, &complaint)
	}
	return text
}

func TestUnknownField(t *testing.T) {
	found, err := Check([]byte(`
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: good}
spec: {selector: {}, endpoints: [{port: http}]}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: bad}
spec: {selector: {}, endpoint: [{port: http}]}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: worse}
spec: {groups: [{name: rehome, rule: []}]}
---
apiVersion: v1
kind: Service
spec: {any: thing}
`))
	want := "ServiceMonitor bad: json: unknown field \"endpoint\"\nPrometheusRule worse: json: unknown field \"rule\""
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if want := map[string]int{"monitoring.coreos.com/v1 ServiceMonitor": 2, "monitoring.coreos.com/v1 PrometheusRule": 1}; !reflect.DeepEqual(found, want) {
		t.Errorf("got %v, want %v", found, want)
	}
}
