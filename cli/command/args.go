package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/app/usage"
)

// KnownCommand refuses what is no command, and names those that were perhaps meant.
func KnownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if meant := c.SuggestionsFor(args[0]); len(meant) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(meant, " or "))
	}
	return usage.Wrap(err)
}

// NoArguments refuses arguments, as an error of usage.
func NoArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage.Errorf("%s takes no arguments, got %q", c.CommandPath(), args)
	}
	return nil
}

// PodNamedIn reads NAMESPACE/NAME, or NAME where there is a namespace.
func PodNamedIn(namespace, text string) (types.NamespacedName, error) {
	switch {
	case namespace == "":
		return PodNamed(text)
	case strings.Contains(text, "/"):
		return types.NamespacedName{}, usage.Errorf("--namespace: want it with a name such as api-1, got %q", text)
	}
	return PodNamed(namespace + "/" + text)
}

// PodNamed reads NAMESPACE/NAME.
func PodNamed(text string) (types.NamespacedName, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 2 || slices.Contains(parts, "") {
		return types.NamespacedName{}, usage.Errorf("want a pod such as shop/api-1, got %q", text)
	}
	return types.NamespacedName{Namespace: parts[0], Name: parts[1]}, nil
}
