package schemas_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// sections splits docs/events.md at its headings, by the text of each; the first has none.
func sections(t *testing.T) map[string]string {
	t.Helper()
	page := filetest.Read(t, "../docs/events.md")
	all := map[string]string{}
	for section := range strings.SplitSeq("\n"+page, "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		all[title] = text
	}
	return all
}

// partOf says whether part is whole with fields, or entries of lists, left out.
func partOf(part, whole any) bool {
	switch p := part.(type) {
	case map[string]any:
		w, ok := whole.(map[string]any)
		for name, value := range p {
			ok = ok && partOf(value, w[name])
		}
		return ok
	case []any:
		w, ok := whole.([]any)
		for _, value := range p {
			i := slices.IndexFunc(w, func(other any) bool { return partOf(value, other) })
			if i < 0 {
				return false
			}
			w = w[i+1:]
		}
		return ok
	}
	return reflect.DeepEqual(part, whole)
}

func TestEventsPageExamples(t *testing.T) {
	block := regexp.MustCompile(`(?m)^    \{(?:.*\n    )*.*$`)
	var got []string
	for title, text := range sections(t) {
		for _, document := range block.FindAllString(text, -1) {
			var part any
			if err := json.Unmarshal([]byte(document), &part); err != nil {
				t.Errorf("%s: %v in %s", title, err, document)
				continue
			}
			from := ""
			for _, e := range schematest.Examples(t) {
				whole := expect.FromJSON[any](t, e.Document)
				if e.Event.Type == title && partOf(part, whole) {
					from = e.Name
				}
			}
			got = append(got, title+": "+from)
		}
	}
	slices.Sort(got)
	want := []string{
		"dev.rehome.delta.v1: delta", "dev.rehome.scope.v1: scope", "dev.rehome.intents.v1: intents",
		"dev.rehome.verdict.v1: verdict-deferred", "dev.rehome.request.v1: request", "dev.rehome.receipt.v1: receipt",
		"dev.rehome.maintenance.v1: maintenance",
	}
	slices.Sort(want)
	expect.Equal(t, "examples", got, want)
}

func TestAskingPageExample(t *testing.T) {
	text, err := os.ReadFile("../docs/requests.md")
	expect.Must(t, err)
	block := regexp.MustCompile(`(?m)^    \{"sender": "spot"(?:.*\n    )*.*\}$`).Find(text)
	e, _ := example[schemas.Request](t, "request-maintain")
	expect.Equal(t, "example", canonical(t, block), canonical(t, e.Data))
}
