package pages

import (
	"regexp"
	"strings"
)

// Masks are differences between runs, in addition to ages, times, and the versions of nodes.
type Masks struct {
	// Workloads are names of Deployments, Jobs, and DaemonSets. Their pods may have other names.
	Workloads []string
}

// Alike reports whether the output of a command matches a page, except for differences between runs. A line "…" of the page
// matches any lines. A page without output matches everything.
func (m Masks) Alike(page []string, printed string) bool {
	if len(page) == 0 {
		return true
	}
	var pattern strings.Builder
	for _, line := range page {
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(regexp.QuoteMeta(m.masked(line)) + `\n`)
	}
	got := strings.TrimRight(m.masked(printed), "\n")
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(got + "\n")
}

// masked replaces differences between runs, and collapses spaces.
func (m Masks) masked(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{`\b\d+(ms|s|m|h|d)(\d+s)?( ago| \(x\d+ over \d+\w\))?(\s|$)`, "AGE$4"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, "TIME"},
		{`\b(` + m.names() + `)(-[0-9a-f]{7,10})?-[0-9a-z]{5}\b`, "$1-POD"},
		{`\b(kwok-|v)\d+\.\d+\.\d+\S*`, "VERSION"},
		{`[ \t]+`, " "}, {` \n`, "\n"}, {` $`, ""},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return text
}

// names returns a pattern for the workloads, which matches nothing without any.
func (m Masks) names() string {
	if len(m.Workloads) == 0 {
		return `[^\s\S]`
	}
	quoted := make([]string, len(m.Workloads))
	for i, name := range m.Workloads {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return strings.Join(quoted, "|")
}
