// Command archives packs the program for each platform with the license and the kubectl completion script. It also writes the
// schema of the policy, the krew manifest, and a list of checksums. The same inputs always give the same bytes. `make archives`
// runs it.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"
)

type request struct {
	version   string
	created   time.Time
	platforms []string
	programs  string // directory with OS-ARCH/rehome
	root, out string
}

// archive is an archive in the manifest.
type archive struct{ OS, Arch, Program, File, Sum string }

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "archives:", err)
		os.Exit(1)
	}
}

// run runs the command with its arguments, and writes its results to w.
func run(arguments []string, w io.Writer) error {
	var r request
	f := flag.NewFlagSet("archives", flag.ContinueOnError)
	f.StringVar(&r.version, "version", "", "version in the names")
	seconds := f.Int64("created", 0, "modification time of the files, in seconds since 1970")
	platforms := f.String("platforms", "", "such as linux/amd64, separated by spaces")
	f.StringVar(&r.programs, "programs", "", "directory with OS-ARCH/rehome")
	f.StringVar(&r.root, "root", ".", "the repository")
	f.StringVar(&r.out, "out", "", "directory to write to")
	if err := f.Parse(arguments); err != nil {
		return err
	}
	r.created, r.platforms = time.Unix(*seconds, 0).UTC(), strings.Fields(*platforms)
	if r.version == "" || r.programs == "" || r.out == "" || len(r.platforms) == 0 {
		return errors.New("want -version, -platforms, -programs, and -out")
	}
	return r.make(w)
}

// make writes all files and reports them to w.
func (r request) make(w io.Writer) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var all []archive
	var sums strings.Builder
	for _, platform := range r.platforms {
		a, err := r.pack(platform)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		all = append(all, a)
		fmt.Fprintf(&sums, "%s  %s\n", a.Sum, a.File)
	}
	for _, schema := range []string{"policy/policy.schema.json", "docs/cli.schema.json"} { // examples, editors, and scripts use these names
		text, err := os.ReadFile(filepath.Join(r.root, schema))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.out, filepath.Base(schema)), text, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), filepath.Base(schema))
	}
	fmt.Fprint(w, sums.String())
	if err := os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644); err != nil {
		return err
	}
	return r.fillIn(w, all)
}

// released matches a version for krew.
var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// fillIn writes the manifest, unless the version is not a release.
func (r request) fillIn(say io.Writer, all []archive) error {
	if !released.MatchString(r.version) {
		fmt.Fprintf(say, "no krew manifest, which needs a version such as v0.1.0, got %s\n", r.version)
		return nil
	}
	t, err := template.ParseFiles(filepath.Join(r.root, "deploy/krew/rehome.yaml"))
	if err != nil {
		return err
	}
	w, err := os.Create(filepath.Join(r.out, "rehome.yaml"))
	if err != nil {
		return err
	}
	err = t.Execute(w, struct {
		Version  string
		Archives []archive
	}{r.version, all})
	return errors.Join(err, w.Close())
}

// pack writes the archive of one platform.
func (r request) pack(platform string) (archive, error) {
	system, machine, _ := strings.Cut(platform, "/")
	a := archive{OS: system, Arch: machine, Program: "rehome"}
	members := []member{
		{name: "LICENSE", source: filepath.Join(r.root, "LICENSE"), mode: 0o644},
		{name: "kubectl_complete-rehome", source: filepath.Join(r.root, "deploy/krew/kubectl_complete-rehome"), mode: 0o755},
	}
	pack, ending := writeTar, ".tar.gz"
	if system == "windows" { // no shell scripts
		a.Program, members, pack, ending = "rehome.exe", members[:1], writeZip, ".zip"
	}
	members = append(members, member{name: a.Program, source: filepath.Join(r.programs, system+"-"+machine, a.Program), mode: 0o755})
	a.File = fmt.Sprintf("rehome-%s-%s-%s%s", r.version, system, machine, ending)
	path := filepath.Join(r.out, a.File)
	w, err := os.Create(path)
	if err != nil {
		return a, err
	}
	if err := errors.Join(pack(w, members, r.created), w.Close()); err != nil {
		return a, err
	}
	text, err := os.ReadFile(path)
	sum := sha256.Sum256(text)
	a.Sum = hex.EncodeToString(sum[:])
	return a, err
}
