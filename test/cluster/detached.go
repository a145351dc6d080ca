package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rehome-dev/rehome/test/cluster/supervisor"
)

// Detach lets the cluster outlive the calling process. After that, only [Terminate] ends it.
func (c *Cluster) Detach() error { return c.supervisor.Detach() }

// Running describes a cluster that another process has started.
type Running struct {
	Dir        string
	Kubeconfig string // Path of a kubeconfig file for the administrator.
	Supervisor int    // Process id.
}

// Find returns the cluster in dir, and whether there is one.
func Find(dir string) (Running, bool, error) {
	pid, err := supervisor.Holder(dir)
	if err != nil || pid == 0 {
		return Running{}, false, err
	}
	return Running{Dir: dir, Kubeconfig: filepath.Join(dir, kubeconfigFile), Supervisor: pid}, true, nil
}

// Terminate ends the cluster in dir, even if another process started it, and returns when its processes and dir are gone. It
// returns false if dir has no cluster. It also removes the leftovers of a cluster whose supervisor was killed, and leaves any
// other directory unchanged.
func Terminate(ctx context.Context, dir string) (bool, error) {
	running, err := supervisor.Terminate(ctx, dir)
	if err != nil || running {
		return running, err
	}
	if _, err := os.Stat(filepath.Join(dir, kubeconfigFile)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return false, fmt.Errorf("remove what a killed cluster left: %w", err)
	}
	return false, nil
}
