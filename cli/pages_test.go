package cli

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// inline matches a command within a sentence. Other tests run the commands in code blocks.
var inline = regexp.MustCompile("`(?:kubectl )?rehome ([a-z][^`]*)`")

// TestCommandsWithinSentences finds commands and flags that pages mention and that do not exist.
func TestCommandsWithinSentences(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	expect.Must(t, err)
	found := 0
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md") {
		text := filetest.Read(t, page)
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			found++
			command, _, _ := strings.Cut(m[1], " | ")
			root := newRoot()
			root.InitDefaultCompletionCmd()
			c, rest, err := root.Find(strings.Fields(command))
			if err != nil || c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && rest[0] != "…" {
				t.Errorf("%s: rehome %s: %v", page, m[1], err)
				continue
			}
			c.InitDefaultHelpFlag()
			c.InitDefaultVersionFlag()
			for _, word := range rest {
				name, _, _ := strings.Cut(word, "=")
				long, isLong := strings.CutPrefix(name, "--")
				switch {
				case isLong && long != "" && c.Flag(long) == nil,
					!isLong && len(name) == 2 && name[0] == '-' && c.Flags().ShorthandLookup(name[1:]) == nil && c.InheritedFlags().ShorthandLookup(name[1:]) == nil:
					t.Errorf("%s: rehome %s has no flag %s", page, m[1], name)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("got %d commands, want at least 100", found)
	}
}
