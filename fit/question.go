package fit

import (
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Question is one pod, prepared to be judged on many nodes. It is valid until the [Cluster] changes. Use [Cluster.Ask]
// to make one. Its methods change nothing and are safe for concurrent use.
type Question struct {
	cluster *Cluster
	pod     *corev1.Pod
	// all is the verdict for every node, if there is one. Else its Reason is empty.
	all       Verdict
	wants     amounts
	ports     []port
	disks     []disk
	nodes     nodeSelection
	preferred *nodeaffinity.PreferredSchedulingTerms
	features  []string
	spread    []constraint
	affinity  []Term
	apart     []Term
	// namespace has the labels of the pod's namespace, or is nil if unknown.
	namespace labels.Set
	claims    claims
	// gone is the pod itself on its node, or nil if it has no node.
	gone *placed
	// worlds are the states of the cluster in which the pod must fit: the first without the pod, the second, if there
	// are reservations, also with the replacements that hold one.
	worlds []*world
	// moved is the last world without the pods that have a reservation, because they have moved.
	moved func() *world
	// nominated are the nominated pods that go before this one, by node.
	nominated map[string][]*placed
}

// Ask prepares a question about a pod, or about its replacement if it is bound to a node.
func (c *Cluster) Ask(pod *corev1.Pod) *Question {
	q := &Question{
		cluster:   c,
		pod:       pod,
		wants:     wanted(pod),
		ports:     hostPorts(&pod.Spec),
		disks:     exclusiveDisks(&pod.Spec),
		nodes:     newNodeSelection(&pod.Spec),
		preferred: preferredTerms(pod),
		features:  neededFeatures(pod),
		namespace: c.namespaces[pod.Namespace],
		gone:      c.pods[UID(pod)],
	}
	if q.all = q.outside(); q.all.Reason != "" {
		return q
	}
	if q.all = q.readTerms(); q.all.Reason != "" {
		return q
	}
	if q.claims, q.all = c.storage.claimsOf(pod); q.all.Reason != "" {
		return q
	}
	q.prepareWorlds()
	return q
}

// unjudged reports whether the pod cannot be judged.
func (q *Question) unjudged() bool { return q.all.Reason != "" && !q.all.Judged }

// outside returns the verdict for a pod that cannot be judged.
func (q *Question) outside() Verdict {
	spec := &q.pod.Spec
	switch {
	case spec.SchedulerName != "" && spec.SchedulerName != corev1.DefaultSchedulerName:
		return unjudged(OtherScheduler, spec.SchedulerName)
	case len(spec.SchedulingGates) > 0:
		return unjudged(Gated, spec.SchedulingGates[0].Name)
	case spec.SchedulingGroup != nil:
		return unjudged(Grouped, "")
	case len(spec.ResourceClaims) > 0:
		return unjudged(DeviceClaims, spec.ResourceClaims[0].Name)
	case wantsDevices(&q.wants):
		return unjudged(DeviceClaims, "")
	}
	return Verdict{}
}

// readTerms reads the pod's terms about other pods.
func (q *Question) readTerms() Verdict {
	var ok bool
	if q.spread, ok = hardConstraints(q.pod); !ok {
		return no(TopologySpread, "invalid selector")
	}
	if q.affinity, ok = newTerms(q.pod, requiredAffinity(&q.pod.Spec)); !ok {
		return no(PodAffinity, "invalid selector")
	}
	if q.apart, ok = AntiAffinity(q.pod); !ok {
		return no(PodAntiAffinity, "invalid selector")
	}
	return Verdict{}
}

// prepareWorlds prepares the worlds in which the pod must fit.
func (q *Question) prepareWorlds() {
	q.worlds = []*world{q.newWorld(nil, nil)}
	var reserved, left []*placed
	for uid, p := range q.cluster.reserved {
		if uid == UID(q.pod) {
			continue
		}
		reserved = append(reserved, p)
		if moved := q.cluster.pods[uid]; moved != nil {
			left = append(left, moved)
		}
	}
	if len(reserved) > 0 {
		q.worlds = append(q.worlds, q.newWorld(nil, reserved))
	}
	last := q.worlds[len(q.worlds)-1]
	q.moved = func() *world { return last }
	if len(left) > 0 {
		q.moved = sync.OnceValue(func() *world { return q.world(nil, reserved, slices.Concat(last.gone, left)) })
	}
	for uid, p := range q.cluster.nominated {
		if uid == UID(q.pod) || p.priority < schedulingv1.PodPriority(q.pod) {
			continue
		}
		if q.nominated == nil {
			q.nominated = map[string][]*placed{}
		}
		q.nominated[p.node] = append(q.nominated[p.node], p)
	}
}

// On judges one node.
func (q *Question) On(node string) Verdict {
	if q.all.Reason != "" {
		return q.all
	}
	h := q.cluster.hosts[node]
	if h == nil || h.node == nil {
		return no(UnknownNode, node)
	}
	return q.on(h, false)
}

// on judges a known node: first by the rules that ignore other pods, then in each world, or with jointly only in the
// last.
func (q *Question) on(h *host, jointly bool) Verdict {
	if v := q.node(h); v.Reason != "" {
		return v
	}
	worlds := q.worlds
	if jointly {
		worlds = worlds[len(worlds)-1:]
	}
	for _, w := range worlds {
		if v := w.on(h); !v.OK {
			return v
		}
		// Like the scheduler, count only the pods that are nominated to this node. There are few such nodes.
		if first := q.nominated[h.name]; len(first) > 0 {
			if v := q.newWorld(w, first).on(h); !v.OK {
				return v
			}
		}
	}
	return yes()
}

// neededFeatures returns the kubelet features that the pod needs and that not every kubelet has.
func neededFeatures(pod *corev1.Pod) []string {
	framework := nodedeclaredfeatures.DefaultFramework
	info := nodedeclaredfeatures.PodInfo{Spec: &pod.Spec}
	// The version would drop features that all supported kubelets have; so far there is no such feature.
	needed, err := framework.InferForPodScheduling(&info, version.MajorMinor(1, 36))
	if err != nil || needed.IsEmpty() {
		return nil
	}
	names, err := framework.Unmap(needed)
	if err != nil {
		return nil
	}
	return names
}

// node judges a node without its pods. A verdict without a reason is no objection.
func (q *Question) node(h *host) Verdict {
	tolerations := q.pod.Spec.Tolerations
	if h.node.Spec.Unschedulable && !tolerates(tolerations, &corev1.Taint{
		Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule,
	}) {
		return no(Cordoned, "")
	}
	if taint := Untolerated(h.node.Spec.Taints, tolerations); taint != nil {
		return no(Taint, taint.Key)
	}
	if !q.nodes.matches(h.node) {
		return no(NodeAffinity, "")
	}
	for _, feature := range q.features {
		if !slices.Contains(h.node.Status.DeclaredFeatures, feature) {
			return no(NodeFeatures, feature)
		}
	}
	return q.claims.on(h)
}

// Untolerated returns the first taint that keeps a pod with these tolerations away, or nil.
func Untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range taints {
		if KeepsAway(&taints[i]) && !tolerates(tolerations, &taints[i]) {
			return &taints[i]
		}
	}
	return nil
}

// KeepsAway reports whether the taint keeps pods that do not tolerate it off a node.
func KeepsAway(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// tolerates calls the scheduler's own rule. It supports the operators Gt and Lt: if they are disabled, the API server
// rejects pods with them.
func tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	return schedulingv1.TolerationsTolerateTaint(logr.Logger{}, tolerations, taint, true)
}

// hosting judges a node by the ports, slots, resources, disks, and attachments that its pods leave. A verdict without a
// reason is no objection.
func (q *Question) hosting(h *host) Verdict {
	for _, want := range q.ports {
		for taken := range h.ports {
			if want.collides(taken) {
				return no(HostPort, "")
			}
		}
	}
	if h.pods+1 > h.room {
		return no(PodCount, "")
	}
	if name := lacking(&q.wants, &h.allocatable, &h.requested); name != "" {
		return no(Resource, string(name))
	}
	for i := range q.disks {
		for _, other := range h.withVolumes {
			for j := range other.disks {
				if q.disks[i].excludes(&other.disks[j]) {
					return no(VolumeConflict, q.disks[i].volume)
				}
			}
		}
	}
	return q.claims.attachable(h)
}
