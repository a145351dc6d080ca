package strict_test

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/policy/strict"
)

// Each problem must name an error, and an existing line of the file. A file without problems must keep its values when
// it is written and read.
func FuzzDocument(f *testing.F) {
	type part struct {
		Name  string             `json:"name" required:"x"`
		Share intstr.IntOrString `json:"share,omitzero"`
	}
	type file struct {
		Text  string            `json:"text,omitzero" enum:"a,b"`
		On    bool              `json:"on,omitzero"`
		Count int32             `json:"count,omitzero" min:"1" max:"9"`
		Rate  float64           `json:"rate,omitzero" above:"0"`
		Wait  time.Duration     `json:"wait,omitzero" min:"1s"`
		Part  strict.Percent    `json:"part,omitzero"`
		List  []string          `json:"list,omitzero"`
		Map   map[string]string `json:"map,omitzero"`
		Parts []part            `json:"parts,omitzero"`
		One   *part             `json:"one,omitzero"`
	}
	for _, text := range []string{
		"", "{}", "---\n---\na: 1", "text: a\non: yes\ncount: 3\nrate: .inf\nwait: 90s\npart: 5%\nlist: [a, 1, 'no']\nmap: {a: b}\nparts: [{name: x, share: 7%}]\none: {}",
		"a: &a {b: *a}\nc: *a", "map: &m {a: b}\none: {<<: *m, name: x}", "{\"text\":\"a\",\"text\":\"b\"}", "text: |\n  a\n  b", "? [a]\n: b",
		"count: 0x7\nrate: 1_0\nwait: 1", "text: !!binary aGk=\nmap: {1: 2, ~: null}", "\xff", "a: [", "\ta: b", "list: \"\\u2028\\x00\"", "%YAML 1.1\n---\ntext: a", "\xfe\xff \x28\xd7\xd8",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d, again strict.Decoder
		var first, second file
		n := d.Document(data, "begin")
		if n != nil {
			d.Decode(n, reflect.ValueOf(&first).Elem(), strict.Place{})
		}
		lines := strings.Count(strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").Replace(string(data)), "\n") + 1
		problems := append(d.Unreadable, d.Invalid...)
		for _, p := range problems {
			if p.Wrong == "" || p.Line < 0 || p.Line > lines && utf8.Valid(data) { // YAML may be UTF-16
				t.Errorf("a problem of %d lines is %+v", lines, p)
			}
		}
		if len(problems) > 0 || n == nil {
			if len(problems) == 0 {
				t.Error("no document, and no problem")
			}
			return
		}
		encoded, err := strict.Encode(first, file{})
		if err != nil {
			t.Fatalf("read %+v, which cannot be encoded: %v", first, err)
		}
		text, err := strict.ToYAML(encoded)
		if err != nil {
			t.Fatalf("read %+v, which cannot be written: %v", first, err)
		}
		if n = again.Document(text, "begin"); n == nil {
			t.Fatalf("written as %q, which has no document: %v", text, again.Unreadable)
		}
		again.Decode(n, reflect.ValueOf(&second).Elem(), strict.Place{})
		if problems := append(again.Unreadable, again.Invalid...); len(problems) > 0 || !reflect.DeepEqual(empty(first), empty(second)) {
			t.Errorf("%q was read as %+v, written as %q, and read as %+v, %v", data, first, text, second, problems)
		}
	})
}

// empty removes a difference that a file does not keep: empty lists and maps, and missing ones.
func empty[F any](file F) F {
	for _, f := range reflect.ValueOf(&file).Elem().Fields() {
		if (f.Kind() == reflect.Slice || f.Kind() == reflect.Map) && f.Len() == 0 {
			f.SetZero()
		}
	}
	return file
}
