package rbac

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestRightsOnSecurityPage compares what each account reads and changes, with all features, with the table in docs/security.md. The
// account of `rehome run` has the rights of the watcher, the actuator, and maintenance together.
func TestRightsOnSecurityPage(t *testing.T) {
	set, err := binaries.Build(t.Context(), binaries.Options{})
	expect.Must(t, err)
	var all bytes.Buffer
	for _, f := range append(everything(), "api", "all") {
		text, err := exec.CommandContext(t.Context(), set.Path(binaries.Kubectl), "kustomize", filepath.Join(folder, f)).Output()
		expect.Must(t, err)
		all.WriteString("---\n" + string(text))
	}
	m, err := read(all.Bytes())
	expect.Must(t, err)
	got := map[string][]string{}
	for _, a := range m.accounts {
		for _, r := range m.of(a.Name) {
			does := "changes "
			if slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
				does = "reads "
			}
			if r.Group == "metrics.k8s.io" { // its resources have the names of others
				r.Resource += "." + r.Group
			}
			got[a.Name] = append(got[a.Name], does+r.Resource)
		}
	}
	want := map[string][]string{}
	row, resource := regexp.MustCompile("(?m)^\\| `(rehome-[a-z]+)` \\|([^|]*)\\|([^|]*)\\|"), regexp.MustCompile("`([^`]+)`")
	for _, cells := range row.FindAllStringSubmatch(filetest.Read(t, "../../../docs/security.md"), -1) {
		for i, does := range []string{"reads ", "changes "} {
			for _, name := range resource.FindAllStringSubmatch(cells[2+i], -1) {
				want[cells[1]] = append(want[cells[1]], does+name[1])
			}
		}
	}
	want["rehome"] = slices.Concat(want["rehome-watcher"], want["rehome-actuator"], want["rehome-maintenance"])
	for _, rights := range []map[string][]string{got, want} {
		for account, list := range rights {
			slices.Sort(list)
			rights[account] = slices.Compact(list)
		}
	}
	expect.Equal(t, "the rights in the manifests, and in the table of docs/security.md", got, want)
}
