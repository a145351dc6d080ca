package objects

import (
	"bytes"
	"strings"
)

// document is one YAML document or some JSON: the text between two markers.
type document struct {
	source string
	number int // in its source, from 1; empty ones do not count
	line   int // the first one in its source, from 1
	text   []byte
}

// documents splits a source at its markers. Documents without content are left out.
func documents(s Source) []document {
	text := bytes.TrimPrefix(s.Data, []byte("\ufeff"))
	var all []document
	d := document{source: s.Name, number: 1, line: 1}
	begin, line := 0, 1
	end := func(at int) {
		if d.text = text[begin:at]; !blank(d.text) {
			all = append(all, d)
			d.number++
		}
	}
	for at := 0; at < len(text); {
		next := lineEnd(text, at)
		if l := text[at:next]; isMarker(l) {
			end(at)
			begin = at + len("---")
			if l[0] == '.' { // what follows begins with a marker of its own
				begin = next
			}
			if d.line = line; begin == next {
				d.line++
			}
		}
		at, line = next, line+1
	}
	end(len(text))
	return all
}

// isMarker says whether a line begins or ends a document. What follows on the line belongs to the document.
func isMarker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0
}

// lineEnd is the position after the line that begins at a position.
func lineEnd(text []byte, at int) int {
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(text)
}

// blank says whether there is nothing but spaces and comments.
func blank(text []byte) bool {
	for at := 0; at < len(text); {
		next := lineEnd(text, at)
		if l := bytes.TrimSpace(text[at:next]); len(l) > 0 && l[0] != '#' && !bytes.HasPrefix(l, []byte("%")) {
			return false
		}
		at = next
	}
	return true
}

// item is one entry of a list in block style, with its dash.
type item struct {
	line int
	text []byte
}

// items splits the list that kubectl prints into its entries, so that they can be read one by one and in parallel. rest is
// the document with an empty list in their place. ok is false when the document is not such a list.
func items(d document) (list []item, rest []byte, ok bool) {
	const key = "\nitems:"
	at := bytes.Index(d.text, []byte(key))
	if bytes.HasPrefix(d.text, []byte(key[1:])) {
		at = -1 // as if there were a line end before
	} else if at < 0 {
		return nil, nil, false
	}
	begin := lineEnd(d.text, at+1)
	if l := d.text[at+len(key) : begin]; !blank(l) {
		return nil, nil, false
	}
	indent := -1
	line := d.line + bytes.Count(d.text[:begin], []byte("\n"))
	for begin < len(d.text) {
		next := lineEnd(d.text, begin)
		l := d.text[begin:next]
		switch n := len(l) - len(bytes.TrimLeft(l, " ")); {
		case blank(l):
		case indent < 0 && !isEntry(l, n):
			return nil, nil, false
		case (indent < 0 || n == indent) && isEntry(l, n):
			indent = n
			list = append(list, item{line: line, text: d.text[begin:begin]})
		case n <= indent:
			return list, bytes.Join([][]byte{d.text[:at+len(key)], []byte(" []\n"), d.text[begin:]}, nil), indent >= 0
		}
		if len(list) > 0 {
			last := &list[len(list)-1].text
			*last = (*last)[:len(*last)+next-begin]
		}
		begin, line = next, line+1
	}
	return list, append(bytes.Clone(d.text[:at+len(key)]), " []\n"...), indent >= 0
}

// isEntry says whether a line with n spaces before it is an entry of a list.
func isEntry(line []byte, n int) bool {
	return len(line) > n+1 && line[n] == '-' && strings.IndexByte(" \r\n", line[n+1]) >= 0
}
