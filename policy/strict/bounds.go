package strict

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bounds compares a value with the tags of its field. It applies to values in the file: a missing field may have a
// meaning that no value has.
//
//	enum:"A,B"          text is one of the words; each item of a list of text is one of them, once
//	enum:"*"            the same, with the words that the method Enums of the struct returns for the field
//	min:"1" max:"24h"   a number or a duration is from min to max
//	above:"0"           a number or a duration is greater
//	pattern:"key"       text, or each item of a list of text, has a form of patterns
//	old:"name"          an earlier name of the field, which the error names (structure)
//	required:"example"  the field must be there; the tag says what to write (structure checks it)
func (f Field) bounds(v reflect.Value) error {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch pattern := f.tag.Get("pattern"); {
	case f.Enum != nil:
		return f.oneOf(v)
	case pattern != "" && v.IsZero() && f.tag.Get("required") != "":
		return nil // structure reports that it is missing
	case pattern != "" && v.Kind() == reflect.String:
		return Match(pattern, v.String())
	case pattern != "":
		var found Findings
		for i := range v.Len() {
			found.Join(Item(i), Match(pattern, v.Index(i).String()))
		}
		return found.Err()
	}
	return f.inRange(v)
}

// inRange compares a number or a duration with the tags min, max, and above.
func (f Field) inRange(v reflect.Value) error {
	least, hasLeast := f.tag.Lookup("min")
	most, hasMost := f.tag.Lookup("max")
	above, hasAbove := f.tag.Lookup("above")
	n := number(v)
	if !(hasLeast && n < limit(least)) && !(hasAbove && n <= limit(above)) && !(hasMost && n > limit(most)) {
		return nil
	}
	reason := "must be at least " + least
	switch {
	case hasAbove:
		reason = "must be greater than " + above
	case least == "0" && !hasMost:
		reason = "must not be negative"
	case !hasLeast:
		reason = "must be at most " + most
	}
	if hasMost && (hasLeast || hasAbove) {
		reason += " and at most " + most
	}
	return &FieldError{Value: v.Interface(), Reason: reason}
}

// Pattern is a format of text.
type Pattern struct{ Regexp, Wrong, Right string }

// PatternOf returns the pattern of that name.
func PatternOf(name string) Pattern {
	const label = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	return map[string]Pattern{
		"namespace": {`^(` + label + `|[a-z0-9][-a-z0-9]{0,61}\*)$`,
			"is not the name of a namespace", "write an exact name, or its beginning and a *"},
		"key": {`^(` + label + `(\.` + label + `)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`,
			"is not a key", "write NAME or PREFIX/NAME"},
		"name": {`^[-a-z0-9]{1,63}$`, "is not a name", "write 1 to 63 of a-z, 0-9 and -"},
		"subject": {`^[^.*>\x00-\x20\x7f]+(\.[^.*>\x00-\x20\x7f]+)*$`,
			"is not a NATS subject", "write one such as functions.keep-off-spot"},
		"strategy": {`^[-A-Za-z0-9]{1,63}$`, "cannot be the name of a strategy", "want 1 to 63 letters, digits and hyphens"},
	}[name]
}

// Match returns a *[FieldError] if text does not have the format.
func Match(name, text string) error {
	p := PatternOf(name)
	if regexp.MustCompile(p.Regexp).MatchString(text) {
		return nil
	}
	return &FieldError{Value: text, Reason: p.Wrong, Right: p.Right}
}

// oneOf checks text, or each item of a list of text. Empty text in a required field is missing, which structure reports.
func (f Field) oneOf(v reflect.Value) error {
	if v.Kind() == reflect.String {
		if text := v.String(); !slices.Contains(f.Enum, text) && (text != "" || f.tag.Get("required") == "") {
			return &FieldError{Value: text, Reason: "is not known", Right: f.want(text)}
		}
		return nil
	}
	var found Findings
	seen := map[string]bool{}
	for i := range v.Len() {
		text := v.Index(i).String()
		switch {
		case !slices.Contains(f.Enum, text):
			found.Add(Item(i), text, "is not known", f.want(text))
		case seen[text]:
			found.Add(Item(i), text, "is given twice", "keep one")
		}
		seen[text] = true
	}
	return found.Err()
}

// want names the word that text was probably meant to be, or all of them.
func (f Field) want(text string) string {
	if len(f.Enum) > 4 {
		return Suggest(text, f.Enum)
	}
	return "want " + Either(f.Enum)
}

func number(v reflect.Value) float64 {
	switch {
	case v.Type() == reflect.TypeFor[metav1.Duration]():
		return float64(v.Field(0).Int())
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	case v.CanFloat():
		return v.Float()
	}
	return 0
}

// limit reads a bound: a duration or a number.
func limit(text string) float64 {
	if length, err := time.ParseDuration(text); err == nil {
		return float64(length)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err) // an error in a tag, not in a file
	}
	return n
}

// missing returns the advice for a missing required field.
func (f Field) missing() string {
	if f.Enum != nil {
		return f.want("")
	}
	return strings.TrimPrefix(f.tag.Get("required"), "true")
}
