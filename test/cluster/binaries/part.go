package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// kubernetesVersion is the version that the Kubernetes programs report. It must match kubernetes/go.mod and
// kubectl/go.mod, because a build from a module does not know it.
const (
	kubernetesVersion = "v1.36.3"
	kubernetesMajor   = "1"
	kubernetesMinor   = "36"
)

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
func parts() []part {
	const (
		modules = "test/cluster/binaries/"
		version = "-X k8s.io/component-base/version."
		stamp   = version + "gitVersion=" + kubernetesVersion +
			" " + version + "gitMajor=" + kubernetesMajor + " " + version + "gitMinor=" + kubernetesMinor
	)
	kubernetes := func(name string) part {
		return part{name: name, module: modules + "kubernetes", pkg: "k8s.io/kubernetes/cmd/" + name, ldflags: stamp}
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
			name: Kubectl, module: modules + "kubectl", pkg: ".", ldflags: stamp,
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
