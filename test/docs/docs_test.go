// Package docs tests what the documentation says, as far as a program can.
package docs

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// root is the folder of the repository.
const root = "../.."

// pages returns the Markdown files of the repository, except in hidden folders and build folders.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(name) > 1 && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if path.Ext(name) == ".md" {
			found = append(found, name)
		}
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("pages: got %d, error %v", len(found), err)
	}
	return found
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^ *```.*?^ *```|^    .*?$")
	codeInline = regexp.MustCompile("`[^`\n]*`")
	link       = regexp.MustCompile(`\]\(([^)\s]+)[^)]*\)|(?m:^\[[^\]]+\]:\s*(\S+))`)
	heading    = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	notInName  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// links lists where the links of a page lead to.
func links(page string) []string {
	page = codeInline.ReplaceAllString(codeBlock.ReplaceAllString(page, ""), "")
	var targets []string
	for _, m := range link.FindAllStringSubmatch(page, -1) {
		targets = append(targets, m[1]+m[2])
	}
	return targets
}

// anchors returns the anchors of the headings of a page, as GitHub generates them.
func anchors(page string) []string {
	var names []string
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		name := notInName.ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// dangling lists the links of the page to missing files and headings. Links to other places are not
// followed: a test does not use the network.
func dangling(files fs.FS, page, text string) []string {
	var found []string
	for _, target := range links(text) {
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		name, anchor, hasAnchor := strings.Cut(target, "#")
		to, content := page, text
		if name != "" {
			to = path.Join(path.Dir(page), name)
			if _, err := fs.Stat(files, to); err != nil {
				found = append(found, target)
				continue
			}
		}
		if hasAnchor && strings.HasSuffix(to, ".md") {
			if name != "" {
				b, _ := fs.ReadFile(files, to)
				content = string(b)
			}
			if !slices.Contains(anchors(content), anchor) {
				found = append(found, target)
			}
		}
	}
	return found
}

func TestLinksToFiles(t *testing.T) {
	for _, page := range pages(t) {
		text := filetest.Read(t, root, page)
		for _, target := range dangling(os.DirFS(root), page, text) {
			t.Errorf("%s: link to %s, which is not there", page, target)
		}
	}
}

// TestContents finds pages that the table of contents, which is also the sidebar of the site, does not list.
func TestContents(t *testing.T) {
	contents := filetest.Read(t, root, "docs/README.md")
	all, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil || len(all) < 30 {
		t.Fatalf("got %d pages, want at least 30, error %v", len(all), err)
	}
	for _, file := range all {
		if name := filepath.Base(file); name != "README.md" && !strings.Contains(contents, "]("+name+") |") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

func TestDependencyDecisions(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(root, "go.mod")).Output()
	expect.Must(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, r := range mod.Require {
		if !r.Indirect {
			want = append(want, r.Path)
		}
	}
	text := filetest.Read(t, root, "docs/decisions/0001-dependencies.md")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("modules in the decision about dependencies:\n got %q\nwant the modules of go.mod, %q", got, want)
	}
}

func TestDecisionTemplate(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/decisions/*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("decisions: got %d files, error %v", len(files), err)
	}
	numbers := map[string]string{}
	for _, file := range files {
		text := filetest.Read(t, file)
		name := filepath.Base(file)
		number, _, _ := strings.Cut(name, "-")
		if other, taken := numbers[number]; taken {
			t.Errorf("%s and %s have the same number", other, name)
		}
		numbers[number] = name
		if number != "0000" && !strings.HasPrefix(text, "# "+number+": ") {
			t.Errorf("%s: its title does not begin with %s", name, number)
		}
		if got, want := anchors(text)[1:], []string{"context", "decision", "consequences", "alternatives"}; !slices.Equal(got, want) {
			t.Errorf("%s: sections are %q, want %q", name, got, want)
		}
	}
}
