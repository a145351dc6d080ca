package validation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Problem is a wrong field of an event, described for the author of the event.
type Problem struct {
	// Field is the JSON pointer of the field, such as /data/outcome. Empty means the whole event.
	Field string `json:"field"`
	// Got is the value as JSON, or nil if there is none.
	Got json.RawMessage `json:"got,omitempty"`
	// Want describes a valid value.
	Want string `json:"want"`
}

// longest is the length of a value on a line.
const longest = 80

// String returns FIELD: got VALUE, want DESCRIPTION. It cuts long values.
func (p Problem) String() string {
	got := string(p.Got)
	if len(got) > longest {
		got = strings.ToValidUTF8(got[:longest], "") + "…"
	}
	return fmt.Sprintf("%s: got %s, want %s", cmp.Or(p.Field, "the event"), cmp.Or(got, "nothing"), p.Want)
}

// Problems has one problem per wrong field, sorted by field. As an error it is never empty.
type Problems []Problem

// Error returns one line per problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

func (p Problems) sorted() Problems {
	slices.SortFunc(p, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	return p
}

// finding is the result of one keyword of a schema for one field.
type finding struct {
	at    []string
	value any
	has   bool
	want  string
	// known are the valid values, if the keyword lists them.
	known []string
	// never means that no value is valid.
	never bool
}

// problemsOf converts the error of a schema. For each field it keeps the finding that describes a valid value best. It returns
// nil for nil.
func problemsOf(err error, event any) error {
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	best := map[string]finding{}
	for _, f := range findings(invalid, event) {
		field := pointer(f.at)
		if other, known := best[field]; !known || f.better(other) {
			best[field] = f
		}
	}
	var all Problems
	for field, f := range best {
		p := Problem{Field: field, Want: f.want}
		if f.has {
			p.Got = asJSON(f.value)
		}
		all = append(all, p)
	}
	return all.sorted()
}

// better reports whether f is more useful than other. A list of values is best, and a shorter one better than a longer one.
func (f finding) better(other finding) bool {
	if len(f.known) > 0 && len(other.known) > 0 {
		return len(f.known) < len(other.known)
	}
	return len(f.known) > 0 || other.never && !f.never
}

// findings returns the keywords that failed.
func findings(e *jsonschema.ValidationError, event any) []finding {
	if required, ok := e.ErrorKind.(*kind.Required); ok {
		var all []finding
		for _, name := range required.Missing {
			at := append(slices.Clone(e.InstanceLocation), name)
			all = append(all, finding{at: at, want: "a value: the field is required"})
		}
		return all
	}
	if len(e.Causes) == 0 {
		f := finding{at: e.InstanceLocation}
		f.value, f.has = valueAt(event, e.InstanceLocation)
		f.want, f.known, f.never = wanted(e.ErrorKind)
		return []finding{f}
	}
	var all []finding
	for _, cause := range e.Causes {
		all = append(all, findings(cause, event)...)
	}
	if _, alternatives := e.ErrorKind.(*kind.AnyOf); alternatives {
		return either(e.InstanceLocation, all)
	}
	return all
}

// either merges the alternatives for a value: every listed value is valid.
func either(at []string, all []finding) []finding {
	var joined []finding
	lists := -1 // index of the list of values in joined
	for _, f := range all {
		switch listed := len(f.known) > 0 && slices.Equal(f.at, at); {
		case listed && lists >= 0:
			known := slices.Concat(joined[lists].known, f.known)
			joined[lists].known, joined[lists].want = known, oneOf(known)
		case listed:
			lists = len(joined)
			joined = append(joined, f)
		case !f.never:
			joined = append(joined, f)
		}
	}
	if len(joined) == 0 {
		return all
	}
	return joined
}

// wanted describes what a failed keyword requires, with its listed values, and whether no value is valid.
func wanted(k jsonschema.ErrorKind) (want string, known []string, never bool) {
	switch k := k.(type) {
	case *kind.FalseSchema:
		return "nothing: there is no such field here", nil, true
	case *kind.Type:
		return withArticles(k.Want), nil, false
	case *kind.Enum:
		for _, value := range k.Want {
			known = append(known, word(value))
		}
		return oneOf(known), known, false
	case *kind.Const:
		return word(k.Want), []string{word(k.Want)}, false
	case *kind.Format:
		return ofFormat(k.Want), nil, false
	case *kind.Pattern:
		return "a string that matches " + k.Want, nil, false
	case *kind.MinLength:
		return "a string that is not empty", nil, false
	case *kind.Minimum:
		return "at least " + k.Want.RatString(), nil, false
	case *kind.MaxLength:
		return "at most " + strconv.Itoa(k.Want) + " characters", nil, false
	case *kind.MaxItems:
		return "at most " + strconv.Itoa(k.Want) + " entries", nil, false
	}
	return "another value, by the keyword " + strings.Join(k.KeywordPath(), "/") + " of the schema", nil, false
}

func oneOf(known []string) string {
	if len(known) == 1 {
		return known[0]
	}
	return "one of " + strings.Join(known, ", ")
}

// withArticles returns JSON types as words.
func withArticles(types []string) string {
	var words []string
	for _, t := range types {
		switch t {
		case "null":
			words = append(words, t)
		case "object", "array", "integer":
			words = append(words, "an "+t)
		default:
			words = append(words, "a "+t)
		}
	}
	return strings.Join(words, " or ")
}

// ofFormat describes a string format.
func ofFormat(format string) string {
	switch format {
	case "date-time":
		return "a time such as 2030-01-02T15:04:05Z"
	case "uri":
		return "a URI such as https://rehome.dev/schemas/v1/delta.schema.json"
	case "uri-reference":
		return "a URI reference such as /clusters/prod/watcher"
	}
	return "a string of the format " + format
}

// word returns a value for a sentence: strings have no quotes.
func word(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	return string(asJSON(value))
}

// valueAt returns the value at a location in a document.
func valueAt(document any, at []string) (any, bool) {
	for _, step := range at {
		switch container := document.(type) {
		case map[string]any:
			value, ok := container[step]
			if !ok {
				return nil, false
			}
			document = value
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(container) {
				return nil, false
			}
			document = container[i]
		default:
			return nil, false
		}
	}
	return document, true
}

// pointer returns a location as a JSON pointer.
func pointer(at []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, step := range at {
		b.WriteString("/" + escape.Replace(step))
	}
	return b.String()
}
