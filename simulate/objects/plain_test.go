package objects

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// plainTexts are documents of the kind that kubectl prints, all of which the plain reader reads itself.
func plainTexts() map[string]string {
	return map[string]string{
		"a mapping":                        "a: b\nc: d\n",
		"a key without a value":            "a:\nb: x\n",
		"a key without a value at the end": "a:\n  b:\n",
		"nested mappings":                  "a:\n  b:\n    c: d\n  e: f\ng: h\n",
		"a sequence at the key's column":   "a:\n- b\n- c\nd: e\n",
		"a sequence that is indented":      "a:\n  - b\n  - c\nd: e\n",
		"a sequence of mappings":           "a:\n- b: c\n  d: e\n- b: f\n  g:\n  - h\n  - i: j\nk: l\n",
		"entries without a value":          "a:\n-\n- b\n-\n",
		"entries on their own lines":       "a:\n-\n  b: c\n- \n  d: e\n",
		"comments and empty lines":         "# one\na: b\n\n  # two\nc:\n# three\n  d: e\n",
		"numbers":                          "a: 1\nb: -1\nc: 0\nd: 1.5\ne: 1e3\nf: 0x1F\ng: 007\nh: 1_000\ni: +1\nj: 9223372036854775808\n",
		"what is nearly a number":          "a: 100m\nb: 1Gi\nc: 10.0.0.1\nd: 0c1e7e0e-0000\ne: 1.2.3\nf: 12e\ng: 1e\nh: v1\ni: 08\nk: 0b12\n",
		"words with a meaning":             "a: true\nb: false\nc: null\nd: ~\ne: Null\nf: TRUE\ng: yes\nh: no\ni: on\nj: n\nk: nullx\n",
		"times":                            "a: 2030-01-01T00:00:00Z\nb: 2030-01-01\nc: \"2030-01-01T00:00:00Z\"\nd: 10:30\n",
		"infinity is text when quoted":     "a: \".inf\"\nb: '.nan'\n",
		"quoted text":                      "a: \"b: c # d\"\ne: 'f: g # h'\ni: 'it''s'\nj: \"q\\\"u\\\\o\\nt\\te\"\nk: \"\"\nl: ''\n",
		"quoted keys":                      "\"a\": b\n'c.d/e': f\n\"\": g\n",
		"text with colons and dashes":      "a: b:c\nd: --flag=x:y\ne: http://f\ng: -h\ni: a - b\nj: b#c\n",
		"arguments":                        "a:\n- --flag\n- -x\n- b:c\n- \"d: e\"\n- 'f'\n",
		"empty collections":                "a: {}\nb: []\nc:\n- {}\n- []\n",
		"a literal block":                  "a: |\n  one\n    two\n\n  three: x # y\nb: c\n",
		"a literal block without an end":   "a: |-\n  one\n  two\n\nb: c\n",
		"a literal block in a sequence":    "a:\n- |\n  one\n- b: |\n    two\n  c: d\n",
		"managed fields are left out":      "metadata:\n  managedFields:\n  - a: b\n    c:\n      d: {}\n  name: e\n",
		"managed fields as they are": "managedFields:\n- fieldsV1:\n    f:metadata:\n      f:labels:\n        .: {}\n        f:app: {}\n" +
			"    f:spec:\n      f:containers:\n        k:{\"name\":\"none\"}:\n          .: {}\n  time: \"2030-01-01T00:00:00Z\"\nkind: x\n",
		"the last applied text is left out": "annotations:\n  kubectl.kubernetes.io/last-applied-configuration: |\n    {\"a\": \"b\"}\n  c: d\n",
		"a sequence alone":                  "- a: b\n  c: d\n- e\n",
		"no line end at the end":            "a: b",
	}
}

// otherTexts are documents that the plain reader leaves to the library, and those that nobody can read.
func otherTexts() map[string]string {
	return map[string]string{
		"flow mapping":                  "a: {b: c}\n",
		"flow sequence":                 "a: [b, c]\n",
		"folded block":                  "a: >\n  b\n  c\n",
		"literal that keeps":            "a: |+\n  b\n\n",
		"literal with an indicator":     "a: |2\n   b\n",
		"literal without a line end":    "a: |\n  b",
		"literal with leading emptines": "a: |\n\n  b\n",
		"literal with a wide empty one": "a: |\n  b\n      \n  c\n",
		"text over two lines":           "a: b\n  c\nd: e\n",
		"quoted text over two lines":    "a: \"b\n  c\"\n",
		"anchor and alias":              "a: &x b\nc: *x\n",
		"tag":                           "a: !!str 1\n",
		"comment after a value":         "a: b # c\n",
		"comment after a quoted value":  "a: \"b\" # c\n",
		"entry in an entry":             "a:\n- - b\n  - c\n",
		"complex key":                   "? a\n: b\n",
		"key that is a number":          "1: a\n",
		"letters beyond ASCII":          "a: ü\n",
		"escape of JSON alone":          "a: \"\\/\"\n",
		"escape of YAML alone":          "a: \"\\x41\"\n",
		"unicode escape":                "a: \"\\u00e4\"\n",
		"tab":                           "a:\tb\n",
		"carriage returns":              "a: b\r\nc: d\r\n",
		"infinity":                      "a: .inf\n",
		"two mappings":                  "a: b\n c: d\n",
		"mapping within text":           "a: b: c\n",
		"less indented":                 "  a: b\nc: d\n",
		"merge":                         "a: &x {b: c}\nd:\n  <<: *x\n",
		"unclosed":                      "a: \"b\n",
		"lone word":                     "word\n",
		"nothing":                       "\n",
	}
}

func decoded(t testing.TB, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestThePlainReaderReadsWhatKubectlWritesAsTheLibraryDoes(t *testing.T) {
	for name, text := range plainTexts() {
		t.Run(name, func(t *testing.T) {
			got, ok := convertPlain(nil, []byte(text))
			want, err := convertAny([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if !ok || !reflect.DeepEqual(decoded(t, got), decoded(t, want)) {
				t.Errorf("got  %s, read: %v\nwant %s", got, ok, want)
			}
		})
	}
}

func TestThePlainReaderLeavesEverythingElseToTheLibrary(t *testing.T) {
	for name, text := range otherTexts() {
		t.Run(name, func(t *testing.T) {
			if got, ok := convertPlain(nil, []byte(text)); ok {
				t.Errorf("read as %s, want left to the library", got)
			}
		})
	}
}

// FuzzTwoReaders holds the plain reader against the YAML library: what it reads, the library reads too, as the same.
func FuzzTwoReaders(f *testing.F) {
	for _, texts := range []map[string]string{plainTexts(), otherTexts()} {
		for _, text := range texts {
			f.Add(text)
			f.Add(strings.ReplaceAll(text, "\n", "\n  "))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, d := range documents(Source{Data: []byte(text)}) {
			got, ok := convertPlain(nil, d.text)
			if !ok {
				continue
			}
			want, err := convertAny(d.text)
			if err != nil {
				t.Fatalf("%q is read as %s, the library says %v", d.text, got, err)
			}
			if !reflect.DeepEqual(decoded(t, got), decoded(t, want)) {
				t.Errorf("%q\ngot  %s\nwant %s", d.text, got, want)
			}
		}
	})
}
