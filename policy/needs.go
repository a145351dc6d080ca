package policy

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// The arguments of a strategy can say more about what the strategy needs than its kind of scope does. Each of the
// interfaces below is one such need; arguments that do not have it do without. All methods are pure.

// Seeker are the arguments of a strategy that needs to know where else a pod could run. The answer is in the Elsewhere of
// the pod in the scope.
type Seeker interface {
	// Seeks says whether it needs to know that of this pod on this node.
	Seeks(pod *corev1.Pod, node *corev1.Node) bool
}

// Spreading are the arguments of a strategy whose scopes are of the kind [schemas.SpreadKind].
type Spreading interface {
	// Constraints are those of the pod that the strategy looks at. Each makes a group.
	Constraints(pod *corev1.Pod) []corev1.TopologySpreadConstraint
	// NeedsRoom: a pod moves only if it fits where fewer are, so that the scope has to say where that is.
	NeedsRoom() bool
}

// Gauged are the arguments of a strategy whose scopes are of the kind [schemas.UsageKind].
type Gauged interface {
	// Resources are those whose usage it looks at.
	Resources() []corev1.ResourceName
	// Load is where the usage is taken from.
	Load() Load
	// Sources are the names of the nodes whose pods it needs to see. None: it would move nothing.
	Sources(nodes []schemas.NodeUsage) []string
}

// Opaque are the arguments of a strategy of which nothing is known but its kind of scope and its Wakes: what it would find
// in a group of pods, nobody can foresee.
type Opaque interface {
	// Opaque is true when it is one: each group that there is makes a scope, and so does each change of a pod or a node that
	// is one of its Wakes, whether or not it changes the group.
	Opaque() bool
}

// Load says where the usage of nodes and pods is taken from. The zero value is what pods request.
type Load struct {
	Source LoadSource
	// Query is what Prometheus is asked, for LoadPrometheus alone. Its result is [schemas.LoadMetric].
	Query string
}

// LoadSource names a source of usage.
type LoadSource string

// The sources of usage.
const (
	LoadRequests   LoadSource = ""                  // what pods request
	LoadKubernetes LoadSource = "KubernetesMetrics" // metrics.k8s.io
	LoadPrometheus LoadSource = "Prometheus"
)
