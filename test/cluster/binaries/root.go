package binaries

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Root returns the root of the repository that the working directory is in: the
// nearest folder upwards with the go.mod of github.com/rehome-dev/rehome.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("repository root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("repository root: %w", err)
		}
		first, _, _ := bytes.Cut(content, []byte("\n"))
		if string(bytes.TrimSpace(first)) == "module github.com/rehome-dev/rehome" {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("repository root: %s is not in the repository of github.com/rehome-dev/rehome", start)
		}
	}
}
