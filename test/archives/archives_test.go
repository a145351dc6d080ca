package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// everywhere lists the platforms of a release.
const everywhere = "linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64"

// packed packs fake programs for all platforms, and returns the directory.
func packed(t *testing.T, version string) string {
	t.Helper()
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	programs, out := t.TempDir(), t.TempDir()
	for platform := range strings.FieldsSeq(everywhere) {
		name := "rehome"
		if strings.HasPrefix(platform, "windows/") {
			name = "rehome.exe"
		}
		dir := filepath.Join(programs, strings.ReplaceAll(platform, "/", "-"))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("the program for "+platform), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err = run([]string{"-version", version, "-created", "1700000000", "-platforms", everywhere, "-programs", programs, "-root", root, "-out", out}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// read reads a file.
func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// members returns the mode and content of each file in an archive by name.
func members(t *testing.T, path string) map[string]string {
	t.Helper()
	all, text := map[string]string{}, read(t, path)
	add := func(name string, mode os.FileMode, r io.Reader) {
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = fmt.Sprintf("%v %s", mode.Perm(), content)
	}
	if strings.HasSuffix(path, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Name, f.Mode(), r)
			r.Close()
		}
		return all
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		add(h.Name, os.FileMode(h.Mode), r)
	}
}

func TestArchiveContents(t *testing.T) {
	dir := packed(t, "v1.2.3")
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	licence := "-rw-r--r-- " + string(read(t, filepath.Join(root, "LICENSE")))
	completion := "-rwxr-xr-x " + string(read(t, filepath.Join(root, "deploy/krew/kubectl_complete-rehome")))
	for platform := range strings.FieldsSeq(everywhere) {
		stem := filepath.Join(dir, "rehome-v1.2.3-"+strings.ReplaceAll(platform, "/", "-"))
		program := "-rwxr-xr-x the program for " + platform
		path, want := stem+".tar.gz", map[string]string{"rehome": program, "LICENSE": licence, "kubectl_complete-rehome": completion}
		if strings.HasPrefix(platform, "windows/") {
			path, want = stem+".zip", map[string]string{"rehome.exe": program, "LICENSE": licence}
		}
		if got := members(t, path); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %.300v\nwant %.300v", path, got, want)
		}
	}
}

func TestReproducibleArchives(t *testing.T) {
	a, b := packed(t, "v1.2.3"), packed(t, "v1.2.3")
	files, err := os.ReadDir(a)
	if err != nil || len(files) != 10 {
		t.Fatalf("%d files, %v; want six archives, two schemas, their sums and the manifest", len(files), err)
	}
	for _, f := range files {
		if !bytes.Equal(read(t, filepath.Join(a, f.Name())), read(t, filepath.Join(b, f.Name()))) {
			t.Errorf("%s differs", f.Name())
		}
	}
}

// plugin is a krew manifest.
type plugin struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Version, Homepage, Description, Caveats string
		ShortDescription                        string `yaml:"shortDescription"`
		Platforms                               []struct {
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			URI, Sha256, Bin string
			Files            []struct{ From, To string }
		}
	}
}

