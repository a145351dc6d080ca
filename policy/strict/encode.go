package strict

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Encode writes value by its JSON tags, in the order of its fields. It omits values that equal the default. defaults has the same
// type as value.
func Encode(value, defaults any) (*yaml.Node, error) {
	return encode(reflect.ValueOf(value), reflect.ValueOf(defaults))
}

func encode(v, is reflect.Value) (*yaml.Node, error) {
	if n, ok := reflect.TypeAssert[*yaml.Node](v); ok {
		return n, nil
	}
	_, inJSON := reflect.TypeAssert[json.Marshaler](v)
	switch kind := v.Kind(); {
	case inJSON:
	case kind == reflect.Pointer:
		if v.IsNil() {
			break
		}
		return encode(v.Elem(), reflect.Zero(v.Type().Elem()))
	case kind == reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		return n, encodeFields(n, v, withDefaults(is))
	case kind == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			item, err := encode(v.Index(i), reflect.Zero(v.Type().Elem()))
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		return n, nil
	}
	value := v.Interface()
	if length, ok := value.(time.Duration); ok {
		value = length.String()
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return FromJSON(data)
}

func encodeFields(n *yaml.Node, v, is reflect.Value) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			if err := encodeFields(n, v.Field(i), is.Field(i)); err != nil {
				return err
			}
			continue
		case name == "" || name == "-" || reflect.DeepEqual(v.Field(i).Interface(), is.Field(i).Interface()):
			continue
		}
		value, err := encode(v.Field(i), is.Field(i))
		if err != nil {
			return err
		}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
	}
	return nil
}

// withDefaults fills in the defaults of a section that is absent by default.
func withDefaults(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	to.Set(v)
	setDefaults(to)
	return to
}

// FromJSON converts JSON to a node.
func FromJSON(data []byte) (*yaml.Node, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return nil, err
	}
	return n.Content[0], nil
}

// ToYAML writes a node like YAML that is written by hand: lists of plain values on one line, and quotes only where
// necessary.
func ToYAML(n *yaml.Node) ([]byte, error) {
	unfold(n)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

func unfold(n *yaml.Node) {
	n.Style = 0
	if quoted := new(yaml.Node); n.ShortTag() == "!!str" && quoted.Encode(n.Value) == nil {
		n.Style = quoted.Style // quoted where YAML 1.1 reads something else
	}
	short := n.Kind == yaml.SequenceNode
	for _, c := range n.Content {
		unfold(c)
		short = short && c.Kind == yaml.ScalarNode
	}
	if n.Kind != yaml.ScalarNode && (short || len(n.Content) == 0) {
		n.Style = yaml.FlowStyle
	}
}

// Short returns a duration without zero seconds and minutes: 142h, 1h30m, 5m2s, 0s.
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
