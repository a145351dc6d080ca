package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

// NoArguments refuses arguments.
func NoArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, got %q", c.CommandPath(), args)
	}
	return nil
}

// PodNamedIn reads NAMESPACE/NAME, or NAME if a namespace is given.
func PodNamedIn(namespace, text string) (types.NamespacedName, error) {
	switch {
	case namespace == "":
		return PodNamed(text)
	case strings.Contains(text, "/"):
		return types.NamespacedName{}, fmt.Errorf("--namespace: want it with a name such as api-1, got %q", text)
	}
	return PodNamed(namespace + "/" + text)
}

// PodNamed reads NAMESPACE/NAME.
func PodNamed(text string) (types.NamespacedName, error) {
	parts, err := Parts(text, 2, "a pod such as shop/api-1")
	if err != nil {
		return types.NamespacedName{}, err
	}
	return types.NamespacedName{Namespace: parts[0], Name: parts[1]}, nil
}

// Parts splits an argument at its slashes into n parts, none of which is empty.
func Parts(text string, n int, want string) ([]string, error) {
	parts := strings.Split(text, "/")
	if len(parts) != n || slices.Contains(parts, "") {
		return nil, fmt.Errorf("want %s, got %q", want, text)
	}
	return parts, nil
}

// Choose returns the functions of these names, or all for none.
func Choose(all []functions.Function, names []string) ([]functions.Function, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []functions.Function
	for _, name := range names {
		i := slices.Index(Known(all), name)
		if i < 0 {
			return nil, fmt.Errorf("no strategy %q; there are: %v", name, Known(all))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Known returns the names of the functions.
func Known(all []functions.Function) []string {
	var names []string
	for _, f := range all {
		names = append(names, f.Strategy.Name)
	}
	return names
}

// Source is the content of a file that was named on the command line, or of standard input.
type Source struct {
	Name string
	Data []byte
}

// StandardInput is its name on the command line.
const StandardInput = "-"

// ReadSource reads a file. The error is of type [policy.Problems].
func ReadSource(file string, stdin io.Reader) (Source, error) {
	s := Source{Name: file}
	var err error
	if file == StandardInput {
		s.Name = "stdin"
		s.Data, err = io.ReadAll(stdin)
	} else {
		s.Data, err = os.ReadFile(file)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the problem names the file
	}
	if err != nil {
		return s, policy.Problems{{File: s.Name, Wrong: "cannot be read: " + err.Error()}}
	}
	return s, nil
}

// ReadPolicy reads and parses a policy file. The error is of type [policy.Problems].
func ReadPolicy(file string, stdin io.Reader) (Source, policy.Policy, error) {
	s, err := ReadSource(file, stdin)
	if err != nil {
		return s, policy.Policy{}, err
	}
	p, err := policy.Parse(s.Name, s.Data, settings.Strategies())
	return s, p, err
}

// Files wants at least one file, and at most the given number; 0 means any number.
func Files(most int) cobra.PositionalArgs {
	return func(c *cobra.Command, names []string) error {
		switch {
		case len(names) == 0:
			return fmt.Errorf("%s: name a policy file, or - for standard input", c.CommandPath())
		case most > 0 && len(names) > most:
			return fmt.Errorf("%s takes one policy file, got %q", c.CommandPath(), names)
		}
		return nil
	}
}
