package schemas_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// asyncAPI is the part of the AsyncAPI document that the tests read.
type asyncAPI struct {
	Channels map[string]struct {
		Address    string
		Parameters map[string]struct{ Enum []string }
		Messages   map[string]any
	}
}

func readAsyncAPI(t *testing.T) (document any, channels asyncAPI) {
	t.Helper()
	text, err := schemas.Files.ReadFile("asyncapi.yaml")
	expect.Must(t, err)
	expect.Must(t, yaml.Unmarshal(text, &document))
	expect.Must(t, yaml.Unmarshal(text, &channels))
	return document, channels
}

func TestAsyncAPIReferences(t *testing.T) {
	document, _ := readAsyncAPI(t)
	found := 0
	var check func(value any)
	check = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, item := range v {
				check(item)
			}
		case map[string]any:
			ref, _ := v["$ref"].(string)
			if name, isFile := strings.CutPrefix(ref, "./"); isFile {
				if _, err := schemas.Files.Open(name); err != nil {
					t.Error(err)
				}
			} else if ref != "" {
				target := document
				for _, step := range strings.Split(ref, "/")[1:] {
					fields, _ := target.(map[string]any)
					target = fields[step]
				}
				if found++; target == nil {
					t.Errorf("%s does not exist", ref)
				}
			}
			for _, field := range v {
				check(field)
			}
		}
	}
	check(document)
	if found < 100 {
		t.Errorf("found %d references", found)
	}
}

// TestAsyncAPIChannels finds one channel for each example, with its type only.
func TestAsyncAPIChannels(t *testing.T) {
	_, document := readAsyncAPI(t)
	for _, e := range exampleEvents(t) {
		var carrying []string
		for _, c := range document.Channels {
			pattern := regexp.QuoteMeta(c.Address)
			for name, p := range c.Parameters {
				token := strings.Trim(legalToken.String(), "^$")
				if len(p.Enum) > 0 {
					token = strings.Join(p.Enum, "|")
				}
				pattern = strings.Replace(pattern, regexp.QuoteMeta("{"+name+"}"), "("+token+")", 1)
			}
			if !strings.HasPrefix(c.Address, "{") && regexp.MustCompile("^"+pattern+"$").MatchString(e.Channel) {
				for noun := range c.Messages {
					carrying = append(carrying, noun)
				}
			}
		}
		if want := []string{schemas.NounOf(e.Type)}; !slices.Equal(carrying, want) {
			t.Errorf("%s: the channels carry %q, want %q", e.Channel, carrying, want)
		}
	}
}
