package fit

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// host is a node with the sums over its pods. Pods may be bound to a node before it exists, or after it is gone.
type host struct {
	name string
	// node is nil while there is no Node object.
	node        *corev1.Node
	allocatable amounts
	// room is the number of pods that the node may have.
	room      int64
	requested amounts
	// pods counts the pods. A moved pod and the reservation for its replacement are two, even on one node.
	pods int64
	// ports counts the host ports in use.
	ports map[port]int
	// withVolumes are the pods that have claims or exclusive disks.
	withVolumes map[types.UID]*placed
}

func newHost(name string) *host {
	return &host{name: name}
}

// become applies a Node object, or its removal if it is nil.
func (h *host) become(node *corev1.Node) {
	h.node, h.allocatable, h.room = node, amounts{}, 0
	if node != nil {
		h.allocatable.add(node.Status.Allocatable, 1)
		h.room = node.Status.Allocatable.Pods().Value()
	}
}

func (h *host) enter(p *placed) {
	h.pods++
	h.requested.merge(&p.holds, 1)
	for _, occupied := range p.ports {
		if h.ports == nil {
			h.ports = map[port]int{}
		}
		h.ports[occupied]++
	}
	if len(p.claims)+len(p.disks) > 0 {
		if h.withVolumes == nil {
			h.withVolumes = map[types.UID]*placed{}
		}
		h.withVolumes[p.uid] = p
	}
}

func (h *host) leave(p *placed) {
	h.pods--
	h.requested.merge(&p.holds, -1)
	for _, occupied := range p.ports {
		decrease(h.ports, occupied)
	}
	if len(h.ports) == 0 {
		h.ports = nil
	}
	delete(h.withVolumes, p.uid)
	if len(h.withVolumes) == 0 {
		h.withVolumes = nil
	}
}

// clone copies everything that enter and leave change.
func (h *host) clone() *host {
	c := *h
	c.requested.others = maps.Clone(h.requested.others)
	c.ports = maps.Clone(h.ports)
	c.withVolumes = maps.Clone(h.withVolumes)
	return &c
}

// placed is the effect of a pod on a node on other pods. The pod itself is not stored.
type placed struct {
	uid         types.UID
	namespace   string
	node        string
	priority    int32
	terminating bool
	// nominated means that the pod is not bound yet, but the scheduler has nominated the node for it.
	nominated bool
	labels    labels.Set
	cohort    string
	// controller is the UID of the object that makes the replacement, if there is one.
	controller types.UID
	holds      amounts
	ports      []port
	// terms are the required anti-affinity terms, and repels their keys.
	terms  []Term
	repels []string
	// preferences are the affinity terms that score nodes for other pods.
	preferences []preference
	claims      []claimRef
	disks       []disk
}

// claimRef is a claim that a pod uses as a volume.
type claimRef struct {
	name string
	// ephemeral means that the claim is made for the pod and must belong to it.
	ephemeral bool
}

// newPlaced reads a pod on the named node.
func newPlaced(pod *corev1.Pod, node string) *placed {
	p := &placed{
		uid:         UID(pod),
		namespace:   pod.Namespace,
		node:        node,
		priority:    schedulingv1.PodPriority(pod),
		terminating: pod.DeletionTimestamp != nil,
		labels:      pod.Labels,
		holds:       held(pod),
		ports:       hostPorts(&pod.Spec),
		claims:      claimRefs(pod),
		disks:       exclusiveDisks(&pod.Spec),
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		p.controller = owner.UID
	}
	p.cohort = cohortKey(p.labels, p.terminating)
	// One invalid term discards all terms, as the scheduler does for pods on nodes.
	p.terms, _ = AntiAffinity(pod)
	for i := range p.terms {
		p.repels = append(p.repels, p.terms[i].Key())
	}
	p.preferences = preferencesOf(pod)
	return p
}

// isOver reports whether a pod has ended and holds nothing anymore.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// claimRefs returns the claims that a pod uses, in the order of its volumes.
func claimRefs(pod *corev1.Pod) []claimRef {
	var refs []claimRef
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			refs = append(refs, claimRef{name: v.PersistentVolumeClaim.ClaimName})
		case v.Ephemeral != nil:
			refs = append(refs, claimRef{name: ephemeral.VolumeClaimName(pod, v), ephemeral: true})
		}
	}
	return refs
}

// nodeSelection is a pod's nodeSelector and required node affinity, parsed once for many nodes. component-helpers has
// the same, but creates a map for every node, which costs more than all other rules together.
type nodeSelection struct {
	// selector is the parsed nodeSelector.
	selector labels.Selector
	// terms are the terms of the required affinity that can match; one of them must.
	terms    []nodeTerm
	hasTerms bool
}

// nodeTerm is one term; all parts of it must match.
type nodeTerm struct {
	labels labels.Selector
	// names are requirements on the name of the node.
	names []corev1.NodeSelectorRequirement
}

// newNodeSelection parses the requirements of a pod on its node. An invalid or empty term matches no node.
func newNodeSelection(spec *corev1.PodSpec) nodeSelection {
	preference := nodeSelection{selector: labels.SelectorFromSet(spec.NodeSelector)}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return preference
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return preference
	}
	preference.hasTerms = true
	for i := range required.NodeSelectorTerms {
		if term, ok := newNodeTerm(&required.NodeSelectorTerms[i]); ok {
			preference.terms = append(preference.terms, term)
		}
	}
	return preference
}

func newNodeTerm(t *corev1.NodeSelectorTerm) (nodeTerm, bool) {
	term := nodeTerm{labels: labels.NewSelector(), names: t.MatchFields}
	for i := range t.MatchExpressions {
		e := &t.MatchExpressions[i]
		requirement, err := labels.NewRequirement(e.Key, operators[e.Operator], e.Values) // which refuses an unknown operator
		if err != nil {
			return nodeTerm{}, false
		}
		term.labels = term.labels.Add(*requirement)
	}
	readable := !slices.ContainsFunc(t.MatchFields, func(f corev1.NodeSelectorRequirement) bool {
		in := f.Operator == corev1.NodeSelectorOpIn || f.Operator == corev1.NodeSelectorOpNotIn
		return !in || len(f.Values) != 1 || f.Key != metav1.ObjectNameField
	})
	return term, readable && len(t.MatchExpressions)+len(t.MatchFields) > 0
}

// operators are the corresponding operators of label selectors.
//
//nolint:gochecknoglobals // a table that nothing changes
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

// matches reports whether a node fits.
func (w *nodeSelection) matches(node *corev1.Node) bool {
	if !w.selector.Matches(labels.Set(node.Labels)) {
		return false
	}
	return !w.hasTerms || slices.ContainsFunc(w.terms, func(t nodeTerm) bool { return t.matches(node) })
}

func (t *nodeTerm) matches(node *corev1.Node) bool {
	for i := range t.names {
		isNamed := t.names[i].Values[0] == node.Name
		if isNamed != (t.names[i].Operator == corev1.NodeSelectorOpIn) {
			return false
		}
	}
	return t.labels.Matches(labels.Set(node.Labels))
}
