// Package fit answers whether the kube-scheduler would place a pod on a node now.
//
// # Usage
//
// A [Cluster] gets objects as they come from a watch and stores everything that the answers need:
//
//	cluster := fit.New()
//	cluster.Set(node)
//	cluster.Set(pod)
//	...
//	question := cluster.Ask(pod)
//	verdict := question.On("node-17")          // this node
//	result := question.Elsewhere(fit.Search{}) // any node but the one it runs on
//
// Both judge the replacement of a pod: they treat the pod itself as gone, and its spec as the spec of the replacement.
// A pod that is not bound yet is judged itself.
//
// # Rules
//
// The filters of the scheduler's default profile in Kubernetes 1.35 to 1.37: NodeUnschedulable, TaintToleration, NodeAffinity,
// NodeDeclaredFeatures, NodePorts, NodeResourcesFit, VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone,
// PodTopologySpread and InterPodAffinity, and capacity that is nominated to pods of the same or a higher priority. A
// test compares the answers with the real scheduler.
//
// Capacity that is reserved for replacements counts as used, see [Cluster.Reserve].
//
// One rule differs between releases, and follows [Cluster.MinorVersion]: up to Kubernetes 1.36 the scheduler selects
// every namespace for a namespaceSelector of an incoming pod for a missing label.
//
// # Limits
//
// A verdict has Judged false if the answer depends on more than the filters: pods of another scheduler, with scheduling
// gates, in a scheduling group, or with resource claims, and replacements that need a new volume that is provisioned
// before the pod has a node. Preemption is ignored: a pod that fits only after evicting others does not fit. Package
// score predicts which of the fitting nodes the scheduler takes.
//
// A replacement is judged by the spec of the pod that it replaces. Differences are not seen: a changed template, a spec
// that was resized in place, or labels and affinities that admission adds. spec.nodeName is the current node, and never
// a preference.
//
// A CSIDriver with preventPodSchedulingIfMissing keeps pods with its volumes off nodes without the driver since Kubernetes
// 1.37. This rule is missing.
//
// In-tree volumes that the kubelet has migrated to CSI are judged by their own node affinity and labels and do not
// count towards the limits of the CSI driver. Extended resources that a DeviceClass maps to devices are judged as
// resources of the node, which then has none.
//
// # Files
//
//	cluster.go    Cluster: the objects by name       node.go       host and placed: a node and a pod in numbers; NodeAffinity
//	question.go   Ask, On: the filters in order      elsewhere.go  Elsewhere: another node; Slots: how many pods fit
//	world.go      the cluster without the pod that   resources.go  NodeResourcesFit
//	              moves, and with reservations       exclusive.go  NodePorts, VolumeRestrictions: one pod on a node
//	verdict.go    Verdict and its Reasons            affinity.go   InterPodAffinity, required and preferred
//	terms.go      pod affinity terms                 spread.go     PodTopologySpread
//	tally.go      pods counted by their labels       claims.go     VolumeBinding, VolumeZone, NodeVolumeLimits
//	storage.go    volumes and classes                candidate.go  the nodes on which a pod fits, for score plugins
//
// # Concurrency
//
// A [Cluster] is not safe for concurrent use while it is changed. Questions change nothing, so any number of goroutines
// may ask while none changes it. The cluster keeps its objects and never changes them; callers must not change them
// either.
//
// # Cost
//
// The cost of setting an object depends on the size of the object, not of the cluster, except that adding or removing a
// node shifts the list of nodes. A question makes one pass over the distinct label sets of the pods if rules between
// pods apply, and then needs some hundred nanoseconds per node. A pod needs about 800 bytes.
package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster is the part of a cluster's state that decides where pods fit. Use [New] to make one. See the package comment
// for usage.
type Cluster struct {
	// MinorVersion is the minor version of the scheduler: 36 for Kubernetes 1.36. 0 means unknown. Then the rules are those
	// of the newest known release: they agree with the API, so later releases keep them, and clusters leave older ones.
	MinorVersion int
	// hosts are all nodes that exist or that pods are bound to, by name.
	hosts map[string]*host
	// known are the hosts with a Node object, in the order of their names.
	known []*host
	pods  map[types.UID]*placed
	// nominated are pods that wait for nominated capacity, by UID.
	nominated map[types.UID]*placed
	// reserved are the replacements of moving pods, by the UIDs of those pods.
	reserved map[types.UID]*placed
	// cohorts are by namespace, and then by key.
	cohorts map[string]tallies[string, cohort]
	// repulsions are the pods with the same required anti-affinity term, and attractions those with the same
	// preference.
	repulsions  tallies[string, Term]
	attractions tallies[string, preference]
	// controllers are the pods of each controller, except terminating ones.
	controllers tallies[types.UID, struct{}]
	namespaces  map[string]labels.Set
	storage     storage
}

// New returns an empty cluster.
func New() *Cluster {
	return &Cluster{
		hosts:       map[string]*host{},
		pods:        map[types.UID]*placed{},
		nominated:   map[types.UID]*placed{},
		reserved:    map[types.UID]*placed{},
		cohorts:     map[string]tallies[string, cohort]{},
		repulsions:  tallies[string, Term]{},
		attractions: tallies[string, preference]{},
		controllers: tallies[types.UID, struct{}]{},
		namespaces:  map[string]labels.Set{},
		storage:     newStorage(),
	}
}

