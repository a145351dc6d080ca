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

// Options configure a cluster. The zero value is a good cluster.
type Options struct {
	// Dir holds everything that belongs to the cluster. It must not exist or be
	// empty, and is removed with the cluster. Default: a new temporary directory.
	Dir string
	// LogDir receives one log file for each component, and stays. Default: "logs"
	// in Dir, which goes with the cluster; errors quote what matters.
	LogDir string
	// Binaries is the directory of the programs. Default: .build/controlplane in the repository.
	Binaries string
	// Progress receives a line now and then while the programs are built.
	// Default: standard error.
	Progress io.Writer
	// Users are clients of the API server besides the administrator, with only the rights that RBAC gives them. See
	// [Cluster.UserConfig].
	Users []User
	// APIServerFlags are appended to the API server's, so they win.
	APIServerFlags []string
	// FeatureGates are switched in the API server, the controller manager and the
	// scheduler alike.
	FeatureGates map[string]bool
	// ScoringStrategy is how the scheduler scores nodes by their requests, such as MostAllocated. Default: LeastAllocated, as
	// in Kubernetes.
	ScoringStrategy string
	// Durable lets etcd sync each write to the disk, as in production. Without it, tests are faster.
	Durable bool
	// ForwardTo is the address that connections to any port of any pod reach with port forwarding, such as 127.0.0.1:20000. Default:
	// kwok serves no port forwarding.
	ForwardTo string
	// Parallelism bounds the requests that one helper has under way. Default: 16.
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

// prepare fills in the defaults and makes the directories.
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

// emptyDir makes dir, or a temporary directory, and returns its absolute path.
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
