package try

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/validation"
)

func schemasValidateCommand() *cobra.Command {
	strict := false
	c := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Say what is wrong with events, by their schemas",
		Long: "Say what is wrong with events in the structured mode of CloudEvents, by their schemas: one JSON object, a JSON array\n" +
			"of them, or one after another as `rehome events -o json` prints them. Without a FILE, and for -, they are read from\n" +
			"standard input. Each field that is wrong is a line, a field that is missing too:\n" +
			"FILE[INDEX]: TYPE: JSON POINTER: got what stands there, want what would be right. The first event is 0.\n\n" +
			"The schemas are open: fields and values that they do not know are allowed, since a newer version of Rehome may send\n" +
			"them. Who writes events gives --strict, which calls them wrong in an event that has nothing else wrong.\n\n" +
			"The exit code is 0 when all events are valid, 1 when one is not, and 2 when a file cannot be read or there is no\n" +
			"schema for the type of an event. With -o json each problem is an object with the fields file, index, type, field,\n" +
			"got and want; no output means that all is valid.",
		Example: "  rehome events --since 1h -o json | rehome schemas validate\n" +
			"  rehome schemas validate --strict answer.json    # what a function of your own answers\n" +
			"  rehome schemas print intents --example | rehome schemas validate -o json -",
	}
	c.Flags().BoolVar(&strict, "strict", strict, "refuse fields and values that the schemas do not know")
	format := command.OutputFlag(c, "text", "text, or json: one problem a line")
	c.RunE = func(c *cobra.Command, names []string) error {
		asJSON, err := format()
		if err != nil {
			return err
		}
		sources, err := eventSources(names, c.InOrStdin())
		if err != nil {
			return err
		}
		check, err := newEventCheck(c.OutOrStdout(), strict, asJSON)
		if err != nil {
			return err
		}
		return check.all(sources)
	}
	return c
}

// eventSources reads the files, or standard input without any.
func eventSources(names []string, stdin io.Reader) ([]command.Source, error) {
	if len(names) == 0 {
		names = []string{command.StandardInput}
	}
	var sources []command.Source
	var unreadable policy.Problems
	for _, name := range names {
		s, err := command.ReadSource(name, stdin)
		problems, _ := errors.AsType[policy.Problems](err)
		sources, unreadable = append(sources, s), append(unreadable, problems...)
	}
	if len(unreadable) > 0 {
		return nil, usage.Wrap(unreadable)
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
func (c *eventCheck) all(sources []command.Source) error {
	for _, s := range sources {
		before := c.invalid + c.unknown
		n, err := c.source(s)
		if err == nil && !c.asJSON && before == c.invalid+c.unknown {
			_, err = fmt.Fprintf(c.out, "%s: %s\n", s.Name, command.Count(n, "valid event"))
		}
		if err != nil {
			return err
		}
	}
	switch {
	case c.unknown > 0:
		return usage.Errorf("%d of %s of an unknown type, %d not valid", c.unknown, command.Count(c.events, "event"), c.invalid)
	case c.invalid > 0:
		return fmt.Errorf("%d of %s not valid", c.invalid, command.Count(c.events, "event"))
	}
	return nil
}

// source checks the events in one source and returns how many there are. What is not JSON counts as one, and nothing
// behind it is read.
func (c *eventCheck) source(s command.Source) (int, error) {
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
	_ = json.Unmarshal(event, &head) // what is no object has no type
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

type eventProblem struct {
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
			err = lines.Encode(eventProblem{File: file, Index: index, Type: typ, Problem: p})
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
