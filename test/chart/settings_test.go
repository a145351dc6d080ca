package chart

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
)

// templates are all templates of the chart, one after the other.
func templates(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"*", "tests/*"} {
		files, err := filepath.Glob(filepath.Join(chart, "templates", pattern))
		expect.Must(t, err)
		for _, file := range files {
			if filepath.Ext(file) != "" {
				all.WriteString(filetest.Read(t, root, strings.TrimPrefix(file, root+"/")))
			}
		}
	}
	return all.String()
}

// TestChartSettings looks at the templates, and at every manifest that they make.
func TestChartSettings(t *testing.T) {
	known := programtest.Settings(t)
	used := regexp.MustCompile(`REHOME_[A-Z0-9_]+`).FindAllString(templates(t), -1)
	for name, file := range combinations(t) {
		for _, variables := range rendered(t, name, "--values", file).environment(t) {
			used = slices.AppendSeq(used, maps.Keys(variables))
		}
	}
	slices.Sort(used)
	for _, name := range slices.Compact(used) {
		switch {
		case strings.HasPrefix(name, "OTEL_"), name == "REHOME_SCOPES", name == "GOMEMLIMIT": // a stream, and what Go itself reads
		case !slices.Contains(known, name):
			t.Errorf("%s: no such setting", name)
		}
	}
}

// TestChartInterval looks for the processes that get the interval of full evaluations: one evaluates, and the other sets
// how long scopes wait.
func TestChartInterval(t *testing.T) {
	got := rendered(t, "rehome", "--set", "mode=distributed,nats.enabled=true,deschedulingInterval=6h").valuesOf(t, "REHOME_RESYNC")
	if want := map[string]any{"Deployment/rehome-watcher": "6h", "Job/rehome-setup": "6h"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
