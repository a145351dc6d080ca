package cmdutil

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

// kinds are the types with a short name.
var kinds = []struct{ kind, short, group string }{ //nolint:gochecknoglobals // a table that nothing changes
	{"Pod", "po", ""}, {"Node", "no", ""},
	{"Deployment", "deploy", "apps"}, {"StatefulSet", "sts", "apps"}, {"DaemonSet", "ds", "apps"}, {"ReplicaSet", "rs", "apps"},
	{"Job", "job", "batch"}, {"ReplicationController", "rc", ""},
}

// KindNames returns the types that [Resources] knows, in the form that users type.
func KindNames() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, strings.ToLower(k.kind))
	}
	return names
}

// Resources parses TYPE NAME... or TYPE/NAME like kubectl. An unknown type is the kind of another workload.
func Resources(args []string) (kind string, names []string, err error) {
	typ, name, joined := strings.Cut(args[0], "/")
	names = args[1:]
	if joined {
		names = append([]string{name}, names...)
	}
	for _, n := range names {
		if n == "" || strings.Contains(n, "/") {
			return "", nil, fmt.Errorf("want TYPE NAME or TYPE/NAME, got %q", strings.Join(args, " "))
		}
	}
	singular := func(text string) string { return strings.TrimSuffix(strings.ToLower(text), "s") }
	for _, k := range kinds {
		if strings.ToLower(typ) == k.short || singular(typ) == singular(k.kind) {
			return k.kind, names, nil
		}
	}
	return typ, names, nil
}

// Resource parses TYPE NAME or TYPE/NAME.
func Resource(args []string) (kind, name string, err error) {
	kind, names, err := Resources(args)
	if err == nil && len(names) != 1 {
		err = fmt.Errorf("want one TYPE NAME or TYPE/NAME, got %q", strings.Join(args, " "))
	}
	if err != nil {
		return "", "", err
	}
	return kind, names[0], nil
}

// Choose returns the functions with these names, or all without names.
func Choose(all []functions.Function, names []string) ([]functions.Function, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []functions.Function
	for _, name := range names {
		i := slices.Index(functions.Names(all), name)
		if i < 0 {
			return nil, fmt.Errorf("no strategy %q; there are: %v", name, functions.Names(all))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Source is the content of a file from the command line, or of standard input.
type Source struct {
	Name string
	Data []byte
}

// StandardInput is its name on the command line.
const StandardInput = "-"

// ReadSource reads a file. The error is of type [policy.Problems].
func ReadSource(file string, stdin io.Reader) (Source, error) {
	s := Source{Name: file}
	var err error
	if file == StandardInput {
		s.Name = "stdin"
		s.Data, err = io.ReadAll(stdin)
	} else {
		s.Data, err = os.ReadFile(file)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the problem names the file
	}
	if err != nil {
		return s, policy.Problems{{File: s.Name, Wrong: "cannot be read: " + err.Error()}}
	}
	return s, nil
}

// ReadPolicy reads and parses a policy file. The error is of type [policy.Problems].
func ReadPolicy(file string, stdin io.Reader) (Source, policy.Policy, error) {
	s, err := ReadSource(file, stdin)
	if err != nil {
		return s, policy.Policy{}, err
	}
	p, err := policy.Parse(s.Name, s.Data, settings.Strategies())
	return s, p, err
}
