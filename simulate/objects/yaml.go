package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// convert is one YAML document as JSON. The error tells the line in the text, if it is known.
func convert(text []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, readable(err)
	}
	if len(root.Content) == 0 {
		return []byte("null"), nil
	}
	// A document that repeats its parts by aliases could be larger than any memory.
	w := &writer{most: 1<<20 + 100*len(text)}
	if err := w.value(root.Content[0]); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// unwanted are the keys whose values are left out, because they are large and say nothing about the object.
func unwanted(key string) bool {
	return key == "managedFields" || key == "kubectl.kubernetes.io/last-applied-configuration"
}

// lineError is an error at a line.
type lineError struct {
	line int // from 1; 0: not known
	text string
}

func (e *lineError) Error() string { return e.text }

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// readable takes the line out of the library's message.
func readable(err error) error {
	match := yamlLine.FindStringSubmatch(err.Error())
	if match == nil {
		return err
	}
	e := &lineError{text: err.Error()[len(match[0]):]}
	if line, err := strconv.Atoi(match[1]); err == nil {
		e.line = line
	}
	return e
}

// writer writes YAML as JSON.
type writer struct {
	out  bytes.Buffer
	most int // bytes
}

func (w *writer) value(n *yaml.Node) error {
	if w.out.Len() > w.most {
		return &lineError{n.Line, "its aliases make it too large"}
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias)
	case yaml.MappingNode:
		return w.mapping(n)
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, entry := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(entry); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
		return nil
	}
	value, err := scalarJSON(n)
	w.out.Write(value)
	return err
}

func (w *writer) mapping(n *yaml.Node) error {
	w.out.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		if i > 0 {
			w.out.WriteByte(',')
		}
		key := n.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			return &lineError{key.Line, "a key of this kind is not read; write each key as a plain text"}
		}
		name, err := json.Marshal(key.Value)
		if err != nil {
			return &lineError{key.Line, err.Error()}
		}
		w.out.Write(name)
		w.out.WriteByte(':')
		if unwanted(key.Value) {
			w.out.WriteString("null")
		} else {
			err = w.value(n.Content[i+1])
		}
		if err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

// scalarJSON is a scalar as JSON, by the type that it has in YAML. Times are text.
func scalarJSON(n *yaml.Node) ([]byte, error) {
	var value any = n.Value
	var err error
	switch n.ShortTag() {
	case "!!null":
		value = nil
	case "!!bool":
		var b bool
		err, value = n.Decode(&b), &b
	case "!!int":
		if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil && json.Valid([]byte(n.Value)) {
			return []byte(n.Value), nil
		}
		err = n.Decode(&value)
	case "!!float":
		var f float64
		if err = n.Decode(&f); err == nil && (math.IsInf(f, 0) || math.IsNaN(f)) {
			err = errors.New("is not a number that JSON has")
		}
		value = f
	case "!!binary":
		err = errors.New("is binary")
	}
	if err != nil {
		return nil, &lineError{n.Line, fmt.Sprintf("%q: %v", n.Value, err)}
	}
	return json.Marshal(value)
}
