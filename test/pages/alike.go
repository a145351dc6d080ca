package pages

import (
	"regexp"
	"strings"
)

// Masks say what differs from run to run in what is printed, besides ages, times and the versions of nodes. The zero value adds
// nothing to those.
type Masks struct {
	// Workloads are names of Deployments, Jobs and DaemonSets whose pods are shown. Their pods may have other names.
	Workloads []string
}

// Alike says whether a command printed what a page shows, but for what differs from run to run. A line "…" of the page stands
// for any lines. A page that shows nothing does not care.
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

// masked is text without what differs from run to run, and with one space where there are more.
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

// names is a pattern for the workloads. Without any it is one that fits nothing.
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