func parse(t *testing.T, text []byte) (p plugin) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestManifestChecksums(t *testing.T) {
	dir := packed(t, "v1.2.3")
	text := read(t, filepath.Join(dir, "rehome.yaml"))
	p := parse(t, text)
	var sums strings.Builder
	for i, platform := range strings.Fields(everywhere) {
		system, machine, _ := strings.Cut(platform, "/")
		file, program := "rehome-v1.2.3-"+system+"-"+machine+".tar.gz", "rehome"
		if system == "windows" {
			file, program = "rehome-v1.2.3-"+system+"-"+machine+".zip", "rehome.exe"
		}
		sum := sha256.Sum256(read(t, filepath.Join(dir, file)))
		fmt.Fprintf(&sums, "%x  %s\n", sum, file)
		got := p.Spec.Platforms[i]
		labels := map[string]string{"os": system, "arch": machine}
		if !reflect.DeepEqual(got.Selector.MatchLabels, labels) || got.Sha256 != hex.EncodeToString(sum[:]) || got.Bin != program ||
			got.URI != "https://github.com/rehome-dev/rehome/releases/download/v1.2.3/"+file {
			t.Errorf("%s: got %+v", platform, got)
		}
	}
	for _, schema := range []string{"policy.schema.json", "cli.schema.json"} {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(read(t, filepath.Join(dir, schema))), schema)
	}
	if got := string(read(t, filepath.Join(dir, "SHA256SUMS"))); got != sums.String() || len(p.Spec.Platforms) != 6 {
		t.Errorf("%d platforms; got\n%s\nwant\n%s", len(p.Spec.Platforms), got, &sums)
	}
	if bytes.Contains(text, []byte("{{")) {
		t.Errorf("a template field is left:\n%s", text)
	}
}

// These are the rules of the krew index that a file can violate.
func TestKrewManifest(t *testing.T) {
	text := read(t, filepath.Join(packed(t, "v1.2.3"), "rehome.yaml"))
	p := parse(t, text)
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" || p.Metadata.Name != "rehome" {
		t.Errorf("the name of the plugin does not match its file: %+v", p.Metadata)
	}
	if s := p.Spec.ShortDescription; s == "" || len(s) > 50 || strings.Contains(s, "\n") || strings.HasSuffix(s, ".") ||
		strings.Contains(strings.ToLower(s), "kubectl") {
		t.Errorf("want one short line without kubectl, got %q", s)
	}
	if p.Spec.Description == "" || !released.MatchString(p.Spec.Version) || p.Spec.Homepage == "" {
		t.Errorf("want a description, a version, and a page, got %+v", p.Spec)
	}
	for line := range strings.Lines(p.Spec.Description + p.Spec.Caveats) {
		if len(line) > 81 {
			t.Errorf("line too long: %s", line)
		}
	}
	seen := map[string]bool{}
	for _, of := range p.Spec.Platforms {
		labels := fmt.Sprint(of.Selector.MatchLabels)
		if seen[labels] || !strings.HasPrefix(of.URI, "https://") || !regexp.MustCompile(`\.(tar\.gz|zip)$`).MatchString(of.URI) ||
			!regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(of.Sha256) || of.Bin == "" || filepath.IsAbs(of.Bin) || strings.Contains(of.Bin, "..") {
			t.Errorf("invalid or duplicate platform: %+v", of)
		}
		seen[labels] = true
		if len(of.Files) != 1 || of.Files[0] != struct{ From, To string }{"*", "."} {
			t.Errorf("%v does not install all files, including the license: %+v", labels, of.Files)
		}
	}
}

func TestManifestTemplateYAML(t *testing.T) {
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	if p := parse(t, read(t, filepath.Join(root, "deploy/krew/rehome.yaml"))); len(p.Spec.Platforms) != 1 {
		t.Errorf("got %+v", p)
	}
}

func TestManifestRequiresVersion(t *testing.T) {
	for _, version := range []string{"v1.2.3-4-gabcdef", "v1.2.3"} {
		if _, err := os.Stat(filepath.Join(packed(t, version), "rehome.yaml")); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
	for _, version := range []string{"abcdef1", "1.2.3", "v1.2"} {
		if _, err := os.Stat(filepath.Join(packed(t, version), "rehome.yaml")); !os.IsNotExist(err) {
			t.Errorf("%s has a manifest: %v", version, err)
		}
	}
}

func TestMissingProgram(t *testing.T) {
	err := run([]string{"-version", "v1.2.3", "-platforms", "plan9/386", "-programs", t.TempDir(), "-root", "../..", "-out", t.TempDir()}, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), "plan9/386: open ") {
		t.Errorf("got %v", err)
	}
}
