// Command generate writes the files that derive from Go types and their comments:
//
//	schemas/*.go ──────────▶ schemas/v1/*.schema.json, schemas/v1/examples, schemas/asyncapi.yaml, docs/verdicts.md, docs/events.md
//	calls that declare metrics ─▶ docs/metrics.md
//
// It reads and writes below the working directory. make generate calls it.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rehome-dev/rehome/schemas"
)

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate() error {
	s, err := readSource("schemas", "schemas/v1alpha1", "hack/generate")
	if err != nil {
		return err
	}
	e := newEvents(s)
	all := e.all()
	for noun, schema := range all {
		text, err := indented(schema)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join("schemas/v1", noun+".schema.json"), text, 0o644); err != nil {
			return err
		}
	}
	for name, data := range schemas.Examples() {
		text, err := example(name, data)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join("schemas/v1/examples", name+".json"), text, 0o644); err != nil {
			return err
		}
	}
	text, err := asyncAPI(e, all["event"])
	if err != nil {
		return err
	}
	if err := os.WriteFile("schemas/asyncapi.yaml", text, 0o644); err != nil {
		return err
	}
	return errors.Join(
		region("docs/verdicts.md", "reasons", reasonRows(s)), region("docs/events.md", "types", typeRows(e)), metricPages(),
	)
}
