package strict

import (
	"encoding/json"
	"errors"
	"fmt"
)

// FieldError is one thing that is wrong with a value. Field is a path below the struct that is validated, such as
// namespaces.include[2]; empty for the struct itself.
type FieldError struct {
	Field string
	// Value is what stands there. nil: nothing that would help.
	Value any
	// Reason says what is wrong, such as "must be at least 1".
	Reason string
	// Right says what would be right. Empty: Reason says it already.
	Right string
}

// Error is FIELD: REASON, got VALUE; what would be right.
func (e *FieldError) Error() string { return e.Problem().Text() }

// Problem is the error in words.
func (e *FieldError) Problem() Problem {
	return Problem{Field: e.Field, Wrong: e.Reason, Got: show(e.Value), Right: e.Right}
}

// Under puts field in front of the path of every [FieldError] in err, for an error about a struct that is itself a field.
// nil stays nil.
func Under(field string, err error) error {
	var all []error
	for _, e := range FieldErrors(err) {
		below := *e
		below.Field = Join(field, e.Field)
		all = append(all, &below)
	}
	return errors.Join(all...)
}

// FieldErrors lists every *FieldError in a tree of joined errors. An error that is none becomes one about the struct
// itself, so that nothing is lost.
func FieldErrors(err error) []*FieldError {
	switch e := any(err).(type) { // each branch of the tree is walked by itself
	case nil:
		return nil
	case *FieldError:
		return []*FieldError{e}
	case interface{ Unwrap() []error }:
		var all []*FieldError
		for _, one := range e.Unwrap() {
			all = append(all, FieldErrors(one)...)
		}
		return all
	}
	return []*FieldError{{Reason: err.Error()}}
}

// Findings collects what is wrong with a value, for a Validate method. The zero value is ready to use.
type Findings []error

// Add notes that a field is wrong. The arguments are the fields of [FieldError].
func (f *Findings) Add(field string, value any, reason, right string) {
	*f = append(*f, &FieldError{Field: field, Value: value, Reason: reason, Right: right})
}

// Join notes what is wrong with the value of a field, as its own Validate says. nil: nothing.
func (f *Findings) Join(field string, err error) {
	if err := Under(field, err); err != nil {
		*f = append(*f, err)
	}
}

// Err is everything that was noted, or nil.
func (f Findings) Err() error { return errors.Join(f...) }

// Item is the path of an item of a list, below the list.
func Item(i int) string { return fmt.Sprintf("[%d]", i) }

// Join is the path of a field below parent.
func Join(parent, field string) string {
	if parent == "" || field == "" || field[0] == '[' {
		return parent + field
	}
	return parent + "." + field
}

// show writes a value the way it would stand in a file, shortened.
func show(value any) string {
	if value == nil {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return shorten(fmt.Sprint(value))
	}
	return shorten(string(text))
}

func shorten(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
