package feed

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/schemas"
)

// NodeRow is a node. A user without the right to get nodes sees only the name.
type NodeRow struct {
	Name     string `json:"name"`
	Ready    bool   `json:"ready"`
	Cordoned bool   `json:"cordoned"`
	// Taints are KEY=VALUE:EFFECT, or KEY:EFFECT.
	Taints []string `json:"taints,omitempty"`
	// Labels are the labels for zone, region, host name, instance type, roles, and pools.
	Labels    map[string]string `json:"labels,omitempty"`
	Capacity  Amounts           `json:"capacity"`  // allocatable
	Requested Amounts           `json:"requested"` // by the pods on the node
	Created   time.Time         `json:"created,omitzero"`
	// Maintenance is the name of the maintenance that cordoned the node.
	Maintenance string `json:"maintenance,omitempty"`
}

// Amounts are resources of a node.
type Amounts struct {
	CPU    int64 `json:"cpu" doc:"in thousandths of a core"`
	Memory int64 `json:"memory" doc:"in bytes"`
	Pods   int64 `json:"pods"`
}

// Flags of a [PodRow].
const (
	FlagReady   = 1 << iota // ready and not terminating
	FlagLeaving             // terminating
	FlagBudget              // a PodDisruptionBudget selects it
)

// PodRow is a pod. In JSON it is an array of its fields in this order.
type PodRow struct {
	UID, Namespace, Name, Node string
	Workload                   string // Kind/name; empty without a workload
	Phase                      string
	Flags                      int
	Created                    int64 // in seconds since 1970
}

// MarshalJSON implements [json.Marshaler].
func (p PodRow) MarshalJSON() ([]byte, error) {
	return p.appendJSON(nil), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *PodRow) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&p.UID, &p.Namespace, &p.Name, &p.Node, &p.Workload, &p.Phase, &p.Flags, &p.Created})
}

// Schema implements [huma.SchemaProvider].
func (PodRow) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeArray, Items: &huma.Schema{},
		Description: "UID, namespace, name, node, Kind/name of the workload, phase, flags (1 ready, 2 leaving, 4 budget), " +
			"creation in seconds since 1970",
	}
}

// Nodes returns the nodes of a cache, sorted by name.
func Nodes(c *cluster.Cache) []NodeRow {
	rows := []NodeRow{}
	for _, n := range c.AllNodes(labels.Everything()) {
		rows = append(rows, nodeRow(n, c.PodsOnNode(n.Name)))
	}
	sortByName(rows)
	return rows
}

// Names returns the names of the nodes with pods that a client may see, sorted. It reads no other pods.
func Names(c *cluster.Cache, r Rights) []NodeRow {
	var pods []*corev1.Pod
	if r.All {
		pods = c.AllPods()
	}
	for namespace := range r.Namespaces {
		pods = append(pods, c.PodsInNamespace(namespace)...)
	}
	names := map[string]bool{}
	rows := []NodeRow{}
	for _, p := range pods {
		if node := p.Spec.NodeName; node != "" && !names[node] {
			names[node] = true
			rows = append(rows, NodeRow{Name: node})
		}
	}
	sortByName(rows)
	return rows
}

func sortByName(rows []NodeRow) {
	slices.SortFunc(rows, func(a, b NodeRow) int { return strings.Compare(a.Name, b.Name) })
}

func nodeRow(n *corev1.Node, pods []*corev1.Pod) NodeRow {
	r := NodeRow{
		Name: n.Name, Cordoned: n.Spec.Unschedulable, Created: n.CreationTimestamp.UTC(), Capacity: amounts(n.Status.Allocatable),
		Requested: Amounts{}, Labels: map[string]string{},
	}
	r.Capacity.Pods = n.Status.Allocatable.Pods().Value()
	for _, c := range n.Status.Conditions {
		r.Ready = r.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	for _, t := range n.Spec.Taints {
		r.Taints = append(r.Taints, t.ToString())
	}
	for key, value := range n.Labels {
		if shown(key) {
			r.Labels[key] = value
		}
	}
	if mark := schemas.MarkOn(n); mark != nil {
		r.Maintenance = mark.Name
	}
	for _, p := range pods {
		if schemas.Ended(p) {
			continue
		}
		of := amounts(fit.Held(p))
		r.Requested.CPU += of.CPU
		r.Requested.Memory += of.Memory
		r.Requested.Pods++
	}
	return r
}

func amounts(l corev1.ResourceList) Amounts {
	return Amounts{CPU: l.Cpu().MilliValue(), Memory: l.Memory().Value()}
}

// shown reports whether nodes can be grouped by a label.
func shown(key string) bool {
	switch key {
	case corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelHostname, corev1.LabelInstanceTypeStable:
		return true
	}
	return strings.HasPrefix(key, "node-role.kubernetes.io/") || strings.Contains(key, "pool") || strings.Contains(key, "nodegroup")
}

func podRow(p *corev1.Pod, w cluster.Pod) PodRow {
	r := PodRow{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Phase: string(p.Status.Phase),
		Created: p.CreationTimestamp.Unix(),
	}
	if w.Workload.Name != "" {
		r.Workload = w.Workload.Kind + "/" + w.Workload.Name
	}
	if w.Ready {
		r.Flags |= FlagReady
	}
	if p.DeletionTimestamp != nil {
		r.Flags |= FlagLeaving
	}
	if w.Budgeted {
		r.Flags |= FlagBudget
	}
	return r
}
