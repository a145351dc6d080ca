package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a policy file, in words for the person who wrote it.
type Problem struct {
	// File is the name that [Parse] was given.
	File string `json:"file"`
	// Line counts from 1. Of a field that is missing it is the line of what should contain it. 0: the file could not be
	// read at all, which [Parse] never reports.
	Line int `json:"line,omitzero"`
	// Field is the path from the top of the file, such as profiles[0].pluginConfig[1].args.includedTaints[2]. Empty: the
	// file as a whole.
	Field string `json:"field,omitzero"`
	// Wrong says what is wrong.
	Wrong string `json:"wrong"`
	// Got is what stands there instead. Empty: nothing that would help.
	Got string `json:"got,omitzero"`
	// Right says what would be right. Empty: Wrong says it already.
	Right string `json:"right,omitzero"`
}

// String is FILE:LINE: FIELD: what is wrong, got VALUE; what would be right.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text()
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text())
}

// Text is the part that does not depend on the file.
func (p Problem) Text() string {
	var b strings.Builder
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Wrong)
	if p.Got != "" {
		b.WriteString(", got " + p.Got)
	}
	if p.Right != "" {
		b.WriteString("; " + p.Right)
	}
	return b.String()
}

// Problems is everything that is wrong with a policy file, by line. It is never empty as an error.
type Problems []Problem

// Error is one line a problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// InOrder sorts by line, and within a line by field, so that the same file always gives the same text.
func (p Problems) InOrder() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field))
	})
	return p
}
