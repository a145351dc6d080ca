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
	"github.com/rehome-dev/rehome/test/schematest"
)

func TestVerdictsPageExplainsEveryReasonCode(t *testing.T) {
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

// sections splits docs/events.md at its headings, by the text of each; the first has none.
func sections(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for section := range strings.SplitSeq("\n"+string(page), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		all[title] = text
	}
	return all
}

// listed are the code words that a list or a table of a section begins its entries with.
func listed(section, mark string) []string {
	var words []string
	for _, m := range regexp.MustCompile("(?m)^"+regexp.QuoteMeta(mark)+" `([^`]+)`").FindAllStringSubmatch(section, -1) {
		words = append(words, m[1])
	}
	return words
}

func TestEventsPageListsTypesAndSubjects(t *testing.T) {
	got, want := map[string][]string{}, map[string][]string{}
	for title, text := range sections(t) {
		if subjects := listed(text, "-"); len(subjects) > 0 {
			got[title] = subjects
		}
	}
	for _, typ := range eventTypes(t) {
		want[typ] = schemas.Subjects(typ)
	}
	dead := parameter.ReplaceAllStringFunc(asyncAPI(t).get("channels").get(deadLetters).get("address").text(), strings.ToUpper)
	want["Dead letters"] = []string{strings.NewReplacer("{", "", "}", "").Replace(dead)}
	same(t, "subjects", got, want)
}

func TestEventsPageHasACommandForEveryType(t *testing.T) {
	all := sections(t)
	for _, typ := range eventTypes(t) {
		noun := strings.Split(typ, ".")[2]
		for _, command := range []string{"    rehome events --type " + noun + " --follow\n", "    nats sub 'rehome." + noun + ".>'\n"} {
			if !strings.Contains(all[typ], command) {
				t.Errorf("%s: the page does not say %q", typ, command)
			}
		}
	}
}

func TestEventsPageListsExtensionsAndHeaders(t *testing.T) {
	core := []string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data"}
	extensions := slices.DeleteFunc(schemaOf(t, "event").get("properties").names(), func(attribute string) bool {
		return slices.Contains(core, attribute)
	})
	headers := asyncAPI(t).get("components").get("messages").get("deadLetter").get("headers").get("properties").names()
	sameSet(t, "extensions", listed(sections(t)["How an event travels"], "|"), extensions)
	sameSet(t, "headers of dead letters", listed(sections(t)["Dead letters"], "|"), headers)
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
				var whole any
				if err := json.Unmarshal(e.Document, &whole); err != nil {
					t.Fatal(err)
				}
				if e.Event.Type == title && partOf(part, whole) {
					from = e.Name
				}
			}
			got = append(got, title+": "+from)
		}
	}
	sameSet(t, "examples", got, []string{
		"dev.rehome.delta.v1: delta", "dev.rehome.scope.v1: scope", "dev.rehome.intents.v1: intents",
		"dev.rehome.verdict.v1: verdict-deferred", "dev.rehome.request.v1: request", "dev.rehome.receipt.v1: receipt",
		"dev.rehome.maintenance.v1: maintenance",
	})
}

func TestAskingPageExample(t *testing.T) {
	text, err := os.ReadFile("../docs/requests.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`(?m)^    \{"sender": "spot"(?:.*\n    )*.*\}$`).Find(text)
	e, _ := example[schemas.Request](t, "request-maintain")
	if got, want := canonical(t, block), canonical(t, e.Data); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
