package cli

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// pluginName is the file name that kubectl looks for.
const pluginName = "kubectl-rehome"

// typedAs returns the command that users type for a program with this file name: `kubectl rehome` for the kubectl plugin, and
// `rehome` for any other name.
func typedAs(program string) string {
	if strings.TrimSuffix(filepath.Base(program), ".exe") == pluginName {
		return "kubectl rehome"
	}
	return "rehome"
}

// pluginCompletion is the help of the completion command of the plugin.
const pluginCompletion = "kubectl completes its plugins if its own completion is enabled. It runs the program\n" +
	"kubectl_complete-rehome in PATH, which is in the same archive and has these two lines:\n\n" +
	"  #!/bin/sh\n" +
	"  exec kubectl rehome __complete \"$@\"\n\n" +
	"Use the scripts below if you call the program as rehome."

// spokenAs replaces the program's name in all help texts.
func spokenAs(root *cobra.Command, typed string) {
	if typed == root.Name() {
		return
	}
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[cobra.CommandDisplayNameAnnotation] = typed
	var names []string
	for _, c := range root.Commands() {
		names = append(names, regexp.QuoteMeta(c.Name()))
	}
	call := regexp.MustCompile(`\b` + root.Name() + `( +(?:` + strings.Join(names, "|") + `|help|--help)\b)`)
	each(root, func(c *cobra.Command) {
		for _, text := range []*string{&c.Short, &c.Long, &c.Example} {
			*text = call.ReplaceAllString(*text, typed+"$1")
		}
	})
	root.InitDefaultCompletionCmd() // its texts keep the name rehome, because the scripts are for that name
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Long = pluginCompletion
		}
	}
}

func each(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, inner := range c.Commands() {
		each(inner, do)
	}
}
