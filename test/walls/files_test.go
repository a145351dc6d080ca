package walls

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the folder of this module.
const root = "../.."

// missingFiles returns the missing Go files that package comments below a folder name, each after the file with the comment. A
// name is relative to the package or to the folder.
func missingFiles(folder string) (found []string, err error) {
	named := regexp.MustCompile(`[\w./-]*\w\.go\b`)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != folder && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir(), filepath.Ext(path) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		for _, name := range named.FindAllString(file.Doc.Text(), -1) {
			if !exists(filepath.Join(filepath.Dir(path), name)) && !exists(filepath.Join(folder, name)) {
				at, err := filepath.Rel(folder, path)
				if err != nil {
					return err
				}
				found = append(found, filepath.ToSlash(at)+": "+name)
			}
		}
		return nil
	})
	return found, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestFilesInPackageComments(t *testing.T) {
	if found, err := missingFiles(root); err != nil || len(found) > 0 {
		t.Errorf("error %v; missing files in package comments:\n%s", err, strings.Join(found, "\n"))
	}
}
