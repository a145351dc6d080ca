package program

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// Example says how to start an example of docs/examples: as which program, with which first arguments.
type Example struct {
	Program   string
	Arguments []string
}

// GoExample builds the example in that folder below docs/examples, as [Build] does.
func GoExample(folder string) (Example, error) {
	path, err := build(folder, "./docs/examples/"+folder)
	return Example{Program: path}, err
}

// PythonExample is the example in that file below docs/examples. Python has to be installed.
func PythonExample(file string) (Example, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return Example{}, fmt.Errorf("the examples in Python are a part of what is tested, and need python3 3.9 or later in PATH: %w", err)
	}
	root, err := binaries.Root()
	if err != nil {
		return Example{}, err
	}
	return Example{python, []string{"-B", filepath.Join(root, "docs/examples", file)}}, nil
}

// Start starts the example with further arguments and an environment. It runs until it is killed, or ends by itself.
func (e Example) Start(environment []string, arguments ...string) (*Program, error) {
	return Start(e.Program, slices.Concat(e.Arguments, arguments), environment)
}
