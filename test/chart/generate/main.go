// Command generate writes the generated files of the Helm chart:
//
//	go run ./test/chart/generate CHART
//
//	copies.go   files/: the policy, the rules of RBAC, the alerts, and the dashboard, since a chart can only read its own folder
//	values.go   values.schema.json, from the comments in values.yaml and the JSON Schema of the policy
//	readme.go   README.md, from README.md.gotmpl and the comments in values.yaml
//
// It reads the sources in the repository and writes into the folder CHART. make generate calls it.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one folder, got %q", args)
	}
	root, err := binaries.Root()
	if err != nil {
		return err
	}
	files, err := generate(root)
	if err != nil {
		return err
	}
	return write(args[0], files)
}

// generate returns all generated files by their names in the chart.
func generate(root string) (map[string][]byte, error) {
	files, err := copies(filepath.Join(root, "deploy"))
	if err != nil {
		return nil, err
	}
	sources := map[string][]byte{}
	for _, name := range []string{"deploy/helm/rehome/values.yaml", "deploy/helm/rehome/README.md.gotmpl", "policy/policy.schema.json"} {
		if sources[filepath.Base(name)], err = os.ReadFile(filepath.Join(root, filepath.FromSlash(name))); err != nil {
			return nil, err
		}
	}
	values, err := readValues(sources["values.yaml"])
	if err != nil {
		return nil, err
	}
	if files["README.md"], err = readme(values, sources["README.md.gotmpl"]); err != nil {
		return nil, err
	}
	files["values.schema.json"], err = valuesSchema(values, sources["policy.schema.json"])
	return files, err
}

// write writes files into a chart, and removes other files in the folders below files/.
func write(folder string, files map[string][]byte) error {
	present, err := filepath.Glob(filepath.Join(folder, "files", "*", "*"))
	if err != nil {
		return err
	}
	for _, path := range present {
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if _, wanted := files[filepath.ToSlash(name)]; !wanted {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}
