// Package filetest reads and writes files in tests.
package filetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Read returns the text of a file. It joins the elements of the path.
func Read(t testing.TB, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	expect.Must(t, err)
	return string(text)
}

// Write writes a file that only its owner may read.
func Write(t testing.TB, path, text string) {
	t.Helper()
	expect.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

// Golden compares a text with a file. With update it writes the file first: review it before the commit.
func Golden(t testing.TB, path, got string, update bool) {
	t.Helper()
	if update {
		expect.Must(t, os.MkdirAll(filepath.Dir(path), 0o750))
		expect.Must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	if want := Read(t, path); got != want {
		t.Errorf("%s:\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// New writes a file into a new directory of the test, like [Write], and returns its path.
func New(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	Write(t, path, text)
	return path
}

// ShortDir returns a directory of the test for sockets: the path of t.TempDir is too long for them.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rehome-") //nolint:usetesting // t.TempDir is too long a path for a socket
	expect.Must(t, err)
	t.Cleanup(func() { expect.Must(t, os.RemoveAll(dir)) })
	return dir
}
