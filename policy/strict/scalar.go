package strict

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Percent is a whole percentage. In a file it is a text such as 30%. The percent sign distinguishes it from a number of things.
type Percent int

// String returns the percentage with its sign.
func (p Percent) String() string { return strconv.Itoa(int(p)) + "%" }

// MarshalText returns the text for a file.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalJSON reads the text.
func (p *Percent) UnmarshalJSON(data []byte) error {
	text, err := strconv.Unquote(string(data))
	to, ok := ParsePercent(text)
	if err != nil || !ok {
		return fmt.Errorf("%s is not a percentage", data)
	}
	*p = to
	return nil
}

// Validate rejects a percentage outside of 0 to 100.
func (p Percent) Validate() error {
	if p < 0 || p > 100 {
		return &FieldError{Value: p, Reason: "must be 0% to 100%"}
	}
	return nil
}

// ParsePercent parses a percentage; ok is false for any other text.
func ParsePercent(text string) (p Percent, ok bool) {
	digits, signed := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	return Percent(n), signed && err == nil
}

// special fills the types with a special format in a file, and reports whether v is one.
func (d *Decoder) special(n *yaml.Node, v reflect.Value, at Place) bool {
	var err error
	switch to := v.Addr().Interface().(type) {
	case *time.Duration:
		*to, err = time.ParseDuration(n.Value)
	case *metav1.Duration:
		to.Duration, err = time.ParseDuration(n.Value)
	case *intstr.IntOrString:
		share, isShare := ParsePercent(n.Value)
		switch err = n.Decode(&to.IntVal); {
		case isShare && IsText(n):
			*to, err = intstr.FromString(share.String()), nil
			d.Check(n, at, share.Validate())
		case n.ShortTag() != "!!int":
			err = strconv.ErrSyntax
		case to.IntVal < 0:
			d.Check(n, at, &FieldError{Value: to.IntVal, Reason: "must not be negative"})
		}
	case json.Unmarshaler:
		var value any
		var data []byte
		if err = n.Decode(&value); err == nil {
			data, err = json.Marshal(value)
		}
		if err == nil {
			err = to.UnmarshalJSON(data)
		}
	default:
		return false
	}
	if err != nil {
		d.WrongType(n, v.Type(), at)
	}
	return true
}

func (d *Decoder) scalar(n *yaml.Node, v reflect.Value, at Place) {
	if v.Kind() == reflect.Interface {
		d.Check(n, at, n.Decode(v.Addr().Interface()))
		return
	}
	yes, isBool := truth(n)
	switch kind := v.Kind(); {
	case n.Kind == yaml.ScalarNode && kind == reflect.String && IsText(n):
		v.SetString(n.Value)
	case n.Kind == yaml.ScalarNode && kind == reflect.Bool && isBool:
		v.SetBool(yes)
	case n.Kind == yaml.ScalarNode && kind != reflect.String && kind != reflect.Bool:
		d.number(n, v, at)
	default:
		d.WrongType(n, v.Type(), at)
	}
}

// truth parses a boolean. Unquoted yes, no, on, and off are booleans in YAML 1.1, which Kubernetes reads.
func truth(n *yaml.Node) (yes, ok bool) {
	if n.ShortTag() != "!!bool" && n.Style != 0 {
		return false, false
	}
	switch strings.ToLower(n.Value) {
	case "true", "yes", "on":
		return true, true
	case "false", "no", "off":
		return false, true
	}
	return false, false
}

// number fills any type of number. A whole number may be written as 30.0 or 0x1e.
func (d *Decoder) number(n *yaml.Node, v reflect.Value, at Place) {
	var f float64
	if tag := n.ShortTag(); tag != "!!int" && tag != "!!float" || n.Decode(&f) != nil ||
		math.IsNaN(f) || math.IsInf(f, 0) || f != math.Trunc(f) && !v.CanFloat() {
		d.WrongType(n, v.Type(), at)
		return
	}
	switch {
	case v.CanUint() && f < 0:
		d.Report(at, "must not be negative", n.Value, "")
	case n.Decode(v.Addr().Interface()) != nil:
		d.Report(at, "is out of range", shorten(n.Value), "")
	}
}

// WrongType reports that n is not a t, in words that do not require Go.
func (d *Decoder) WrongType(n *yaml.Node, t reflect.Type, at Place) {
	want := words(t)
	right := map[string]string{
		"a duration":                     `write a number with its unit, such as "90s", "10m" or "1h30m"`,
		"a percentage":                   `write a whole number with its sign, such as "30%"`,
		"a whole number or a percentage": `write how many pods, or a share such as "25%"`,
	}[want]
	if want == "text" && n.Kind == yaml.ScalarNode && !IsNull(n) {
		right = "write it in quotes: " + strconv.Quote(n.Value)
	}
	d.Report(at, "want "+want, Describe(n), right)
}

// words names the values of a type.
//
//nolint:gocyclo // one case for each type
func words(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[time.Duration]():
		return "a duration"
	case reflect.TypeFor[Percent]():
		return "a percentage"
	case reflect.TypeFor[json.RawMessage]():
		return "a value of JSON"
	case reflect.TypeFor[intstr.IntOrString]():
		return "a whole number or a percentage"
	}
	switch kind := t.Kind(); {
	case kind == reflect.String:
		return "text"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.Float32, kind == reflect.Float64:
		return "a number"
	case reflect.Int <= kind && kind <= reflect.Uint64:
		return "a whole number"
	case kind == reflect.Pointer:
		return words(t.Elem())
	case kind == reflect.Struct, kind == reflect.Map:
		return "a map"
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Interface:
		return "a list"
	case kind == reflect.Slice:
		one := words(t.Elem())
		if name, countable := strings.CutPrefix(one, "a "); countable {
			one = name + "s"
		}
		return "a list of " + one
	}
	panic(fmt.Sprintf("policy: a policy file cannot fill a %s", t)) // an error in a struct, not in the file
}

// Describe names the kind of a node, and its value if it has one.
func Describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.AliasNode:
		return Describe(n.Alias)
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a map"
	case IsNull(n):
		return "nothing"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + shorten(n.Value)
	case "!!bool":
		return n.Value
	}
	return "the text " + show(n.Value)
}

// IsNull reports whether the value is a null.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// IsText reports whether the value is text.
func IsText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
}
