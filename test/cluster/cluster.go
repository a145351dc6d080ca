package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/cluster/supervisor"
)

// Cluster is a running control plane. Use [Start] to make one.
type Cluster struct {
	options    Options
	id         identities
	components components
	supervisor *supervisor.Supervisor
	client     kubernetes.Interface
	ports      []port
	broken     chan struct{} // Closed when a component has died.
	stopped    chan struct{} // Closed when Stop begins.
	stopOnce   func() error

	audit auditReader
	mu    sync.Mutex
	err   error          // Why broken is closed.
	pids  map[string]int // By component.
	nodes int            // How many nodes AddNodes has named.
}

// Start builds missing programs, starts a control plane, and returns when it accepts requests. ctx limits only the start; the
// cluster runs until Stop, or until the calling process ends. If Start fails, it leaves nothing behind, and the error quotes the
// log of the failed component.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	set, err := binaries.Build(ctx, binaries.Options{Dir: options.Binaries, Progress: options.Progress})
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	options, err = options.prepare()
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	c, err := newCluster(set, options)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), os.RemoveAll(options.Dir))
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Stop())
	}
	return c, nil
}

// newCluster writes the files of the cluster and launches its supervisor.
func newCluster(set binaries.Set, options Options) (*Cluster, error) {
	ports, err := reservePorts(3)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		options:    options,
		components: components{dir: options.Dir, set: set, options: options, etcd: ports[0], etcdPeer: ports[1], api: ports[2]},
		ports:      ports,
		broken:     make(chan struct{}),
		stopped:    make(chan struct{}),
		pids:       map[string]int{},
	}
	if options.ForwardTo != "" {
		if c.components.kubelet, err = freeKubeletPort(); err != nil {
			releasePorts(ports)
			return nil, err
		}
	}
	c.stopOnce = sync.OnceValue(c.stop)
	if err := c.prepare(); err != nil {
		releasePorts(ports)
		return nil, err
	}
	go c.watchComponents()
	return c, nil
}

// prepare writes the files and launches the supervisor.
func (c *Cluster) prepare() error {
	var err error
	c.id, err = newIdentities(c.options.Dir, "https://"+c.components.api.address(), c.options.Users)
	if err != nil {
		return err
	}
	if err := c.components.writeFiles(c.id); err != nil {
		return err
	}
	config := c.RESTConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	c.supervisor, err = supervisor.Launch(c.components.set.Path(binaries.Supervise), supervisor.Config{
		Dir: c.options.Dir,
		Log: filepath.Join(c.options.LogDir, "supervise.log"),
	})
	return err
}

// watchComponents records the first component that dies.
func (c *Cluster) watchComponents() {
	var err error
	select {
	case exit := <-c.supervisor.Exits():
		err = deathError(exit)
	case <-c.supervisor.Ended():
		log := filepath.Join(c.options.LogDir, "supervise.log")
		err = deathError(supervisor.Exit{Name: binaries.Supervise, State: "gone", Log: log})
	case <-c.stopped:
		return
	}
	select {
	case <-c.stopped: // An exit after Stop is expected.
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = err
		close(c.broken)
	}
}

// Stop ends all processes of the cluster and removes its directory, which takes some hundred milliseconds. It returns an error if
// the cleanup is incomplete. A second call is harmless. It does not return earlier errors: see [Cluster.Err]. A detached cluster
// keeps running.
func (c *Cluster) Stop() error { return c.stopOnce() }

func (c *Cluster) stop() error {
	close(c.stopped)
	releasePorts(c.ports)
	if c.supervisor.Detached() {
		return nil
	}
	err := c.supervisor.Close()
	// A killed supervisor could not remove the directory.
	if err := errors.Join(err, os.RemoveAll(c.options.Dir)); err != nil {
		return fmt.Errorf("stop cluster: %w", err)
	}
	return nil
}

// Err returns an error about the component that died, with its last log lines, or nil while all run. Components that were stopped
// on purpose do not count.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Kubeconfig returns the path of a kubeconfig file for the administrator.
func (c *Cluster) Kubeconfig() string { return c.components.file(kubeconfigFile) }

// Kubectl returns the path of a kubectl of the version of the API server.
func (c *Cluster) Kubectl() string { return c.components.set.Path(binaries.Kubectl) }

// RESTConfig returns a client configuration of the administrator without throttling. The caller may change it.
func (c *Cluster) RESTConfig() *rest.Config { return c.id.config(c.id.users[adminUser].Token) }

// UserConfig returns [Cluster.RESTConfig] for one of Options.Users. It fails for any other user.
func (c *Cluster) UserConfig(name string) (*rest.Config, error) {
	user, known := c.id.users[name]
	if !known {
		return nil, fmt.Errorf("user %q: not one of Options.Users", name)
	}
	return c.id.config(user.Token), nil
}

// Client returns a client of the administrator that uses protobuf and no throttling.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// AuditLog returns the path of the API server's audit log, one JSON object per line. See [Cluster.Audit].
func (c *Cluster) AuditLog() string { return c.components.file(auditLogFile) }

// Dir returns the directory of the cluster.
func (c *Cluster) Dir() string { return c.options.Dir }

// LogDir returns the directory of the components' log files.
func (c *Cluster) LogDir() string { return c.options.LogDir }

// Pids returns the process IDs of the running components and of their supervisor, by name, to measure the cost of a cluster.
func (c *Cluster) Pids() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := maps.Clone(c.pids)
	pids[binaries.Supervise] = c.supervisor.Pid()
	return pids
}
