package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mostValues limits the number of values of one file after its aliases are expanded, so that a few lines of nested
// aliases cannot fill the memory. The largest real policies have some hundreds.
const mostValues = 100_000

// Document returns the only map in a file, with aliases and merges resolved and without duplicate keys. It returns nil
// after it has reported why the file has no such map. example is the beginning of a file. Empty documents, such as one
// after a last ---, do not count.
func (d *Decoder) Document(data []byte, example string) *yaml.Node {
	var found *yaml.Node
	for documents := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		err := documents.Decode(&n)
		switch {
		case errors.Is(err, io.EOF) && found == nil:
			d.Report(Place{Line: 1}, "the file is empty", "", example)
			return nil
		case errors.Is(err, io.EOF) && found.Kind != yaml.MappingNode:
			d.Report(Place{Line: found.Line}, "want a map", Describe(found), example)
			return nil
		case errors.Is(err, io.EOF):
			return d.expand(found, Place{Line: found.Line})
		case err != nil:
			d.syntax(data, err)
			return nil
		case len(n.Content) == 0 || IsNull(n.Content[0]):
		case found != nil:
			d.Report(Place{Line: n.Content[0].Line}, "a second document begins", "", "a policy is one document: remove the ---")
			return nil
		default:
			found = n.Content[0]
		}
	}
}

// expand returns n with copies in place of its aliases and merges, or nil if that is not possible.
func (d *Decoder) expand(n *yaml.Node, at Place) *yaml.Node {
	if d.values++; d.values == mostValues+1 {
		d.Report(at, fmt.Sprintf("the file expands to more than %d values", mostValues), "", "use fewer aliases")
	}
	if d.values > mostValues {
		return nil
	}
	to := *n
	switch n.Kind {
	case yaml.ScalarNode:
		if n.ShortTag() == "!!timestamp" {
			to.Tag = "!!str" // as in JSON
		}
	case yaml.AliasNode:
		if slices.Contains(d.aliases, n) {
			d.Report(at, "the alias *"+n.Value+" refers to itself", "", "")
			return nil
		}
		d.aliases = append(d.aliases, n)
		target := d.expand(n.Alias, at)
		d.aliases = d.aliases[:len(d.aliases)-1]
		if target == nil {
			return nil
		}
		to = *target
		to.Line = n.Line
	case yaml.SequenceNode:
		to.Content = nil
		for i, item := range n.Content {
			if item = d.expand(item, at.Item(i, item.Line)); item != nil {
				to.Content = append(to.Content, item)
			}
		}
	case yaml.MappingNode:
		to.Content = d.expandMap(n, at)
	}
	return &to
}

// expandMap returns the keys and values of a map, then the merged ones (<<) that it does not override.
func (d *Decoder) expandMap(n *yaml.Node, at Place) []*yaml.Node {
	var all, merged []*yaml.Node
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, line := *n.Content[i], n.Content[i].Line
		for key.Kind == yaml.AliasNode {
			key = *key.Alias
		}
		key.Line = line
		inside := at.Field(key.Value, line)
		first, twice := lines[key.Value]
		switch {
		case key.ShortTag() == "!!merge":
			if value := d.expand(n.Content[i+1], at); value != nil {
				merged = append(merged, value)
			}
			continue
		case key.Kind != yaml.ScalarNode:
			d.Report(Place{at.Path, line}, "want a name before the colon", Describe(&key), "")
			continue
		case twice:
			d.Report(inside, fmt.Sprintf("is given twice, first in line %d", first), "", "keep one")
			continue
		}
		lines[key.Value] = line
		key.Tag = "!!str"
		if value := d.expand(n.Content[i+1], inside); value != nil {
			all = append(all, &key, value)
		}
	}
	for len(merged) > 0 {
		m := merged[0]
		merged = merged[1:]
		switch m.Kind {
		case yaml.SequenceNode:
			merged = append(slices.Clone(m.Content), merged...)
		case yaml.MappingNode:
			for i := 0; i < len(m.Content); i += 2 {
				if key := m.Content[i]; lines[key.Value] == 0 {
					lines[key.Value] = key.Line
					all = append(all, key, m.Content[i+1])
				}
			}
		default:
			d.Report(at.Field("<<", m.Line), "want a map, or an alias of one", Describe(m), "")
		}
	}
	return all
}

// LineOf returns the line of the field at path below n, which is in line. A missing field has the line of the deepest existing
// part of the path.
func LineOf(n *yaml.Node, path string, line int) int {
	for n != nil && path != "" {
		var key string
		if inner, bracket := strings.CutPrefix(path, "["); bracket {
			key, path, _ = strings.Cut(inner, "]")
		} else if i := strings.IndexAny(path, ".["); i >= 0 {
			key, path = path[:i], path[i:]
		} else {
			key, path = path, ""
		}
		path = strings.TrimPrefix(path, ".")
		var at int
		if n, at = Child(n, key); n != nil {
			line = at
		}
	}
	return line
}

// Child returns the value under a key of a map, with the line of the key, or an item of a list, or nil.
func Child(n *yaml.Node, key string) (*yaml.Node, int) {
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(key); err == nil && 0 <= i && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
		return nil, 0
	}
	for _, e := range Entries(n) {
		if e.Key == key {
			return e.Value, e.Line
		}
	}
	return nil, 0
}

// Entry is one key of a map with its value, and the line of the key.
type Entry struct {
	Key   string
	Line  int
	Value *yaml.Node
}

// Entries returns the entries of a map, or none for anything else.
func Entries(n *yaml.Node) []Entry {
	var all []Entry
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		all = append(all, Entry{n.Content[i].Value, n.Content[i].Line, n.Content[i+1]})
	}
	return all
}

// syntax reports that the file is not YAML, and where.
func (d *Decoder) syntax(data []byte, err error) {
	// The library reports the line where the surrounding block begins, one too low, or none. Therefore find the
	// shortest beginning of the file that gives the same error: it ends in the line.
	text, lines := withoutLine(err), bytes.SplitAfter(data, []byte("\n"))
	n := sort.Search(len(lines)-1, func(i int) bool {
		documents := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:i+1], nil)))
		for {
			if err := documents.Decode(new(yaml.Node)); err != nil {
				return !errors.Is(err, io.EOF) && withoutLine(err) == text
			}
		}
	})
	if n == len(lines)-1 && len(lines[n]) == 0 && n > 0 {
		n-- // the last line that has something
	}
	d.Report(Place{Line: n + 1}, "this is not YAML: "+text, "", "")
}

// withoutLine returns the text of an error of the YAML library without its prefix and line.
func withoutLine(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if _, err := fmt.Sscanf(text, "line %d:", &line); err == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	return text
}
