package strict

import (
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Longest bounds what has to be remembered about a move, and how long something can be left alone because of one.
const Longest = 24 * time.Hour

// Above notes a duration that is not greater than 0, or greater than most.
func (f *Findings) Above(field string, d metav1.Duration, most time.Duration) {
	if d.Duration <= 0 || d.Duration > most {
		f.Add(field, d, "must be greater than 0 and at most "+most.String(), "")
	}
}

// From0 notes a duration that is negative, or greater than longest.
func (f *Findings) From0(field string, d metav1.Duration) {
	if d.Duration < 0 || d.Duration > Longest {
		f.Add(field, d, "must be at least 0 and at most "+Longest.String(), "")
	}
}

// Share notes a percentage that is no part of a whole.
func (f *Findings) Share(field string, p Percent) {
	if p < 0 || p > 100 {
		f.Add(field, p, "must be 0% to 100%", "")
	}
}

// Percent is a whole percentage. In a file it is text with its sign, such as 30%, so that nobody takes it for a number of
// things.
type Percent int

// String is the percentage with its sign.
func (p Percent) String() string { return strconv.Itoa(int(p)) + "%" }

// MarshalText writes it as it stands in a file.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ParsePercent reads a percentage; ok is false for any other text.
func ParsePercent(text string) (n int, ok bool) {
	digits, signed := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	return n, signed && err == nil
}
