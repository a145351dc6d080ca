package try

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/policy/words"
)

func policyCommand() *cobra.Command {
	return cmdutil.Group(&cobra.Command{
		Use: "policy", Short: "Check, explain, or convert a policy file, or print its JSON Schema, without a cluster",
	}, policyCheckCommand(), policyExplainCommand(), policyConvertCommand(), policySchemaCommand())
}

func policyExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain FILE",
		Short: "Explain a policy: which pods each strategy moves, and when, and which pods are protected",
		Long: "Explain a policy. For each profile and strategy the output says which pods it moves, which changes cause an\n" +
			"evaluation, and which arguments differ from the defaults, and then which rules protect a pod of the profile. - reads\n" +
			"standard input.",
		Example: "  rehome policy explain deploy/policy.yaml\n\n" +
			"  # The policy of a running kubernetes-sigs/descheduler:\n" +
			"  kubectl -n kube-system get configmap descheduler-policy-configmap -o jsonpath='{.data.policy\\.yaml}' |\n" +
			"    rehome policy explain -",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			_, p, err := cmdutil.ReadPolicy(names[0], c.InOrStdin())
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), words.Text(p))
			return err
		},
	}
}

func policySchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the policy file, for editors",
		Long: "Print the JSON Schema of a policy of any version. Editors use it to complete and check fields while you type.\n" +
			"`rehome policy check` also checks dependencies between fields. Each release has the schema as a file.",
		Example: "  rehome policy schema > policy.schema.json\n" +
			"  # First line of a policy for editors with the YAML language server:\n" +
			"  # yaml-language-server: $schema=policy.schema.json",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(policy.Schema())
			return err
		},
	}
}

func policyConvertCommand() *cobra.Command {
	to := ""
	c := &cobra.Command{
		Use:   "convert FILE",
		Short: "Convert a policy to another version",
		Long: "Convert a policy of descheduler/v1alpha1, descheduler/v1alpha2, or rehome.dev/v1alpha1 to another version, and print\n" +
			"it. Presets become profiles. Defaults and comments are omitted. - reads standard input.\n\n" +
			"Rehome reads all three versions. Convert a file to continue with a newer version.",
		Example: "  rehome policy convert old.yaml > policy.yaml\n" +
			"  rehome policy convert --to " + policy.DeschedulerVersion + " old.yaml",
		Args: cobra.ExactArgs(1),
	}
	cmdutil.Choice(c, &to, "to", "", "version to write", policy.Version, policy.DeschedulerVersion)
	c.RunE = func(c *cobra.Command, names []string) error {
		s, p, err := cmdutil.ReadPolicy(names[0], c.InOrStdin())
		if err != nil {
			return err
		}
		data, err := p.Format(to)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		_, err = c.OutOrStdout().Write(data)
		return err
	}
	return c
}

func policyCheckCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check policy files and print all problems",
		Long: "Check policy files and print all problems, one per line:\n" +
			"  FILE:LINE: FIELD: PROBLEM; FIX\n" +
			"- reads standard input. For a valid file, the output is a summary and warnings. The exit code is 0 if all files are\n" +
			"valid, and 1 otherwise.\n\n" +
			"With -o json, each problem is an object with the fields file, line, field, wrong, got, and right. No output means\n" +
			"that all files are valid.",
		Example: "  rehome policy check deploy/policy.yaml\n" +
			"  rehome policy check -o json policies/*.yaml\n\n" +
			"  # Check a policy before you apply it:\n" +
			"  helm template . | yq 'select(.kind == \"ConfigMap\").data[\"policy.yaml\"]' | rehome policy check -",
		Args: cobra.MinimumNArgs(1),
	}
	format := ""
	cmdutil.Choice(c, &format, "output", "o", "json: one problem per line", "", "json")
	c.RunE = func(c *cobra.Command, names []string) error {
		return checkPolicies(names, c.InOrStdin(), c.OutOrStdout(), format == "json")
	}
	return c
}

// checkPolicies writes the problems of each file, and fails if there are any.
func checkPolicies(names []string, stdin io.Reader, out io.Writer, asJSON bool) error {
	wrong := 0
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, name := range names {
		s, p, err := cmdutil.ReadPolicy(name, stdin)
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
			_, err = fmt.Fprintf(out, "%s: %s\n", s.Name, strings.Join(append([]string{inShort(p)}, p.Warnings()...), "\n  warning: "))
		}
		if err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %s invalid", wrong, cmdutil.Count(len(names), "policy file"))
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
		return cmdutil.Count(len(p.Profiles), "profile") + ", nothing is enabled"
	}
	return cmdutil.Count(len(p.Profiles), "profile") + ", enabled: " + strings.Join(strategies, ", ")
}
