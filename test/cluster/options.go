package cluster

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// defaultParallelism saturates an API server on two cores.
const defaultParallelism = 16

// Options configure a cluster. The zero value is a useful cluster.
type Options struct {
	// Dir is the directory of the cluster. It must be empty or missing, and is removed with the cluster. Default: a new temporary
	// directory.
	Dir string
	// LogDir gets one log file per component, and is kept. Default: "logs" in Dir, which is removed; errors quote the important
	// lines.
	LogDir string
	// Binaries is the directory of the programs. Default: .build/controlplane in the repository.
	Binaries string
	// Progress receives progress lines while the programs are built. Default: standard error.
	Progress io.Writer
	// Users are further clients of the API server, with only the rights that RBAC grants. See [Cluster.UserConfig].
	Users []User
	// APIServerFlags are appended to the flags of the API server and override them.
	APIServerFlags []string
	// FeatureGates are set in the API server, the controller manager, and the scheduler.
	FeatureGates map[string]bool
	// ScoringStrategy is how the scheduler scores nodes by their requests, such as MostAllocated. Default: LeastAllocated, as
	// in Kubernetes.
	ScoringStrategy string
	// Durable lets etcd sync each write to the disk, as in production. Without it, tests are faster.
	Durable bool
	// ForwardTo is the address that connections to any port of any pod reach with port forwarding, such as 127.0.0.1:20000. Default:
	// kwok serves no port forwarding.
	ForwardTo string
	// Parallelism limits the parallel requests of one helper. Default: 16.
	Parallelism int
}

// User is a client of the API server with a token.
type User struct {
	Name   string
	Groups []string
	// Token is the bearer token. Default: a random one.
	Token string
}

// featureFlags renders the feature gates, in the order of their names.
func (o Options) featureFlags() []string {
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, o.FeatureGates[name]))
	}
	if len(gates) == 0 {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(gates, ",")}
}

// prepare sets the defaults and creates the directories.
func (o Options) prepare() (Options, error) {
	if o.Parallelism <= 0 {
		o.Parallelism = defaultParallelism
	}
	var err error
	if o.Dir, err = emptyDir(o.Dir); err != nil {
		return Options{}, err
	}
	if o.LogDir == "" {
		o.LogDir = filepath.Join(o.Dir, "logs")
	}
	if o.LogDir, err = filepath.Abs(o.LogDir); err != nil {
		return Options{}, err
	}
	return o, os.MkdirAll(o.LogDir, 0o755)
}

// emptyDir creates dir, or a temporary directory, and returns its absolute path.
func emptyDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "rehome-cluster-")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("directory %s is not empty", dir)
	}
	return dir, nil
}
