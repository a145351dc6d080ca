package schemas_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestEveryReasonCodeIsExplainedToPeopleUnderItsOutcome(t *testing.T) {
	page, err := os.ReadFile("../docs/verdicts.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(string(page), -1) {
		got = append(got, row[2]+" "+row[1])
	}
	verdict := schemaOf(t, "verdict")
	for _, outcome := range valuesOf(t, "Outcome") {
		for _, reason := range reasonsFor(t, verdict, outcome) {
			want = append(want, outcome+" "+reason)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("docs/verdicts.md explains\n%q\nwant\n%q", got, want)
	}
}
