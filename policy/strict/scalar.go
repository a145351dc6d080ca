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

// Percent is a whole percentage. In a file it is text with its sign, such as 30%, so that it cannot be taken for a number of
// things.
type Percent int

// String is the percentage with its sign.
func (p Percent) String() string { return strconv.Itoa(int(p)) + "%" }

// MarshalText writes it as it stands in a file.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Validate refuses a percentage that is no part of a whole.
func (p Percent) Validate() error {
	if p < 0 || p > 100 {
		return &FieldError{Value: p, Reason: "must be 0% to 100%"}
	}
	return nil
}

// ParsePercent reads a percentage; ok is false for any other text.
func ParsePercent(text string) (p Percent, ok bool) {
	digits, signed := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	return Percent(n), signed && err == nil
}

// special fills the types that have a form of their own in a file, and says whether v is one.
func (d *Decoder) special(n *yaml.Node, v reflect.Value, at Place) bool {
	switch to := v.Addr().Interface().(type) {
	case *time.Duration:
		d.duration(n, to, at)
	case *metav1.Duration:
		d.duration(n, &to.Duration, at)
	case *intstr.IntOrString:
		var number int32
		switch {
		case IsText(n):
			*to = intstr.FromString(n.Value)
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int":
			d.number(n, reflect.ValueOf(&number).Elem(), at)
			*to = intstr.FromInt32(number)
		default:
			d.WrongType(n, v.Type(), at)
		}
	case *Percent:
		share, ok := ParsePercent(n.Value)
		switch {
		case IsText(n) && ok:
			*to = share
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int":
			d.Report(at, "want a percentage", Describe(n), "write it with its sign: "+shorten(n.Value)+"%")
		default:
			d.Report(at, "want a percentage", Describe(n), `write a whole number with its sign, such as "30%"`)
		}
	case json.Unmarshaler:
		data, err := json.Marshal(d.plain(n, at))
		if err == nil {
			err = to.UnmarshalJSON(data)
		}
		if err != nil {
			d.Report(at, err.Error(), Describe(n), "")
		}
	default:
		return false
	}
	return true
}

func (d *Decoder) duration(n *yaml.Node, to *time.Duration, at Place) {
	length, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.Report(at, "want a duration", Describe(n), `write a number with its unit, such as "90s", "10m" or "1h30m"`)
		return
	}
	*to = length
}

// plain is a value as encoding/json would read it into an any.
func (d *Decoder) plain(n *yaml.Node, at Place) any {
	switch n.Kind {
	case yaml.MappingNode:
		value := map[string]any{}
		d.Decode(n, reflect.ValueOf(&value).Elem(), at)
		return value
	case yaml.SequenceNode:
		value := []any{}
		d.Decode(n, reflect.ValueOf(&value).Elem(), at)
		return value
	}
	var value any
	if IsText(n) || n.Decode(&value) != nil {
		return n.Value
	}
	return value
}

func (d *Decoder) scalar(n *yaml.Node, v reflect.Value, at Place) {
	if v.Kind() == reflect.Interface {
		if value := reflect.ValueOf(d.plain(n, at)); value.IsValid() {
			v.Set(value)
		}
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

// truth reads a boolean. Unquoted yes, no, on and off are booleans in YAML 1.1, which Kubernetes reads.
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

// number fills any type of number. A whole number may be written as 30.0 or 0x1e. encoding/json checks the range.
func (d *Decoder) number(n *yaml.Node, v reflect.Value, at Place) {
	var decoded any
	if tag := n.ShortTag(); tag != "!!int" && tag != "!!float" || n.Decode(&decoded) != nil {
		d.WrongType(n, v.Type(), at)
		return
	}
	text := fmt.Sprint(decoded)
	if f, ok := decoded.(float64); ok {
		if math.IsNaN(f) || math.IsInf(f, 0) || f != math.Trunc(f) && !v.CanFloat() {
			d.WrongType(n, v.Type(), at)
			return
		}
		text = strconv.FormatFloat(f, 'f', -1, 64)
	}
	if json.Unmarshal([]byte(text), v.Addr().Interface()) == nil {
		return
	}
	bits := v.Type().Bits()
	right := fmt.Sprintf("want a number from %d to %d", int64(-1)<<(bits-1), int64(math.MaxInt64)>>(64-bits))
	if v.CanUint() {
		right = fmt.Sprintf("want a number from 0 to %d", uint64(math.MaxUint64)>>(64-bits))
	}
	if v.CanUint() && text[0] == '-' {
		d.Report(at, "must not be negative", n.Value, "")
		return
	}
	d.Report(at, "is out of range", shorten(n.Value), right)
}

// WrongType reports that n is not a t, in words that do not need Go.
func (d *Decoder) WrongType(n *yaml.Node, t reflect.Type, at Place) {
	want, right := words(t), ""
	number := strings.TrimPrefix(want, "a ") // "number" is also the end of "a whole number", which is one
	switch scalar := n.Kind == yaml.ScalarNode && !IsNull(n); {
	case scalar && want == "text":
		right = "write it in quotes: " + strconv.Quote(n.Value)
	case scalar && want == "a list of text":
		right = "write it as a list: [" + shorten(n.Value) + "]"
	case scalar && n.Style != 0 && strings.HasSuffix(unquoted(n.Value), number):
		right = "write it without quotes: " + n.Value
	}
	d.Report(at, "want "+want, Describe(n), right)
}

// unquoted names the kind of a text without its quotes, as [words] does.
func unquoted(text string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Value: text}
	_, isBool := truth(&n)
	switch tag := n.ShortTag(); {
	case isBool:
		return "true or false"
	case tag == "!!int":
		return "a whole number"
	case tag == "!!float":
		return "a number"
	}
	return "text"
}

// words names the values of a type.
func words(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[time.Duration]():
		return "a duration"
	case reflect.TypeFor[intstr.IntOrString]():
		return "text or a whole number"
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
	panic(fmt.Sprintf("policy: a policy file cannot fill a %s", t)) // a mistake in a struct, not in the file
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

// IsNull says whether the value is a null.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// IsText says whether the value is text.
func IsText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!str" || n.ShortTag() == "!!timestamp")
}
