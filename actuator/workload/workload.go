// Package workload is the actuator's view of the cluster, see [cluster.Workloads].
package workload

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/cluster"
)

// What the view says.
type (
	Pod    = cluster.Pod
	Tally  = cluster.Tally
	Node   = cluster.Node
	Change = cluster.Change
)

// View is a view with a cache of its own.
type View struct {
	*cluster.Workloads
	cache *cluster.Cache
	err   error
}

// New makes a View that knows nothing until Run. client needs the right to list and watch [cluster.WorkloadKinds].
func New(client kubernetes.Interface, changed func(Change)) *View {
	c, err := cluster.New(cluster.Config{Client: client, Kinds: cluster.WorkloadKinds()})
	if err != nil {
		return &View{err: err}
	}
	if changed != nil {
		c.Workloads().OnChange(changed)
	}
	return &View{Workloads: c.Workloads(), cache: c}
}

// Run follows the cluster until ctx ends.
func (v *View) Run(ctx context.Context) error {
	if v.err != nil {
		return v.err
	}
	return v.cache.Run(ctx)
}

// Synced is closed when everything is known for the first time.
func (v *View) Synced() <-chan struct{} { return v.cache.Synced() }
