package strict

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// FieldError is one error in a value. Field is a path below the validated struct, such as namespaces.include[2]; empty
// for the struct itself.
type FieldError struct {
	Field string
	// Value is the value in the file, or nil if it would not help.
	Value any
	// Reason is the error, such as "must be at least 1".
	Reason string
	// Right is the correction, or empty if Reason contains it.
	Right string
}

// Error returns FIELD: REASON, got VALUE; RIGHT.
func (e *FieldError) Error() string { return e.Problem().Text() }

// Problem returns the error without a file and a line.
func (e *FieldError) Problem() Problem {
	return Problem{Field: e.Field, Wrong: e.Reason, Got: show(e.Value), Right: e.Right}
}

// Under prepends field to the path of every [FieldError] in err. nil stays nil.
func Under(field string, err error) error {
	var all Findings
	for _, e := range FieldErrors(err) {
		all.Add(Join(field, e.Field), e.Value, e.Reason, e.Right)
	}
	return all.Err()
}

// FieldErrors returns every *FieldError in a tree of joined errors. Any other error becomes one about the struct
// itself.
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

// Findings collects the errors of a Validate method. The zero value is ready to use.
type Findings []error

// Add adds an error of a field. The arguments are the fields of [FieldError].
func (f *Findings) Add(field string, value any, reason, right string) {
	*f = append(*f, &FieldError{Field: field, Value: value, Reason: reason, Right: right})
}

// Join adds the errors of the value of a field, from its own Validate. nil adds nothing.
func (f *Findings) Join(field string, err error) {
	if err := Under(field, err); err != nil {
		*f = append(*f, err)
	}
}

// Err returns all errors, or nil.
func (f Findings) Err() error { return errors.Join(f...) }

// Item returns the path of an item of a list, below the list.
func Item(i int) string { return fmt.Sprintf("[%d]", i) }

// Join returns the path of a field below parent.
func Join(parent, field string) string {
	if parent == "" || field == "" || field[0] == '[' {
		return parent + field
	}
	return parent + "." + field
}

// Problem is one error in a policy file.
type Problem struct {
	File string `json:"file"`
	// Line counts from 1. A missing field has the line of the existing part of the path. 0 means that the file could not be
	// opened.
	Line int `json:"line,omitzero"`
	// Field is the path from the top of the file, such as profiles[0].pluginConfig[1].args.includedTaints[2]. Empty
	// means the whole file.
	Field string `json:"field,omitzero"`
	// Wrong is the error, such as "must be at least 1".
	Wrong string `json:"wrong"`
	// Got is the value in the file, or empty if it would not help.
	Got string `json:"got,omitzero"`
	// Right is the correction, or empty if Wrong contains it.
	Right string `json:"right,omitzero"`
}

// String is FILE:LINE: TEXT.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text()
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text())
}

// Text is FIELD: WRONG, got GOT; RIGHT.
func (p Problem) Text() string {
	text := p.Wrong
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	if p.Got != "" {
		text += ", got " + p.Got
	}
	if p.Right != "" {
		text += "; " + p.Right
	}
	return text
}

// Problems are all errors in a policy file. As an error it is never empty.
type Problems []Problem

// Error has one line per problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// InOrder sorts by line, and within a line by field. It removes duplicates.
func (p Problems) InOrder() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field))
	})
	return slices.Compact(p)
}

// show formats a value as in a file, shortened.
func show(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case time.Duration:
		value = v.String()
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
