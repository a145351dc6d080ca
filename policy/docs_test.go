package policy

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// paths returns the fields of a struct as the documentation names them: nested with a dot, list elements with [].
// Selectors, durations, and other units are one field.
func paths(typ reflect.Type, at string) []string {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
		return paths(typ.Elem(), at+"[]")
	case typ.Kind() != reflect.Struct || !strings.Contains(typ.PkgPath(), "rehome/policy"):
		return []string{at}
	}
	var all []string
	for f := range typ.Fields() {
		if f.Anonymous {
			all = append(all, paths(f.Type, at)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			all = append(all, paths(f.Type, strings.TrimPrefix(at+"."+name, "."))...)
		}
	}
	return all
}

func TestEveryFieldIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(data), "\n## ")
	elsewhere := regexp.MustCompile(`^(presetCustomizations|signals\.extraEnabled\[\])\.|\.disabled$|\.(pre)?sort\.`)
	for _, c := range []struct {
		section string
		typ     reflect.Type
	}{
		{"The file", reflect.TypeFor[file]()},
		{"DefaultEvictor", reflect.TypeFor[EvictorArgs]()},
	} {
		i := slices.IndexFunc(sections, func(s string) bool { return strings.HasPrefix(s, c.section+"\n") })
		if i < 0 {
			t.Fatalf("docs/policy.md has no section %q", c.section)
		}
		var got, want []string
		for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(sections[i], -1) {
			got = append(got, row[1])
		}
		for _, path := range paths(c.typ, "") {
			if !elsewhere.MatchString(path) {
				want = append(want, path)
			}
		}
		for _, whole := range []string{"presetCustomizations", "signals.extraEnabled"} { // described on separate pages
			if slices.Contains(got, whole) {
				want = append(want, whole)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: docs/policy.md documents\n%q\nwant\n%q", c.section, got, want)
		}
	}
}

// TestPoliciesForFunctionsInDocs also checks the resulting policies.
func TestPoliciesForFunctionsInDocs(t *testing.T) {
	for _, file := range []string{"../docs/policy.md", "../docs/functions.md"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile("(?s)```yaml\n(apiVersion: .*?)```").FindAllStringSubmatch(string(data), -1)
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
