package command

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/policy"
)

// Source is a policy file that was named on the command line, or what was piped in.
type Source struct {
	Name string
	Data []byte
}

// StandardInput is the name that stands for it on the command line.
const StandardInput = "-"

// ReadSource reads a file whole. The error is of type [policy.Problems].
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
		err = path.Err // the file is named anyway
	}
	if err != nil {
		return s, policy.Problems{{File: s.Name, Wrong: "cannot be read: " + err.Error()}}
	}
	return s, nil
}

// Parse reads the policy in it. The error is of type [policy.Problems].
func (s Source) Parse() (policy.Policy, error) {
	return policy.Parse(s.Name, s.Data, settings.Strategies())
}

// Files wants at most most files to be named, and at least one. 0: any number.
func Files(most int) cobra.PositionalArgs {
	return func(c *cobra.Command, names []string) error {
		switch {
		case len(names) == 0:
			return usage.Errorf("%s: name a policy file, or - for standard input", c.CommandPath())
		case most > 0 && len(names) > most:
			return usage.Errorf("%s takes one policy file, got %q", c.CommandPath(), names)
		}
		return nil
	}
}
