package try

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/schemas"
)

func SchemasCommand() *cobra.Command {
	return command.Group(&cobra.Command{
		Use: "schemas", Short: "List, print or apply the JSON Schemas of the events; no cluster and no bus is needed",
	}, schemasListCommand(), schemasPrintCommand(), schemasValidateCommand())
}

func schemasListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the types of events, with their schemas and the NATS subjects that they are published on",
		Long: "List the types of events, with their schemas and the NATS subjects that they are published on. What stands for a\n" +
			"name is in capitals. With -o json each type is an object on a line of its own with the fields type, schema and\n" +
			"subjects.",
		Example: "  rehome schemas list\n" +
			"  rehome schemas list -o json",
		Args: command.NoArguments,
	}
	format := command.OutputFlag(c, "table", "table, or json: one type a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		asJSON, err := format()
		if err != nil {
			return err
		}
		return listSchemas(c.OutOrStdout(), asJSON)
	}
	return c
}

type listedSchema struct {
	Type     string   `json:"type"`
	Schema   string   `json:"schema"`
	Subjects []string `json:"subjects"`

	schema struct {
		ID string `json:"$id"`
	}
}

func listSchemas(w io.Writer, asJSON bool) error {
	lines, table := json.NewEncoder(w), tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if !asJSON {
		fmt.Fprintln(table, "TYPE\tSCHEMA\tSUBJECT")
	}
	for _, typ := range schemas.EventTypes() {
		l := listedSchema{Type: typ, Subjects: schemas.Subjects(typ)}
		document, err := schemas.Schema(typ)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(document, &l.schema); err != nil {
			return fmt.Errorf("schema of %s: %w", typ, err)
		}
		l.Schema = l.schema.ID
		if asJSON {
			if err := lines.Encode(l); err != nil {
				return err
			}
			continue
		}
		for _, subject := range l.Subjects {
			fmt.Fprintf(table, "%s\t%s\t%s\n", l.Type, l.Schema, subject)
		}
	}
	return table.Flush()
}

func schemasPrintCommand() *cobra.Command {
	example := false
	c := &cobra.Command{
		Use:   "print NAME",
		Short: "Print a JSON Schema, or with --example an event of that type",
		Long: "Print a JSON Schema as it is published, or with --example a complete event. NAME is a type of event such as\n" +
			"dev.rehome.verdict.v1, or its noun: " + strings.Join(schemaNouns(), ", ") + "; event is the envelope of all of them.\n" +
			"With --example it can be the name of one of several examples:\n" +
			wrapped(exampleNames()) + ".",
		Example: "  rehome schemas print verdict\n" +
			"  rehome schemas print scope-workload --example\n\n" +
			"  # All schemas beside each other, for a validator that follows their references:\n" +
			"  for name in event delta scope intents verdict; do rehome schemas print $name > $name.schema.json; done",
	}
	c.Flags().BoolVar(&example, "example", example, "print an example instead of the schema")
	c.RunE = func(c *cobra.Command, names []string) error {
		if len(names) != 1 {
			return usage.Errorf("%s: want one name, got %q; there are: %s", c.CommandPath(), names, publishedNames(example))
		}
		document, err := published(names[0], example)
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(document)
		return err
	}
	return c
}

// published returns a schema or an example by its name.
func published(name string, example bool) ([]byte, error) {
	noun := name
	if slices.Contains(schemas.EventTypes(), name) {
		noun = strings.Split(name, ".")[2]
	}
	what, file := "schema", "v1/"+noun+".schema.json"
	if example {
		what, file = "example", "v1/examples/"+noun+".json"
	}
	document, err := schemas.Files.ReadFile(file)
	if err != nil {
		return nil, usage.Errorf("no %s %q; there are: %s", what, name, publishedNames(example))
	}
	return document, nil
}

func publishedNames(examples bool) string {
	if examples {
		return strings.Join(exampleNames(), ", ")
	}
	return strings.Join(schemaNouns(), ", ")
}

func schemaNouns() []string { return filesNamed("v1/*.schema.json", ".schema.json") }

func exampleNames() []string { return filesNamed("v1/examples/*.json", ".json") }

func filesNamed(pattern, suffix string) (names []string) {
	files, _ := fs.Glob(schemas.Files, pattern) // fails only for a malformed pattern
	for _, file := range files {
		names = append(names, strings.TrimSuffix(path.Base(file), suffix))
	}
	return names
}

// wrapped joins names on lines of a help text.
func wrapped(names []string) string {
	text, width := names[0], len(names[0])
	for _, name := range names[1:] {
		if width += len(", " + name); width > 110 {
			text, width = text+",\n"+name, len(name)
		} else {
			text += ", " + name
		}
	}
	return text
}
