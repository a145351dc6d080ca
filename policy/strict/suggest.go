package strict

import (
	"maps"
	"slices"
	"strings"
)

// Names returns the keys of a map, sorted.
func Names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Suggest returns the known name that is nearest to an unknown one, or all known names if none is near.
func Suggest(got string, known []string) string {
	best, least := "", 1+len(got)/3
	for _, name := range known {
		if d := distance(strings.ToLower(got), strings.ToLower(name)); d <= least && (best == "" || d < least) {
			best, least = name, d
		}
	}
	switch {
	case best != "":
		return "did you mean " + best + "?"
	case len(known) == 0:
		return "none is known here"
	}
	return "known here: " + strings.Join(known, ", ")
}

// distance returns the number of letters to add, drop, or change to turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Either joins words as in "a, b or c".
func Either(words []string) string { return Series(words, "or") }

// Series joins words as in "a, b or c", with the conjunction before the last one.
func Series(words []string, conjunction string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}
