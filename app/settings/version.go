package settings

import "runtime/debug"

// Version and revision, which is the commit, are set by the linker.
var Version, revision = "development", ""

// Commit is what was built from: what the linker was told or, of a program that `go build` or `go install` made, what Go
// found out. Empty: nobody knows.
func Commit() string {
	if revision != "" {
		return revision
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}
