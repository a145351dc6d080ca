package program

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// Example is the command of an example in docs/examples.
type Example struct {
	Program   string
	Arguments []string
}

// GoExample builds the example in a folder of docs/examples, like [Build].
func GoExample(folder string) (Example, error) {
	path, err := build(folder, "./docs/examples/"+folder)
	return Example{Program: path}, err
}

// PythonExample returns the example in a file of docs/examples. It requires Python.
func PythonExample(file string) (Example, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return Example{}, fmt.Errorf("the Python examples need python3 3.9 or later in PATH: %w", err)
	}
	root, err := binaries.Root()
	if err != nil {
		return Example{}, err
	}
	return Example{python, []string{"-B", filepath.Join(root, "docs/examples", file)}}, nil
}

// Start starts the example with more arguments and an environment.
func (e Example) Start(environment []string, arguments ...string) (*Program, error) {
	return Start(e.Program, slices.Concat(e.Arguments, arguments), environment)
}