// Set adds or replaces an object. It ignores objects of kinds that do not decide where pods fit. Without a CSINode, a
// node has no limit of attached volumes.
func (c *Cluster) Set(o metav1.Object) {
	switch o := o.(type) {
	case *corev1.Node:
		c.setNode(o)
	case *corev1.Pod:
		c.setPod(o)
	case *corev1.Namespace:
		c.namespaces[o.Name] = o.Labels
		if o.Labels == nil {
			c.namespaces[o.Name] = labels.Set{}
		}
	case *corev1.PersistentVolumeClaim:
		c.storage.claims[keyOf(o)] = o
	case *corev1.PersistentVolume:
		c.storage.setVolume(o)
	case *storagev1.StorageClass:
		c.storage.classes[o.Name] = o
	case *storagev1.CSINode:
		c.storage.setLimits(o)
	case *storagev1.CSIDriver:
		c.storage.drivers[o.Name] = o
	case *storagev1.CSIStorageCapacity:
		c.storage.capacities[keyOf(o)] = o
	case *storagev1.VolumeAttachment:
		c.storage.setAttachment(o)
	}
}

// Remove removes an object. Pods that are bound to a removed node count again if it returns; a reservation stays when
// its pod goes.
func (c *Cluster) Remove(o metav1.Object) {
	name := o.GetName()
	switch o := o.(type) {
	case *corev1.Node:
		c.removeNode(name)
	case *corev1.Pod:
		c.removePod(UID(o))
	case *corev1.Namespace:
		delete(c.namespaces, name)
	case *corev1.PersistentVolumeClaim:
		delete(c.storage.claims, keyOf(o))
	case *corev1.PersistentVolume:
		c.storage.removeVolume(name)
	case *storagev1.StorageClass:
		delete(c.storage.classes, name)
	case *storagev1.CSINode:
		delete(c.storage.limits, name)
	case *storagev1.CSIDriver:
		delete(c.storage.drivers, name)
	case *storagev1.CSIStorageCapacity:
		delete(c.storage.capacities, keyOf(o))
	case *storagev1.VolumeAttachment:
		c.storage.removeAttachment(name)
	}
}

func (c *Cluster) setNode(node *corev1.Node) {
	h := c.host(node.Name)
	if h.node == nil {
		at, _ := c.find(node.Name)
		c.known = slices.Insert(c.known, at, h)
	}
	h.become(node)
}

func (c *Cluster) removeNode(name string) {
	if at, found := c.find(name); found {
		h := c.known[at]
		c.known = slices.Delete(c.known, at, at+1)
		h.become(nil)
		c.drop(h)
	}
}

// find returns the index of a node among the known ones, or the index where it would be.
func (c *Cluster) find(name string) (int, bool) {
	return slices.BinarySearchFunc(c.known, name, func(h *host, n string) int { return strings.Compare(h.name, n) })
}

// host returns the node of that name, which need not exist.
func (c *Cluster) host(name string) *host {
	h := c.hosts[name]
	if h == nil {
		h = newHost(name)
		c.hosts[name] = h
	}
	return h
}

// drop removes a host without a node and pods.
func (c *Cluster) drop(h *host) {
	if h.node == nil && h.pods == 0 {
		delete(c.hosts, h.name)
	}
}

// setPod adds or replaces a pod by its [UID]. A pod counts on the node that it is bound to, even while it terminates,
// until it has ended or is removed. An unbound pod counts only on its nominated node.
func (c *Cluster) setPod(pod *corev1.Pod) {
	c.removePod(UID(pod))
	switch {
	case isOver(pod):
	case pod.Spec.NodeName != "":
		c.enter(newPlaced(pod, pod.Spec.NodeName))
	case pod.Status.NominatedNodeName != "":
		p := newPlaced(pod, pod.Status.NominatedNodeName)
		p.nominated = true
		c.nominated[p.uid] = p
	}
}

// UID returns the identity of a pod: its UID, or NAMESPACE/NAME if it has none, as in a file that was written by hand.
func UID(pod *corev1.Pod) types.UID {
	if pod.UID != "" {
		return pod.UID
	}
	return types.UID(pod.Namespace + "/" + pod.Name)
}

func (c *Cluster) removePod(uid types.UID) {
	delete(c.nominated, uid)
	if p := c.pods[uid]; p != nil {
		c.leave(p)
	}
}

func (c *Cluster) enter(p *placed) {
	c.pods[p.uid] = p
	c.host(p.node).enter(p)
	c.enterTallies(p)
	c.storage.enter(p)
}

func (c *Cluster) leave(p *placed) {
	delete(c.pods, p.uid)
	h := c.hosts[p.node]
	h.leave(p)
	c.drop(h)
	c.leaveTallies(p)
	c.storage.leave(p)
}

// Reserve reserves capacity on a node for the replacement of a moving pod. Until [Cluster.Release], another pod fits a
// node only if it does both with and without the reserved replacements, because they may arrive later or never. A
// second reservation for the same pod replaces the first.
func (c *Cluster) Reserve(pod *corev1.Pod, node string) {
	p := newPlaced(pod, node)
	p.holds = wanted(pod)
	p.terminating = false
	p.cohort = cohortKey(p.labels, false)
	c.reserved[p.uid] = p
}

// Release ends a reservation: the replacement has its own node, or is no longer expected. uid is the [UID] of the moved
// pod. Without a reservation it does nothing.
func (c *Cluster) Release(uid types.UID) { delete(c.reserved, uid) }
