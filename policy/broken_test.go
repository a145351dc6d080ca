package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// expectation is one of the first lines of a broken file: # want: LINE FIELD: words.
var expectation = regexp.MustCompile(`^# want: (\d+) ([^ ]*): (.+)$`)

// TestProblemPositions reads testdata/broken. Each file begins with a line for each of its problems,
// with the line, the field, and words of the message.
func TestProblemPositions(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("got %d files, %v, want at least 40", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			expect.Must(t, err)
			var want, words []string
			for line := range strings.Lines(string(data)) {
				m := expectation.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
				if m == nil {
					break
				}
				want, words = append(want, m[1]+" "+m[2]), append(words, m[3])
			}
			_, err = Parse(file, data, ten())
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want Problems", err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, strconv.Itoa(p.Line)+" "+p.Field)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got\n%s\nwant\n%s\nthe problems:\n%v", strings.Join(got, "\n"), strings.Join(want, "\n"), err)
			}
			for i, p := range problems {
				if !strings.Contains(p.Text(), words[i]) {
					t.Errorf("got %s, want the words %q", p, words[i])
				}
			}
		})
	}
}

// TestPresetConflicts tests all pairs.
func TestPresetConflicts(t *testing.T) {
	conflicting := map[string][]string{
		"CompactAndScale":           {"LifecycleAndUtilization", "LongLifecycle", "KubeVirtRelieveAndMigrate", "TopologyAndDuplicates"},
		"LifecycleAndUtilization":   {"CompactAndScale", "LongLifecycle", "KubeVirtRelieveAndMigrate"},
		"LongLifecycle":             {"CompactAndScale", "LifecycleAndUtilization", "KubeVirtRelieveAndMigrate"},
		"KubeVirtRelieveAndMigrate": {"CompactAndScale", "LifecycleAndUtilization", "LongLifecycle"},
		"TopologyAndDuplicates":     {"CompactAndScale", "SoftTopologyAndDuplicates"},
		"SoftTopologyAndDuplicates": {"TopologyAndDuplicates"},
	}
	for _, a := range newOpenShift().Presets {
		for _, b := range newOpenShift().Presets {
			if a.Name == b.Name || a.Profile+b.Profile == "" {
				continue
			}
			_, err := Parse("p", []byte(start+prometheus+fmt.Sprintf("presets: [%s, %s]", a.Name, b.Name)), ten())
			var got, want []string
			if problems, ok := errors.AsType[Problems](err); ok {
				for _, p := range problems {
					wrong, _, _ := strings.Cut(p.Wrong, ":")
					got = append(got, p.Field+" "+wrong)
				}
			}
			if slices.Contains(conflicting[a.Name], b.Name) {
				want = []string{"presets[1] cannot be used together with " + a.Name}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: got %q, want %q", a.Name, b.Name, got, want)
			}
		}
	}
}
