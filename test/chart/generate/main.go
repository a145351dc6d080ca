// Command generate writes the generated files of the Helm charts rehome and rehome-crds:
//
//	go run ./test/chart/generate FOLDER
//
//	copies.go   files/: the policy, the strategies, the rules of RBAC, the alerts, the dashboard, and the CRDs, since a chart can only
//	            read its own folder
//	values.go   values.schema.json, from the comments in values.yaml and the JSON Schema of the policy
//	readme.go   README.md, from README.md.gotmpl and the comments in values.yaml
//
// It reads the sources in the repository and writes into FOLDER. make generate calls it.
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

// generate returns all generated files by their names in deploy/helm.
func generate(root string) (map[string][]byte, error) {
	files, err := copies(filepath.Join(root, "deploy"))
	if err != nil {
		return nil, err
	}
	policy, err := os.ReadFile(filepath.Join(root, "policy", "policy.schema.json"))
	if err != nil {
		return nil, err
	}
	for chart, policy := range map[string][]byte{"rehome": policy, "rehome-crds": nil} {
		if err := describe(filepath.Join(root, "deploy", "helm"), chart, policy, files); err != nil {
			return nil, fmt.Errorf("%s: %w", chart, err)
		}
	}
	return files, nil
}

// describe adds the schema and the README of a chart.
func describe(folder, chart string, policy []byte, files map[string][]byte) error {
	text, err := os.ReadFile(filepath.Join(folder, chart, "values.yaml"))
	if err != nil {
		return err
	}
	values, err := readValues(text)
	if err != nil {
		return err
	}
	if text, err = os.ReadFile(filepath.Join(folder, chart, "README.md.gotmpl")); err != nil {
		return err
	}
	if files[chart+"/README.md"], err = readme(values, text); err != nil {
		return err
	}
	files[chart+"/values.schema.json"], err = valuesSchema(chart, values, policy)
	return err
}

// write writes files into a folder, and removes other files in the folders below the folders files of charts.
func write(folder string, files map[string][]byte) error {
	present, err := filepath.Glob(filepath.Join(folder, "*", "files", "*", "*"))
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
