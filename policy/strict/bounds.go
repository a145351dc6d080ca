package strict

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bounds holds a value against the tags of its field. It applies to values that the file has: an absent field may mean
// something that no value means.
//
//	enum:"A,B"          text, or each item of a list of text, is one of the words
//	min:"1" max:"24h"   a number or a duration is from min to max
//	above:"0"           a number or a duration is greater
//	required:"example"  the field must be there; the tag says what to write (structure checks it)
func bounds(tag reflect.StructTag, v reflect.Value) error {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if words, ok := tag.Lookup("enum"); ok {
		return oneOf(strings.Split(words, ","), v, tag.Get("required") != "")
	}
	least, hasLeast := tag.Lookup("min")
	most, hasMost := tag.Lookup("max")
	above, hasAbove := tag.Lookup("above")
	n := number(v)
	if !(hasLeast && n < limit(v, least)) && !(hasAbove && n <= limit(v, above)) && !(hasMost && n > limit(v, most)) {
		return nil
	}
	reason := "must be at least " + least
	switch {
	case hasAbove:
		reason = "must be greater than " + above
	case least == "0" && !hasMost:
		reason = "must not be negative"
	}
	if hasMost {
		reason += " and at most " + most
	}
	return &FieldError{Value: v.Interface(), Reason: reason}
}

// oneOf checks text, or each item of a list of text. Empty text in a required field is missing, which structure reports.
func oneOf(words []string, v reflect.Value, required bool) error {
	var found Findings
	check := func(at, text string) {
		if !slices.Contains(words, text) && (text != "" || !required) {
			found.Add(at, text, "is not known", "want "+Either(words))
		}
	}
	if v.Kind() == reflect.String {
		check("", v.String())
		return found.Err()
	}
	for i := range v.Len() {
		check(Item(i), v.Index(i).String())
	}
	return found.Err()
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

// limit reads a bound: a duration for a duration, else a number.
func limit(v reflect.Value, text string) float64 {
	if t := v.Type(); t == reflect.TypeFor[time.Duration]() || t == reflect.TypeFor[metav1.Duration]() {
		length, err := time.ParseDuration(text)
		if err != nil {
			panic(err) // a mistake in a tag, not in a file
		}
		return float64(length)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// missing says what to write for a required field.
func (f Field) missing() string {
	if words := f.tag.Get("enum"); words != "" {
		return "want " + Either(strings.Split(words, ","))
	}
	return strings.TrimPrefix(f.tag.Get("required"), "true")
}
