// Command copies writes what the chart of Helm has of other files in deploy, since a chart can only read its own folder:
//
//	go run ./test/chart/copies FOLDER
//
// It copies the default policy, the kinds, the rules of RBAC, the alerts and the dashboard into FOLDER. make generate calls it.
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
		fmt.Fprintln(os.Stderr, "copies:", err)
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
	files, err := copies(filepath.Join(root, "deploy"))
	if err != nil {
		return err
	}
	return write(args[0], files)
}

// write writes files into a folder, and removes the other ones that are in its subfolders.
func write(folder string, files map[string][]byte) error {
	present, err := filepath.Glob(filepath.Join(folder, "*", "*"))
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
