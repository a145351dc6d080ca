// Package fit answers whether the kube-scheduler would place a pod on a node now.
//
// # Usage
//
// A [Cluster] is fed with objects as they come from a watch and keeps what the answers need:
//
//	cluster := fit.New()
//	cluster.Set(node)
//	cluster.Set(pod)
//	...
//	verdict := cluster.Fits(pod, "node-17")        // this node
//	result := cluster.Elsewhere(pod, fit.Search{}) // any node but the one it runs on
//
// Both judge the replacement of a pod: the pod itself counts as gone, and its spec is what the replacement asks for.
// Asked for a pod that is not bound yet, they judge the pod itself. To ask much about one pod, use [Cluster.Ask].
//
// # What is judged
//
// The filters of the scheduler's default profile in Kubernetes 1.36: NodeUnschedulable, TaintToleration, NodeAffinity,
// NodeDeclaredFeatures, NodePorts, NodeResourcesFit, VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone,
// PodTopologySpread and InterPodAffinity, and room that is nominated to pods of the same or a higher priority. A test
// asks the real scheduler the same questions.
//
// Capacity that is reserved for replacements counts too, see [Cluster.Reserve].
//
// # What is not
//
// A verdict says so itself, with Judged false, where the answer lies outside the filters: pods of another scheduler, with
// scheduling gates, in a scheduling group, with resource claims, and replacements that need a new volume which is made
// before it is known where the pod goes. Nothing is said about preemption: a pod that fits only after evicting others
// does not fit. Package score predicts which of the fitting nodes the scheduler takes.
//
// A replacement is judged by the spec of the pod it replaces. What differs between the two is not seen: a changed
// template, a spec that was resized in place, labels and affinities that admission adds anew. spec.nodeName is where the
// pod runs, and never a preference.
//
// Where the scheduler contradicts the API, a pod fits only if it does by both. One such case is known: in Kubernetes 1.36
// a namespaceSelector of an incoming pod for a label that is missing selects every namespace.
//
// In-tree volumes that the kubelet has migrated to CSI are judged by their own node affinity and labels and do not count
// towards the limits of the CSI driver. Extended resources that a DeviceClass maps to devices are judged as resources of
// the node, which then has none.
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
// A [Cluster] is not safe for concurrent use while it is changed. Answers change nothing, so any number of goroutines
// may ask while none changes it. Objects given to it are kept and never changed, and must not be changed by others.
//
// # Cost
//
// Setting an object costs what the object is large, not what the cluster is large; only a node that comes or goes
// moves the list of nodes. A question costs one pass over the distinct sets of labels of the pods where rules between
// pods are concerned, then some hundred nanoseconds for each node. A pod takes about 800 bytes.
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

// Cluster is the part of a cluster's state that decides where pods fit. Make one with [New]; the package comment says
// how to use it.
type Cluster struct {
	// hosts are all nodes that are known or that pods are bound to, by name.
	hosts map[string]*host
	// known are the hosts with a Node object, in the order of their names.
	known []*host
	pods  map[types.UID]*placed
	// nominated are pods that wait for room which the scheduler made for them, by UID.
	nominated map[types.UID]*placed
	// reserved are the replacements of pods on the move, by the UIDs of those pods.
	reserved map[types.UID]*placed
	// cohorts are by namespace, and then by key.
	cohorts map[string]tallies[string, cohort]
	// repulsions are the pods with the same required anti-affinity term, and attractions those with the same preference.
	repulsions  tallies[string, term]
	attractions tallies[string, preference]
	// controllers are the pods of the same controller, terminating ones left out.
	controllers tallies[types.UID, struct{}]
	namespaces  map[string]labels.Set
	storage     storage
}

// New is an empty cluster.
func New() *Cluster {
	return &Cluster{
		hosts:       map[string]*host{},
		pods:        map[types.UID]*placed{},
		nominated:   map[types.UID]*placed{},
		reserved:    map[types.UID]*placed{},
		cohorts:     map[string]tallies[string, cohort]{},
		repulsions:  tallies[string, term]{},
		attractions: tallies[string, preference]{},
		controllers: tallies[types.UID, struct{}]{},
		namespaces:  map[string]labels.Set{},
		storage:     newStorage(),
	}
}

// Set adds an object or replaces what is known of it. Objects of kinds that do not decide where pods fit are ignored. Without its
// CSINode nothing limits how many volumes are attached to a node.
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

// Remove forgets an object. Pods that are bound to a node count again if it comes back; a
// reservation stays when its pod goes.
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

// find is where a node is among the known ones, or would be.
func (c *Cluster) find(name string) (int, bool) {
	return slices.BinarySearchFunc(c.known, name, func(h *host, n string) int { return strings.Compare(h.name, n) })
}

// host is the node of that name, which need not be known.
func (c *Cluster) host(name string) *host {
	h := c.hosts[name]
	if h == nil {
		h = newHost(name)
		c.hosts[name] = h
	}
	return h
}

// drop forgets a host about which nothing is known.
func (c *Cluster) drop(h *host) {
	if h.node == nil && len(h.pods) == 0 {
		delete(c.hosts, h.name)
	}
}

// setPod adds a pod or replaces what is known of it, by [UID]. A pod counts on the node that it is bound to, terminating
// ones too, until it succeeded or failed or is removed. One that is not bound counts where the scheduler has nominated
// it, and nowhere else.
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

// UID is what a pod is known by: its UID, or NAMESPACE/NAME if it has none, as in a file that was written by hand.
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

// Reserve reserves capacity on a node for the replacement of a pod that is being moved. Until [Cluster.Release] another pod
// fits a node only if it does so both with and without the replacements that are reserved: they may come later than it,
// or not at all. A second reservation for the same pod replaces the first.
func (c *Cluster) Reserve(pod *corev1.Pod, node string) {
	p := newPlaced(pod, node)
	p.holds = wanted(pod)
	p.terminating = false
	p.cohort = cohortKey(p.labels, false)
	c.reserved[p.uid] = p
}

// Release ends a reservation: the replacement has a node of its own, or is not awaited any more. uid is the [UID] of the pod
// that was moved. Without a reservation it does nothing.
func (c *Cluster) Release(uid types.UID) { delete(c.reserved, uid) }
