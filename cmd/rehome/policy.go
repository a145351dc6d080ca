package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

// readPolicy reads and checks a policy file. The content is what it was read from.
func readPolicy(file string) (policy.Policy, content, error) {
	if file == "" {
		return policy.Policy{}, content{}, usageError{errors.New("no policy: name a file with --policy or REHOME_POLICY")}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return policy.Policy{}, content{}, usageError{fmt.Errorf("policy: %w", err)}
	}
	p, err := policy.Parse(file, data, strategies())
	if err != nil {
		return policy.Policy{}, content{}, usageError{err}
	}
	return p, contentOf(data, nil), nil
}

// strategies describes the strategies of this binary to the policy.
func strategies() []policy.Strategy {
	var known []policy.Strategy
	for _, f := range functions.All() {
		known = append(known, f.Strategy)
	}
	return known
}

func policyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "policy", Short: "Check, explain or convert a policy file; no cluster is needed",
		Args: func(c *cobra.Command, names []string) error {
			if len(names) > 0 {
				return usageError{fmt.Errorf("%s: no command %q", c.CommandPath(), names[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }, // cobra ignores arguments of what does not run
	}
	c.AddCommand(policyCheckCommand(), policyExplainCommand(), policyConvertCommand())
	return c
}

// source is a policy file that was named on the command line, or what was piped in.
type source struct {
	name string
	data []byte
}

// standardInput is the name that stands for it on the command line.
const standardInput = "-"

// readSource reads a file whole. The error is of type [policy.Problems].
func readSource(file string, stdin io.Reader) (source, error) {
	s := source{name: file}
	var err error
	if file == standardInput {
		s.name = "stdin"
		s.data, err = io.ReadAll(stdin)
	} else {
		s.data, err = os.ReadFile(file)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the file is named anyway
	}
	if err != nil {
		return s, policy.Problems{{File: s.name, Wrong: "cannot be read: " + err.Error()}}
	}
	return s, nil
}

// parse reads the policy in it. The error is of type [policy.Problems].
func (s source) parse() (policy.Policy, error) { return policy.Parse(s.name, s.data, strategies()) }

func policyExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain FILE",
		Short: "Say in words what a policy does: what wakes each strategy, what it moves, what is protected",
		Long: "Say in words what a policy does: for each profile and strategy what it moves, which changes wake it, and which of\n" +
			"its arguments differ from the defaults; then what protects a pod of the profile, rule by rule. - reads standard input.",
		Example: "  rehome policy explain deploy/policy.yaml\n\n" +
			"  # The policy of kubernetes-sigs/descheduler, as it runs in a cluster:\n" +
			"  kubectl -n kube-system get configmap descheduler-policy-configmap -o jsonpath='{.data.policy\\.yaml}' |\n" +
			"    rehome policy explain -",
		Args: files(1),
		RunE: func(c *cobra.Command, names []string) error {
			s, err := readSource(names[0], c.InOrStdin())
			if err != nil {
				return usageError{err}
			}
			p, err := s.parse()
			if err != nil {
				return usageError{err}
			}
			_, err = io.WriteString(c.OutOrStdout(), p.Explain())
			return err
		},
	}
}

// files wants at most most files to be named, and at least one. 0: any number.
func files(most int) cobra.PositionalArgs {
	return func(c *cobra.Command, names []string) error {
		switch {
		case len(names) == 0:
			return usageError{fmt.Errorf("%s: name a policy file, or - for standard input", c.CommandPath())}
		case most > 0 && len(names) > most:
			return usageError{fmt.Errorf("%s takes one policy file, got %q", c.CommandPath(), names)}
		}
		return nil
	}
}
