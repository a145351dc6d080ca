package walls

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// root is the folder of this module.
const root = "../.."

// TestFilesInPackageComments finds missing Go files that package comments name, relative to the package or to the root.
func TestFilesInPackageComments(t *testing.T) {
	named := regexp.MustCompile(`[\w./-]*\w\.go\b`)
	for _, p := range typed(t) {
		for _, file := range p.Syntax {
			for _, name := range named.FindAllString(file.Doc.Text(), -1) {
				if !exists(filepath.Join(p.Dir, name)) && !exists(filepath.Join(root, name)) {
					t.Errorf("%s: the package comment names %s, which does not exist", p.PkgPath, name)
				}
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
