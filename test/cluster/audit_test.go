package cluster

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestAuditLogPosition(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	line := func(stage, name string) string {
		return `{"stage":"` + stage + `","verb":"create","objectRef":{"resource":"pods","name":"` + name + `"}}` + "\n"
	}
	second := line("ResponseComplete", "second")
	var r auditReader
	written := ""
	for _, step := range []struct {
		adds string
		want []string
	}{
		{"", nil},
		{line("RequestReceived", "first") + line("ResponseComplete", "first") + second[:20], []string{"first"}},
		{"", []string{"first"}},
		{second[20:] + line("ResponseComplete", "third"), []string{"first", "second", "third"}},
	} {
		written += step.adds
		filetest.Write(t, path, written)
		entries, err := r.read(t.Context(), path)
		expect.Must(t, err)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("after %q: %q, want %q", written, got, step.want)
		}
	}
	filetest.Write(t, path, written+"{\n")
	if _, err := r.read(t.Context(), path); err == nil || !strings.HasPrefix(err.Error(), "line 5: ") {
		t.Errorf("error %v, want one about line 5", err)
	}
}
