package policy

import (
	"fmt"
	"slices"
)

// conflict is two presets that would undo each other's work, or do the same work twice.
type conflict struct {
	one, other string
	why        string
}

func presetConflicts() []conflict {
	const (
		fills  = "one spreads the pods that the other packs together"
		twice  = "both do the same, one of them to more pods"
		differ = "both relieve busy nodes, each by its own measure"
	)
	return []conflict{
		{"CompactAndScale", "LifecycleAndUtilization", fills},
		{"CompactAndScale", "LongLifecycle", fills},
		{"CompactAndScale", "KubeVirtRelieveAndMigrate", fills},
		{"CompactAndScale", "TopologyAndDuplicates", fills},
		{"SoftTopologyAndDuplicates", "TopologyAndDuplicates", twice},
		{"LongLifecycle", "LifecycleAndUtilization", twice},
		{"KubeVirtRelieveAndMigrate", "LongLifecycle", differ},
		{"KubeVirtRelieveAndMigrate", "LifecycleAndUtilization", differ},
	}
}

// chosen is a preset of the file.
type chosen struct {
	preset
	written string // the name that it has there
	path    string
}

// choose finds the presets that the file names, and reports those that cannot be: unknown ones, one twice, and two that
// conflict, which is said of the later one.
func (r *reader) choose(written []string) []chosen {
	var all []chosen
	for i, name := range written {
		at := "presets" + Item(i)
		row, known := findPreset(name)
		if !known {
			r.check(at, &FieldError{Value: name, Reason: "is not a preset", Right: suggest(name, presetNames())})
			continue
		}
		before := slices.IndexFunc(all, func(c chosen) bool { return c.name == row.name })
		switch {
		case before >= 0 && all[before].written != name:
			r.check(at, &FieldError{Value: name, Reason: "is another name of " + all[before].written, Right: "keep one"})
			continue
		case before >= 0:
			r.check(at, &FieldError{Value: name, Reason: "is given twice", Right: "keep one"})
			continue
		}
		for _, c := range all {
			if why, conflicts := conflictOf(c.name, row.name); conflicts {
				r.check(at, &FieldError{Value: name, Right: "keep one",
					Reason: fmt.Sprintf("cannot be used together with %s: %s", c.written, why)})
			}
		}
		all = append(all, chosen{row, name, at})
	}
	return all
}

func conflictOf(a, b string) (why string, conflicts bool) {
	for _, c := range presetConflicts() {
		if c.one == a && c.other == b || c.one == b && c.other == a {
			return c.why, true
		}
	}
	return "", false
}

// findPreset finds a preset by its name, or by one that it had.
func findPreset(name string) (preset, bool) {
	for _, p := range presets() {
		if p.name == name || slices.Contains(p.older, name) {
			return p, true
		}
	}
	return preset{}, false
}

func presetNames() []string {
	var all []string
	for _, p := range presets() {
		all = append(all, p.name)
	}
	slices.Sort(all)
	return all
}
