package schemas_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/validation"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// released returns the contract of the last release.
func released() fs.FS { return os.DirFS("testdata/released") }

// needsV2 ends every message about an incompatible change.
const needsV2 = "this is incompatible with v1: undo it, or add a new type with v2"

func TestReleaseCompatibility(t *testing.T) {
	for _, sentence := range breaks(schemasIn(t, released()), schemasIn(t, schemas.Files)) {
		t.Errorf("%s; %s", sentence, needsV2)
	}
}

func TestExamplesValidAcrossReleases(t *testing.T) {
	for _, schemasOf := range []struct {
		name  string
		files fs.FS
	}{{"the last release", released()}, {"this version", schemas.Files}} {
		v, err := validation.New(schemasOf.files)
		expect.Must(t, err)
		for _, examplesOf := range []struct {
			name  string
			files fs.FS
		}{{"the last release", released()}, {"this version", schemas.Files}} {
			for name, event := range jsonIn(t, examplesOf.files, "v1/examples/*.json") {
				err := v.Validate(event)
				if schemasOf.name != examplesOf.name && isNews(t, event) && errors.Is(err, validation.ErrUnknownType) {
					continue // readers ignore unknown types
				}
				if err != nil {
					t.Errorf("%s of %s is not valid by the schemas of %s: %v; %s", name, examplesOf.name, schemasOf.name, err, needsV2)
				}
			}
		}
	}
}

func TestReleasedEventsStillValid(t *testing.T) {
	v, err := validation.NewClosed(schemas.Files)
	expect.Must(t, err)
	for name, event := range jsonIn(t, released(), "v1/examples/*.json") {
		if err := v.Validate(event); err != nil {
			t.Errorf("%s of the last release is unknown to this version: %v; %s", name, err, needsV2)
		}
	}
}

// isNews reports whether the last release has no schema for the type of an event.
func isNews(t *testing.T, event []byte) bool {
	t.Helper()
	var head struct {
		Type string `json:"type"`
	}
	expect.Must(t, json.Unmarshal(event, &head))
	words := strings.Split(head.Type, ".")
	_, err := fs.Stat(released(), words[3]+"/"+words[2]+".schema.json")
	return errors.Is(err, fs.ErrNotExist)
}

// jsonIn reads the matching files.
func jsonIn(t *testing.T, files fs.FS, pattern string) map[string][]byte {
	t.Helper()
	names, err := fs.Glob(files, pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: got %d files, error %v", pattern, len(names), err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		if all[name], err = fs.ReadFile(files, name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// schemasIn parses the schemas by file name.
func schemasIn(t *testing.T, files fs.FS) map[string]any {
	t.Helper()
	all := map[string]any{}
	for name, document := range jsonIn(t, files, "v1/*.schema.json") {
		var v any
		if err := json.Unmarshal(document, &v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[path.Base(name)] = v
	}
	expanded := map[string]any{}
	for name, schema := range all {
		expanded[name] = expand(t, all, name, schema)
	}
	return expanded
}

// expand puts definitions in the place of references, so a definition can move. The reference to later stays.
func expand(t *testing.T, files map[string]any, file string, schema any) any {
	t.Helper()
	switch s := schema.(type) {
	case []any:
		var list []any
		for _, item := range s {
			list = append(list, expand(t, files, file, item))
		}
		return list
	case map[string]any:
		all := map[string]any{}
		if ref, ok := s["$ref"].(string); ok && strings.HasSuffix(ref, "/later") {
			return map[string]any{"$ref": "later"}
		} else if ok {
			to, pointer, _ := strings.Cut(ref, "#")
			to = cmp.Or(to, file)
			target := files[to]
			for _, step := range strings.Split(pointer, "/")[1:] {
				fields, _ := target.(map[string]any)
				target = fields[step]
			}
			expanded, ok := expand(t, files, to, target).(map[string]any)
			if !ok {
				t.Fatalf("%s: nothing at %s", file, ref)
			}
			maps.Copy(all, expanded)
		}
		for keyword, value := range s {
			if keyword != "$defs" && keyword != "$ref" {
				all[keyword] = expand(t, files, file, value)
			}
		}
		return all
	}
	return schema
}
