package objects

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// StandardInput is the name of standard input.
const StandardInput = "-"

// Source is a text with objects.
type Source struct {
	// Name is for errors.
	Name string
	Data []byte
}

// Open reads whole files. A name is a file, [StandardInput], or a directory, whose .yaml, .yml, and .json files are read
// recursively. The sources are in the order of names, and the files of a directory in the order of their paths.
func Open(names []string, stdin io.Reader) ([]Source, error) {
	var sources []Source
	for _, name := range names {
		found, err := open(name, stdin)
		if err != nil {
			return nil, err
		}
		sources = append(sources, found...)
	}
	return sources, nil
}

func open(name string, stdin io.Reader) ([]Source, error) {
	if name == StandardInput {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return []Source{{Name: "stdin", Data: data}}, nil
	}
	var sources []Source
	err := filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path != name && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		data, err := os.ReadFile(path)
		sources = append(sources, Source{Name: path, Data: data})
		return err
	})
	if err == nil && len(sources) == 0 {
		err = fmt.Errorf("%s: no .yaml, .yml, or .json file in this directory", name)
	}
	return sources, err
}
