package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/cluster/supervisor"
)

const (
	// startTimeout limits a start. It takes seconds; the rest is for busy machines.
	startTimeout = 2 * time.Minute
	// probeInterval is the interval of readiness checks of a starting server, because readiness cannot be watched.
	probeInterval = 20 * time.Millisecond
	// logTail is how much of the log of a dead component an error repeats, in bytes.
	logTail = 4096
)

// start starts the components, each as soon as its dependencies are ready.
func (c *Cluster) start(ctx context.Context) error {
	ctx, cancel := c.bound(ctx, startTimeout)
	defer cancel()
	if err := c.startServers(ctx); err != nil {
		return err
	}
	return c.startControllers(ctx)
}

// startServers starts etcd and the API server.
func (c *Cluster) startServers(ctx context.Context) error {
	if err := c.run(c.components.etcdProcess()); err != nil {
		return err
	}
	if err := c.probe(ctx, http.DefaultClient, binaries.Etcd, "http://"+c.components.etcd.address()+"/readyz"); err != nil {
		return err
	}
	return c.startAPIServer(ctx)
}

// startControllers starts the clients of the API server.
func (c *Cluster) startControllers(ctx context.Context) error {
	for _, process := range []supervisor.Process{
		c.components.controllerManagerProcess(),
		c.components.schedulerProcess(),
		c.components.kwokProcess(),
	} {
		if err := c.run(process); err != nil {
			return err
		}
	}
	// The controller manager is ready when it has created this account, without which no pod can be created.
	return c.waitDefaultAccount(ctx, "default")
}

// run starts one component.
func (c *Cluster) run(process supervisor.Process) error {
	pid, err := c.supervisor.Start(process)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids[process.Name] = pid
	return nil
}

// StopAPIServer kills the API server. The other components keep running.
func (c *Cluster) StopAPIServer() error { return c.halt(binaries.APIServer) }

// StartAPIServer starts the API server after StopAPIServer and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	ctx, cancel := c.bound(ctx, startTimeout)
	defer cancel()
	return c.startAPIServer(ctx)
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	if err := c.run(c.components.apiServerProcess()); err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.RESTConfig())
	if err != nil {
		return err
	}
	return c.probe(ctx, client, binaries.APIServer, c.id.host+"/readyz")
}

// probe returns when url reports that the component name is ready.
func (c *Cluster) probe(ctx context.Context, client *http.Client, name, url string) error {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for !answersOK(ctx, client, url) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", name, context.Cause(ctx))
		}
	}
	return nil
}

// answersOK sends one request.
func answersOK(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// bound limits ctx to timeout and to the life of the components. Its cause says which one ended it.
func (c *Cluster) bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w (%v)", context.DeadlineExceeded, timeout))
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.broken:
			cancel(c.Err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); cancelTimeout() }
}

// deathError is the error about a component that ended, with its last output.
func deathError(exit supervisor.Exit) error {
	words, err := os.ReadFile(exit.Log)
	if err != nil {
		return fmt.Errorf("%s ended: %s (no log: %w)", exit.Name, exit.State, err)
	}
	words = words[max(0, len(words)-logTail):]
	return fmt.Errorf("%s ended: %s; the end of %s:\n%s", exit.Name, exit.State, exit.Log, strings.TrimSpace(string(bytes.ToValidUTF8(words, nil))))
}

// StopControllers kills the controller manager. Until [Cluster.StartControllers] no controller reacts, so a test can create
// owners and their pods by itself, faster than the controllers and the scheduler.
func (c *Cluster) StopControllers() error { return c.halt(binaries.ControllerManager) }

// StartControllers starts the controller manager after StopControllers. It reads all objects before it acts. If the API server is
// killed meanwhile, it can exit.
func (c *Cluster) StartControllers() error { return c.run(c.components.controllerManagerProcess()) }

// StopScheduler kills the scheduler. A scheduler that binds pods while the API server is killed can exit, because it then finds a
// pod on another node than the one it chose.
func (c *Cluster) StopScheduler() error { return c.halt(binaries.Scheduler) }

// StartScheduler starts the scheduler after StopScheduler.
func (c *Cluster) StartScheduler() error { return c.run(c.components.schedulerProcess()) }

// BackUpEtcd copies the data of etcd into a new directory. etcd pauses meanwhile, so the copy has one state of the cluster.
func (c *Cluster) BackUpEtcd(dir string) error {
	pid := c.Pids()[binaries.Etcd]
	if pid == 0 { // kill(0) would stop the test
		return fmt.Errorf("%s does not run", binaries.Etcd)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return errors.Join(os.CopyFS(dir, os.DirFS(c.components.file(etcdDir))), syscall.Kill(pid, syscall.SIGCONT))
}

// StopComponents kills all components. [Cluster.RestoreEtcd] starts them again.
func (c *Cluster) StopComponents() error {
	for _, name := range []string{binaries.Scheduler, binaries.ControllerManager, binaries.Kwok, binaries.APIServer, binaries.Etcd} {
		if err := c.halt(name); err != nil {
			return err
		}
	}
	return nil
}

// RestoreEtcd replaces the data of etcd with a copy by [Cluster.BackUpEtcd], and starts all components after
// [Cluster.StopComponents]. The resourceVersions continue from the copy.
func (c *Cluster) RestoreEtcd(ctx context.Context, dir string) error {
	data := c.components.file(etcdDir)
	if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(dir))); err != nil {
		return err
	}
	ctx, cancel := c.bound(ctx, startTimeout)
	defer cancel()
	if err := c.startServers(ctx); err != nil {
		return err
	}
	// The next kwok has another identity, and would wait until the leases of the nodes expire.
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if err := leases.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	return c.startControllers(ctx)
}

// halt kills a component.
func (c *Cluster) halt(name string) error {
	if err := c.supervisor.Stop(name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pids, name)
	return nil
}
