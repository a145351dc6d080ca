package objects

import (
	"bytes"
	"encoding/json"
)

// document is one YAML document, or consecutive JSON values.
type document struct {
	source string
	number int // in its source, from 1, without empty documents
	line   int // its first line, from 1
	text   []byte
}

func split(s Source) []document {
	var all []document
	text := bytes.TrimPrefix(s.Data, []byte("\ufeff"))
	begin, first := 0, 1 // offset and line of the document
	end := func(at int) {
		if d := (document{s.Name, len(all) + 1, first, text[begin:at]}); !blank(d.text) {
			all = append(all, d)
		}
	}
	at, number := 0, 0
	for line := range bytes.Lines(text) {
		number++
		next := at + len(line)
		switch marker, rest, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(" ")); {
		case string(marker) == "---" && !blank(rest): // the document begins after the marker
			end(at)
			begin, first = at+len("---"), number
		case string(marker) == "---", string(marker) == "...":
			end(at)
			begin, first = next, number+1
		}
		at = next
	}
	end(at)
	return all
}

// blank reports whether the text has only spaces, comments, and directives.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// entries splits a YAML list of kubectl, so that a large document is never in memory as a whole. head is the kind of entries
// without a kind. It returns no entries for any other document.
func (d document) entries() (entries []document, head header) {
	before, _, ok := bytes.Cut(d.text, []byte("items:\n- "))
	if !ok || len(before) > 0 && before[len(before)-1] != '\n' {
		return nil, head
	}
	list := d.text[len(before)+len("items:\n"):]
	line := d.line + bytes.Count(before, []byte("\n")) + 1
	size := 0
	for text := range bytes.Lines(list) {
		if text[0] == '-' && bytes.HasPrefix(text, []byte("- ")) {
			entries = append(entries, document{source: d.source, number: d.number, line: line})
		} else if text[0] != ' ' && text[0] != '\n' {
			break
		}
		last := &entries[len(entries)-1]
		last.text = list[size-len(last.text) : size+len(text)]
		size, line = size+len(text), line+1
	}
	rest, err := yamlToJSON(append(append(bytes.Clone(before), "items: []\n"...), list[size:]...))
	if err != nil || json.Unmarshal(rest, &head) != nil || !head.isList() {
		return nil, head
	}
	for i := range entries {
		entries[i].text = bytes.Clone(entries[i].text)
		entries[i].text[0] = ' ' // removes the dash
	}
	return entries, head.entry()
}
