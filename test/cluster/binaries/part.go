package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The names of the files that Build leaves in its directory.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Kwok              = "kwok"
	Stages            = "stages.yaml" // The kwok stages for nodes and pods.
	Supervise         = "supervise"
)

// release is a release of Kubernetes that a test cluster can run.
type release struct {
	minor   string
	version string // The programs report it, because a build from a module does not know it. It must match the go.mod of the module.
	module  string // Folder with the go.mod, next to this file.
}

// releases are all releases. The first one is the default, and the version of kubectl.
var releases = []release{
	{"1.36", "v1.36.3", "kubernetes"},
	{"1.35", "v1.35.4", "kubernetes-1.35"},
	{"1.37", "v1.37.2", "kubernetes-1.37"},
}

// ReleaseVariable is the environment variable with the Kubernetes release of test clusters, such as 1.35.
const ReleaseVariable = "REHOME_TEST_KUBERNETES"

// chosenRelease returns the release that the environment names.
func chosenRelease() (release, error) {
	minor := os.Getenv(ReleaseVariable)
	var known []string
	for _, r := range releases {
		if minor == r.minor || minor == "" {
			return r, nil
		}
		known = append(known, r.minor)
	}
	return release{}, fmt.Errorf("%s: want one of %s, got %q", ReleaseVariable, strings.Join(known, ", "), minor)
}

// folder returns the name of the default directory of the programs below .build.
func (r release) folder() string {
	if r == releases[0] {
		return "controlplane"
	}
	return "controlplane-" + r.minor
}

// ldflags make a program report the version.
func (r release) ldflags() string {
	major, minor, _ := strings.Cut(r.minor, ".")
	var flags []string
	for _, set := range []string{"gitVersion=" + r.version, "gitMajor=" + major, "gitMinor=" + minor} {
		flags = append(flags, "-X k8s.io/component-base/version."+set)
	}
	return strings.Join(flags, " ")
}

// part is one file to build.
type part struct {
	name    string
	module  string   // Folder of the go.mod to build in, from the repository root.
	pkg     string   // Package of the program.
	ldflags string   // In addition to the flags of every part.
	sources []string // Globs of our own Go files in it, from the repository root.
	output  bool     // the file is the output of the program, not the program
}

// parts lists all parts, the quick ones first, so a broken setup fails before the long builds.
func (r release) parts() []part {
	const modules = "test/cluster/binaries/"
	kubernetes := func(name string) part {
		return part{name: name, module: modules + r.module, pkg: "k8s.io/kubernetes/cmd/" + name, ldflags: r.ldflags()}
	}
	return []part{
		{
			name: Supervise, module: ".", pkg: "./test/cluster/cmd/supervise",
			sources: []string{"test/cluster/cmd/supervise/*.go", "test/cluster/supervisor/*.go"},
		},
		{
			name: Stages, module: modules + "kwok", pkg: "./stages", output: true,
			sources: []string{modules + "kwok/stages/*.go"},
		},
		{name: Etcd, module: modules + "etcd", pkg: "go.etcd.io/etcd/server/v3"},
		{name: Kwok, module: modules + "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok"},
		kubernetes(APIServer),
		kubernetes(ControllerManager),
		kubernetes(Scheduler),
		{
			name: Kubectl, module: modules + "kubectl", pkg: ".", ldflags: releases[0].ldflags(),
			sources: []string{modules + "kubectl/*.go"},
		},
	}
}

// args returns the arguments of go that build the part into the file out.
func (p part) args(out string) []string {
	flags := []string{"-buildvcs=false", "-trimpath", "-ldflags", "-s -w " + p.ldflags}
	if p.output {
		return append(append([]string{"run"}, flags...), p.pkg)
	}
	return append(append([]string{"build", "-o", out}, flags...), p.pkg)
}

// stamp returns a hash of all inputs of the part. The project's own go.mod does not count, because programs that are
// built in it import only the standard library.
func (p part) stamp(root, goVersion string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, goVersion, p.args(p.name))
	var files []string
	if p.module != "." {
		files = append(files, filepath.Join(root, p.module, "go.mod"), filepath.Join(root, p.module, "go.sum"))
	}
	for _, glob := range p.sources {
		found, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			return "", fmt.Errorf("sources of %s: %w", p.name, err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		if err := addFile(hash, name); err != nil {
			return "", fmt.Errorf("sources of %s: %w", p.name, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// addFile adds the content of a file to a hash.
func addFile(hash io.Writer, name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(name), len(content), content)
	return err
}
