package try

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/validation"
)

func schemasCommand() *cobra.Command {
	return cmdutil.Group(&cobra.Command{
		Use: "schemas", Short: "List, print, or apply the JSON Schemas of the events, without a cluster or a bus",
	}, schemasListCommand(), schemasPrintCommand(), schemasValidateCommand())
}

func schemasListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the event types with their schemas and NATS subjects",
		Long: "List the event types with their schemas and NATS subjects. Placeholders are in capitals. With -o json, the output\n" +
			"has one object per line and type, with the fields type, schema, and subjects.",
		Example: "  rehome schemas list\n" +
			"  rehome schemas list -o json",
		Args: cobra.NoArgs,
	}
	format := ""
	cmdutil.Choice(c, &format, "output", "o", "json: one type per line", "", "json")
	c.RunE = func(c *cobra.Command, _ []string) error { return listSchemas(c.OutOrStdout(), format == "json") }
	return c
}

// ListedSchema is a line of schemas list -o json.
type ListedSchema struct {
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
		l := ListedSchema{Type: typ, Subjects: schemas.Subjects(typ)}
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
		Short: "Print the JSON Schema of an event type, or with --example an event",
		Long: "Print a published JSON Schema, or with --example a complete event. NAME is an event type such as\n" +
			"dev.rehome.verdict.v1, or its noun: " + strings.Join(schemaNouns(), ", ") + "; event is the envelope of all types.\n" +
			"With --example it can also be the name of an example:\n" +
			wrapped(exampleNames()) + ".",
		Example: "  rehome schemas print verdict\n" +
			"  rehome schemas print scope-workload --example\n\n" +
			"  # Files with all schemas, for a validator that follows their references:\n" +
			"  for name in event delta scope intents verdict; do rehome schemas print $name > $name.schema.json; done",
		Args: cobra.ExactArgs(1), ValidArgs: schemaNouns(),
	}
	c.Flags().BoolVar(&example, "example", example, "print an example instead of the schema")
	c.RunE = func(c *cobra.Command, names []string) error {
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
		return nil, fmt.Errorf("no %s %q; there are: %s", what, name, publishedNames(example))
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

func schemasValidateCommand() *cobra.Command {
	strict := false
	c := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Check events against their schemas and print all problems",
		Long: "Check events in the structured mode of CloudEvents against their schemas. The input is one JSON object, a JSON\n" +
			"array, or several objects like the output of `rehome events -o json`. Without a FILE, and for -, the command reads\n" +
			"standard input. It prints one line for each wrong or missing field; the index of the first event is 0:\n" +
			"  FILE[INDEX]: TYPE: JSON POINTER: got VALUE, want DESCRIPTION\n\n" +
			"The schemas are open: they allow unknown fields and values, because a newer version of Rehome may send them.\n" +
			"--strict is for programs that write events, and also reports unknown fields and values in events without other\n" +
			"problems.\n\n" +
			"The exit code is 0 if all events are valid. With -o json, each problem is an object with the fields file, index,\n" +
			"type, field, got, and want. No output means that all events are valid.",
		Example: "  rehome events --since 1h -o json | rehome schemas validate\n" +
			"  rehome schemas validate --strict answer.json    # the answer of your own function\n" +
			"  rehome schemas print intents --example | rehome schemas validate -o json -",
	}
	c.Flags().BoolVar(&strict, "strict", strict, "also report unknown fields and values")
	format := ""
	cmdutil.Choice(c, &format, "output", "o", "json: one problem per line", "", "json")
	c.RunE = func(c *cobra.Command, names []string) error {
		sources, err := eventSources(names, c.InOrStdin())
		if err != nil {
			return err
		}
		check, err := newEventCheck(c.OutOrStdout(), strict, format == "json")
		if err != nil {
			return err
		}
		return check.all(sources)
	}
	return c
}

// eventSources reads the files, or standard input without any.
func eventSources(names []string, stdin io.Reader) ([]cmdutil.Source, error) {
	if len(names) == 0 {
		names = []string{cmdutil.StandardInput}
	}
	var sources []cmdutil.Source
	var unreadable policy.Problems
	for _, name := range names {
		s, err := cmdutil.ReadSource(name, stdin)
		problems, _ := errors.AsType[policy.Problems](err)
		sources, unreadable = append(sources, s), append(unreadable, problems...)
	}
	if len(unreadable) > 0 {
		return nil, unreadable
	}
	return sources, nil
}

