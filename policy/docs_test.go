package policy

import (
	"regexp"
	"slices"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestPoliciesForFunctionsInDocs also checks the resulting policies.
func TestPoliciesForFunctionsInDocs(t *testing.T) {
	for _, file := range []string{"../docs/policy.md", "../docs/functions.md"} {
		data := filetest.Read(t, file)
		shown := regexp.MustCompile("(?s)```yaml\n(apiVersion: .*?)```").FindAllStringSubmatch(data, -1)
		if len(shown) != 1 {
			t.Fatalf("%s shows %d policies, want 1", file, len(shown))
		}
		p := parse(t, shown[0][1])
		var got []string
		for _, s := range p.Profiles[0].Strategies {
			o, _ := p.OutsideOf(s.Name)
			got = append(got, s.Name, string(s.Scope), string(s.Args), o.URL)
		}
		want := []string{"KeepOffSpot", "node", `{"label":"cloud.example/spot"}`, "http://keep-off-spot.default.svc"}
		if !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", file, got, want)
		}
	}
}
