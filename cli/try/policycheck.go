package try

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/policy"
)

func policyCheckCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Say everything that is wrong with policy files",
		Long: "Say everything that is wrong with policy files, one problem a line:\n" +
			"FILE:LINE: FIELD: what is wrong; what would be right.\n" +
			"- reads standard input. The exit code is 0 when all files are right, and 2 when one is not.\n" +
			"With -o json each problem is an object with the fields file, line, field, wrong, got and right; no output means that\n" +
			"all is right.",
		Example: "  rehome policy check deploy/policy.yaml\n" +
			"  rehome policy check -o json policies/*.yaml\n\n" +
			"  # Before it is applied:\n" +
			"  helm template . | yq 'select(.kind == \"ConfigMap\").data[\"policy.yaml\"]' | rehome policy check -",
		Args: command.Files(0),
	}
	format := command.OutputFlag(c, "text", "text, or json: one problem a line")
	c.RunE = func(c *cobra.Command, names []string) error {
		asJSON, err := format()
		if err != nil {
			return err
		}
		return checkPolicies(names, c.InOrStdin(), c.OutOrStdout(), asJSON)
	}
	return c
}

// checkPolicies writes the problems of each file, and fails if there are any.
func checkPolicies(names []string, stdin io.Reader, out io.Writer, asJSON bool) error {
	wrong := 0
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, name := range names {
		s, p, err := command.ReadPolicy(name, stdin)
		problems, _ := errors.AsType[policy.Problems](err)
		if len(problems) > 0 {
			wrong++
		}
		switch {
		case asJSON:
			err = eachLine(lines, problems)
		case len(problems) > 0:
			_, err = fmt.Fprintln(out, problems)
		default:
			_, err = fmt.Fprintf(out, "%s: %s\n", s.Name, inShort(p))
		}
		if err != nil {
			return err
		}
	}
	if wrong > 0 {
		return usage.Errorf("%d of %s cannot be used", wrong, command.Count(len(names), "policy file"))
	}
	return nil
}

func eachLine[T any](lines *json.Encoder, list []T) error {
	for _, entry := range list {
		if err := lines.Encode(entry); err != nil {
			return err
		}
	}
	return nil
}

// inShort sums up a policy in one line.
func inShort(p policy.Policy) string {
	var strategies []string
	for _, profile := range p.Profiles {
		for _, s := range profile.Strategies {
			if !slices.Contains(strategies, s.Name) {
				strategies = append(strategies, s.Name)
			}
		}
	}
	if len(strategies) == 0 {
		return command.Count(len(p.Profiles), "profile") + ", nothing is enabled"
	}
	return command.Count(len(p.Profiles), "profile") + ", enabled: " + strings.Join(strategies, ", ")
}
