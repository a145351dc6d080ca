package strict

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// LineOf finds the line of the field at path below n, which stands in line. If the field is absent it is the line of
// the deepest part of the path that is there.
func LineOf(n *yaml.Node, path string, line int) int {
	for n != nil && path != "" {
		var key string
		key, path = cut(path)
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		var at int
		if n, at = Child(n, key); n != nil {
			line = at
		}
	}
	return line
}

// cut takes the first step off a path: a name up to the next dot or bracket, or what stands between brackets.
func cut(path string) (step, rest string) {
	if inner, isBracket := strings.CutPrefix(path, "["); isBracket {
		step, rest, _ = strings.Cut(inner, "]")
	} else if i := strings.IndexAny(path, ".["); i >= 0 {
		step, rest = path[:i], path[i:]
	} else {
		return path, ""
	}
	return step, strings.TrimPrefix(rest, ".")
}

// Child returns the value under a key of a map, with the line of the key, or an item of a list. nil: there is none.
func Child(n *yaml.Node, key string) (*yaml.Node, int) {
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(key); err == nil && 0 <= i && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
		return nil, 0
	}
	for _, e := range (&Decoder{}).Entries(n, Place{}) {
		if e.Key == key {
			return e.Value, e.Line
		}
	}
	return nil, 0
}
