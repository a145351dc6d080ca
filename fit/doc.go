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
