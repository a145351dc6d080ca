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

// special fills the types that read themselves, and says whether v is one.
func (d *Decoder) special(n *yaml.Node, v reflect.Value, at Place) bool {
	switch to := v.Addr().Interface().(type) {
	case *metav1.Duration:
		length, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			d.Report(at, "want a duration", Describe(n), `write a number with its unit, such as "90s", "10m" or "1h30m"`)
			return true
		}
		to.Duration = length
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
		d.percent(n, to, at)
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

func (d *Decoder) percent(n *yaml.Node, to *Percent, at Place) {
	share, ok := ParsePercent(n.Value)
	switch {
	case IsText(n) && ok:
		*to = Percent(share)
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int":
		d.Report(at, "want a percentage", Describe(n), "write it with its sign: "+shorten(n.Value)+"%")
	default:
		d.Report(at, "want a percentage", Describe(n), `write a whole number with its sign, such as "30%"`)
	}
}

// plain is a value as encoding/json would read it into an any.
func (d *Decoder) plain(n *yaml.Node, at Place) any {
	var value any
	switch n.Kind {
	case yaml.MappingNode:
		value = map[string]any{}
	case yaml.SequenceNode:
		value = []any{}
	case yaml.AliasNode:
	default:
		if IsText(n) || n.Decode(&value) != nil {
			value = n.Value
		}
		return value
	}
	to := reflect.ValueOf(&value).Elem()
	if value != nil {
		to = reflect.New(reflect.TypeOf(value)).Elem()
	}
	d.Decode(n, to, at)
	return to.Interface()
}

func (d *Decoder) scalar(n *yaml.Node, v reflect.Value, at Place) {
	if v.Kind() == reflect.Interface {
		if value := reflect.ValueOf(d.plain(n, at)); value.IsValid() {
			v.Set(value)
		}
		return
	}
	if n.Kind != yaml.ScalarNode {
		d.WrongType(n, v.Type(), at)
		return
	}
	switch v.Kind() {
	case reflect.String:
		if !IsText(n) {
			d.WrongType(n, v.Type(), at)
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		yes, ok := truth(n)
		if !ok {
			d.WrongType(n, v.Type(), at)
			return
		}
		v.SetBool(yes)
	default:
		d.number(n, v, at)
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

// number fills any type of number. A whole number may be written as 30.0, as in JSON.
func (d *Decoder) number(n *yaml.Node, v reflect.Value, at Place) {
	var decoded any
	if tag := n.ShortTag(); tag != "!!int" && tag != "!!float" || n.Decode(&decoded) != nil {
		d.WrongType(n, v.Type(), at)
		return
	}
	value := reflect.ValueOf(decoded)
	if v.CanFloat() {
		f := value.Convert(reflect.TypeFor[float64]()).Float()
		if math.IsNaN(f) || math.IsInf(f, 0) || v.OverflowFloat(f) {
			d.WrongType(n, v.Type(), at)
			return
		}
		v.SetFloat(f)
		return
	}
	if whole, negative, ok := wholeNumber(value); ok {
		d.whole(n, v, at, whole, negative)
	} else {
		d.WrongType(n, v.Type(), at)
	}
}

// whole fills a type of whole numbers, when it holds the number of that size and sign.
func (d *Decoder) whole(n *yaml.Node, v reflect.Value, at Place, whole uint64, negative bool) {
	switch {
	case v.CanUint() && !negative && !v.OverflowUint(whole):
		v.SetUint(whole)
	case v.CanInt() && !negative && whole <= math.MaxInt64 && !v.OverflowInt(int64(whole)):
		v.SetInt(int64(whole))
	case v.CanInt() && negative && whole <= 1<<63 && !v.OverflowInt(-int64(whole)):
		v.SetInt(-int64(whole))
	case v.CanUint() && negative:
		d.Report(at, "must not be negative", n.Value, "")
	default:
		d.Report(at, "is out of range", shorten(n.Value), "want a number from "+rangeOf(v.Type()))
	}
}

// wholeNumber splits a number into its size and its sign. ok is false when it has a fraction. A size beyond 64 bits is
// given as the largest there is, which no type of ours but uint64 holds.
func wholeNumber(v reflect.Value) (size uint64, negative, ok bool) {
	switch {
	case v.CanInt():
		if i := v.Int(); i < 0 {
			return -uint64(i), true, true
		}
		return uint64(v.Int()), false, true
	case v.CanUint():
		return v.Uint(), false, true
	}
	f := v.Float()
	switch {
	case f != math.Trunc(f):
		return 0, false, false
	case math.Abs(f) >= 1<<63:
		return math.MaxUint64, f < 0, true
	}
	return uint64(math.Abs(f)), f < 0, true
}

func rangeOf(t reflect.Type) string {
	bits := t.Bits()
	if v := reflect.Zero(t); v.CanUint() {
		return "0 to " + strconv.FormatUint(math.MaxUint64>>(64-bits), 10)
	}
	return fmt.Sprintf("%d to %d", int64(-1)<<(bits-1), int64(math.MaxInt64)>>(64-bits))
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

// unquoted says what a text would be without its quotes, in the words of [words].
func unquoted(text string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if _, ok := truth(&n); ok {
		return "true or false"
	}
	switch n.ShortTag() {
	case "!!int":
		return "a whole number"
	case "!!float":
		return "a number"
	}
	return "text"
}

// words says what a value of that type is.
func words(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return "a duration"
	case reflect.TypeFor[intstr.IntOrString]():
		return "text or a whole number"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Slice:
		return list(t.Elem())
	case reflect.Pointer:
		return words(t.Elem())
	case reflect.Struct, reflect.Map:
		return "a map"
	}
	panic(fmt.Sprintf("policy: a policy file cannot fill a %s", t)) // a mistake in an Args type, not in the file
}

// list says what a list of values of that type is.
func list(t reflect.Type) string {
	if t.Kind() == reflect.Interface {
		return "a list"
	}
	one := words(t)
	if name, countable := strings.CutPrefix(one, "a "); countable {
		return "a list of " + name + "s"
	}
	return "a list of " + one
}

// Describe says what a node is, and its value when it has one.
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
