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

// FieldError is one thing that is wrong with a value. Field is a path below the struct that is validated, such as
// namespaces.include[2]; empty for the struct itself.
type FieldError struct {
	Field string
	// Value is the value in the file. nil: showing it would not help.
	Value any
	// Reason is the mistake, such as "must be at least 1".
	Reason string
	// Right says what would be right. Empty: Reason says it already.
	Right string
}

// Error is FIELD: REASON, got VALUE; RIGHT.
func (e *FieldError) Error() string { return e.Problem().Text() }

// Problem is the error without a file and a line.
func (e *FieldError) Problem() Problem {
	return Problem{Field: e.Field, Wrong: e.Reason, Got: show(e.Value), Right: e.Right}
}

// Under puts field in front of the path of every [FieldError] in err. nil stays nil.
func Under(field string, err error) error {
	var all Findings
	for _, e := range FieldErrors(err) {
		all.Add(Join(field, e.Field), e.Value, e.Reason, e.Right)
	}
	return all.Err()
}

// FieldErrors lists every *FieldError in a tree of joined errors. Any other error becomes one about the struct itself.
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

// Problem is one mistake in a policy file.
type Problem struct {
	File string `json:"file"`
	// Line counts from 1. For a missing field it is the line of the part of the path that is there. 0: the file could not be
	// opened.
	Line int `json:"line,omitzero"`
	// Field is the path from the top of the file, such as profiles[0].pluginConfig[1].args.includedTaints[2]. Empty: the
	// file as a whole.
	Field string `json:"field,omitzero"`
	// Wrong is the mistake, such as "must be at least 1".
	Wrong string `json:"wrong"`
	// Got is the value in the file. Empty: showing it would not help.
	Got string `json:"got,omitzero"`
	// Right says what would be right. Empty: Wrong says it already.
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

// Problems are all mistakes in a policy file. As an error it is never empty.
type Problems []Problem

// Error has one line per problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// InOrder sorts by line, and within a line by field. A problem that two checks found is listed once.
func (p Problems) InOrder() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field))
	})
	return slices.Compact(p)
}

// show writes a value the way it would stand in a file, shortened.
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
