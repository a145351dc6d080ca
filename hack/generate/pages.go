package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// reasonRows returns the rows of the reason codes in docs/verdicts.md.
func reasonRows(s source) string {
	var b strings.Builder
	b.WriteString("| code | outcome | what happened | what to do |\n|---|---|---|---|\n")
	for _, c := range s.enums["schemas.ReasonCode"] {
		text := append(paragraphs(c.above), "", "")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.value, groupOf(c), text[0], text[1])
	}
	return b.String()
}

// typeRows returns the rows of the event types in docs/events.md.
func typeRows(e *events) string {
	var b strings.Builder
	b.WriteString("| type | subjects | publishers | data |\n|---|---|---|---|\n")
	for _, typ := range schemas.EventTypes() {
		subjects := "`" + strings.Join(schemas.Subjects(typ), "`, `") + "`"
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s [Schema](../schemas/v1/%s.schema.json). |\n",
			typ, subjects, strings.Join(schemas.Publishers(typ), ", "), e.summary(typ), schemas.NounOf(typ))
	}
	return b.String()
}

// region replaces the text of a page between the lines <!-- begin NAME and <!-- end NAME -->.
func region(page, name, text string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	part := regexp.MustCompile(`(?s)(<!-- begin ` + name + `[^\n]*-->\n).*?(<!-- end ` + name + ` -->)`)
	if !part.Match(old) {
		return fmt.Errorf("%s: no region %s", page, name)
	}
	fresh := part.ReplaceAllStringFunc(string(old), func(all string) string {
		marks := part.FindStringSubmatch(all)
		return marks[1] + text + marks[2]
	})
	return os.WriteFile(page, []byte(fresh), 0o644)
}