// eventCheck validates events, and writes and counts the problems.
type eventCheck struct {
	out    io.Writer
	asJSON bool
	// forms are tried in order until one finds problems.
	forms []*validation.Validator

	events, invalid, unknown int
}

func newEventCheck(out io.Writer, strict, asJSON bool) (*eventCheck, error) {
	open, err := validation.New(schemas.Files)
	if err != nil {
		return nil, err
	}
	c := &eventCheck{out: out, asJSON: asJSON, forms: []*validation.Validator{open}}
	if strict {
		closed, err := validation.NewClosed(schemas.Files)
		if err != nil {
			return nil, err
		}
		c.forms = append(c.forms, closed)
	}
	return c, nil
}

// all checks the sources. It fails if an event is not valid or has an unknown type.
func (c *eventCheck) all(sources []cmdutil.Source) error {
	for _, s := range sources {
		before := c.invalid + c.unknown
		n, err := c.source(s)
		if err == nil && !c.asJSON && before == c.invalid+c.unknown {
			_, err = fmt.Fprintf(c.out, "%s: %s\n", s.Name, cmdutil.Count(n, "valid event"))
		}
		if err != nil {
			return err
		}
	}
	switch {
	case c.unknown > 0:
		return fmt.Errorf("%d of %s of an unknown type, %d not valid", c.unknown, cmdutil.Count(c.events, "event"), c.invalid)
	case c.invalid > 0:
		return fmt.Errorf("%d of %s not valid", c.invalid, cmdutil.Count(c.events, "event"))
	}
	return nil
}

// source checks the events in one source and returns their number. Invalid JSON counts as one event and ends the source.
func (c *eventCheck) source(s cmdutil.Source) (int, error) {
	n := 0
	values := json.NewDecoder(bytes.NewReader(s.Data))
	for {
		var value json.RawMessage
		if err := values.Decode(&value); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			c.events, c.invalid = c.events+1, c.invalid+1
			problem := validation.Problem{Got: beginning(s.Data[values.InputOffset():]), Want: "a JSON object: " + err.Error()}
			return n + 1, c.write(s.Name, n, "", validation.Problems{problem})
		}
		events := []json.RawMessage{value}
		if value[0] == '[' {
			if err := json.Unmarshal(value, &events); err != nil {
				return n, err
			}
		}
		for _, event := range events {
			if err := c.event(s.Name, n, event); err != nil {
				return n, err
			}
			n++
		}
	}
}

func (c *eventCheck) event(file string, index int, event json.RawMessage) error {
	c.events++
	var head struct {
		Type any `json:"type"`
	}
	_ = json.Unmarshal(event, &head) // only an object has a type
	typ, _ := head.Type.(string)
	for _, v := range c.forms {
		err := v.Validate(event)
		if problems, ok := errors.AsType[validation.Problems](err); ok {
			c.invalid++
			return c.write(file, index, typ, problems)
		}
		if errors.Is(err, validation.ErrUnknownType) {
			c.unknown++
			want := "one of " + strings.Join(schemas.EventTypes(), ", ")
			got, err := json.Marshal(typ)
			if err != nil {
				return err
			}
			return c.write(file, index, typ, validation.Problems{{Field: "/type", Got: got, Want: want}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// EventProblem is a line of schemas validate -o json.
type EventProblem struct {
	File  string `json:"file"`
	Index int    `json:"index"`
	Type  string `json:"type,omitempty"`
	validation.Problem
}

func (c *eventCheck) write(file string, index int, typ string, problems validation.Problems) error {
	lines := json.NewEncoder(c.out)
	lines.SetEscapeHTML(false)
	for _, p := range problems {
		var err error
		if c.asJSON {
			err = lines.Encode(EventProblem{File: file, Index: index, Type: typ, Problem: p})
		} else {
			_, err = fmt.Fprintf(c.out, "%s[%d]: %s: %s\n", file, index, cmp.Or(typ, "no type"), p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beginning is the first line of text that is not JSON.
func beginning(data []byte) json.RawMessage {
	line, _, _ := bytes.Cut(bytes.TrimSpace(data), []byte("\n"))
	text, err := json.Marshal(strings.ToValidUTF8(string(line[:min(len(line), 40)]), "�"))
	if err != nil {
		return nil
	}
	return text
}
