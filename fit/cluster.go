// Package fit answers whether the kube-scheduler would place a pod on a node now.
//
// # Usage
//
// A [Cluster] is fed with objects as they come from a watch and keeps what the answers need:
//
//	cluster := fit.New()
//	cluster.SetNode(node)
//	cluster.SetPod(pod)
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
// Room that is promised to pods on the move counts too, see [Cluster.Promise].
//
// # What is not
//
// A verdict says so itself, with Judged false, where the answer lies outside the filters: pods of another scheduler, with
// scheduling gates, in a scheduling group, with resource claims, and replacements that need a new volume which is made
// before it is known where the pod goes. Nothing is said about preemption: a pod that fits only after evicting others
// does not fit. Nothing is said about which of the fitting nodes the scheduler takes.
//
// A replacement is judged by the spec of the pod it replaces. What differs between the two is not seen: a changed
// template, a spec that was resized in place, labels and affinities that admission adds anew. spec.nodeName is where the
// pod runs, and never a wish.
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
//	cluster.go    Cluster: what the watch tells      node.go       host and placed: a node and a pod in plain numbers
//	question.go   Ask, On: the filters in order      elsewhere.go  Elsewhere: any other node, and which one is preferred
//	world.go      the cluster without the pod that   resources.go  NodeResourcesFit
//	              moves, and with what is promised   nodeterms.go  NodeAffinity
//	verdict.go    Verdict and its Reasons            exclusive.go  NodePorts, VolumeRestrictions: one pod on a node
//	terms.go      pod affinity terms                 affinity.go   InterPodAffinity
//	tally.go      pods counted by their labels       spread.go     PodTopologySpread
//	storage.go    volumes and classes                claims.go     VolumeBinding, VolumeZone, NodeVolumeLimits
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
	// promised are pods on the move, by the UID that the promise was made for.
	promised   map[types.UID]*placed
	cohorts    cohorts
	repulsions repulsions
	namespaces map[string]labels.Set
	storage    storage
}

// New is an empty cluster.
func New() *Cluster {
	return &Cluster{
		hosts:      map[string]*host{},
		pods:       map[types.UID]*placed{},
		nominated:  map[types.UID]*placed{},
		promised:   map[types.UID]*placed{},
		cohorts:    cohorts{},
		repulsions: repulsions{},
		namespaces: map[string]labels.Set{},
		storage:    newStorage(),
	}
}

// SetNode adds a node or replaces what is known of it.
func (c *Cluster) SetNode(node *corev1.Node) {
	h := c.host(node.Name)
	if h.node == nil {
		at, _ := c.find(node.Name)
		c.known = slices.Insert(c.known, at, h)
	}
	h.become(node)
}

// RemoveNode forgets a node. Pods that are bound to it count again if it comes back.
func (c *Cluster) RemoveNode(name string) {
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

// SetPod adds a pod or replaces what is known of it, by [UID]. A pod counts on the node that it is bound to, terminating
// ones too, until it succeeded or failed or is removed. One that is not bound counts where the scheduler has nominated
// it, and nowhere else.
func (c *Cluster) SetPod(pod *corev1.Pod) {
	c.RemovePod(UID(pod))
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

// RemovePod forgets a pod, as far as it is known, by [UID]. A promise stays.
func (c *Cluster) RemovePod(uid types.UID) {
	delete(c.nominated, uid)
	if p := c.pods[uid]; p != nil {
		c.leave(p)
	}
}

func (c *Cluster) enter(p *placed) {
	c.pods[p.uid] = p
	c.host(p.node).enter(p)
	c.cohorts.enter(p)
	c.repulsions.enter(p)
	c.storage.enter(p)
}

func (c *Cluster) leave(p *placed) {
	delete(c.pods, p.uid)
	h := c.hosts[p.node]
	h.leave(p)
	c.drop(h)
	c.cohorts.leave(p)
	c.repulsions.leave(p)
	c.storage.leave(p)
}

// Promise holds room on a node for the replacement of a pod that is being moved. Until [Cluster.Release] another pod
// fits a node only if it does so both with and without the replacements that are promised: they may come later than it,
// or not at all. A second promise for the same pod replaces the first.
func (c *Cluster) Promise(pod *corev1.Pod, node string) {
	p := newPlaced(pod, node)
	p.holds = wanted(pod)
	p.terminating = false
	p.cohort = cohortKey(p.namespace, p.labels, false)
	c.promised[p.uid] = p
}

// Release ends a promise: the replacement has a node of its own, or is not awaited any more. uid is the [UID] of the pod
// that was moved. Without such a promise it does nothing.
func (c *Cluster) Release(uid types.UID) { delete(c.promised, uid) }

// SetNamespace adds a namespace or replaces what is known of it.
func (c *Cluster) SetNamespace(n *corev1.Namespace) {
	c.namespaces[n.Name] = n.Labels
	if n.Labels == nil {
		c.namespaces[n.Name] = labels.Set{}
	}
}

// RemoveNamespace forgets a namespace.
func (c *Cluster) RemoveNamespace(name string) { delete(c.namespaces, name) }

// SetClaim adds a claim or replaces what is known of it.
func (c *Cluster) SetClaim(p *corev1.PersistentVolumeClaim) { c.storage.claims[keyOf(p)] = p }

// RemoveClaim forgets a claim.
func (c *Cluster) RemoveClaim(key types.NamespacedName) { delete(c.storage.claims, key) }

// SetVolume adds a volume or replaces what is known of it.
func (c *Cluster) SetVolume(v *corev1.PersistentVolume) { c.storage.setVolume(v) }

// RemoveVolume forgets a volume.
func (c *Cluster) RemoveVolume(name string) { c.storage.removeVolume(name) }

// SetStorageClass adds a storage class or replaces what is known of it.
func (c *Cluster) SetStorageClass(s *storagev1.StorageClass) { c.storage.classes[s.Name] = s }

// RemoveStorageClass forgets a storage class.
func (c *Cluster) RemoveStorageClass(name string) { delete(c.storage.classes, name) }

// SetCSINode adds what the drivers on a node say about it, or replaces that. Without it nothing limits how many volumes
// are attached to the node.
func (c *Cluster) SetCSINode(n *storagev1.CSINode) { c.storage.setLimits(n) }

// RemoveCSINode forgets it.
func (c *Cluster) RemoveCSINode(name string) { delete(c.storage.limits, name) }

// SetCSIDriver adds a driver or replaces what is known of it. Only of a driver that says so is the capacity looked at.
func (c *Cluster) SetCSIDriver(d *storagev1.CSIDriver) { c.storage.drivers[d.Name] = d }

// RemoveCSIDriver forgets a driver.
func (c *Cluster) RemoveCSIDriver(name string) { delete(c.storage.drivers, name) }

// SetCapacity adds what a driver has left in one place, or replaces it.
func (c *Cluster) SetCapacity(s *storagev1.CSIStorageCapacity) { c.storage.capacities[keyOf(s)] = s }

// RemoveCapacity forgets it.
func (c *Cluster) RemoveCapacity(key types.NamespacedName) { delete(c.storage.capacities, key) }

// SetAttachment adds an attachment of a volume to a node, or replaces it. An attached volume counts towards the limit of
// the node even if no pod there uses it.
func (c *Cluster) SetAttachment(a *storagev1.VolumeAttachment) { c.storage.setAttachment(a) }

// RemoveAttachment forgets an attachment.
func (c *Cluster) RemoveAttachment(name string) { c.storage.removeAttachment(name) }
