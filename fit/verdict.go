package fit

// Reason names the rule that an answer comes from. Its values are stable and may be shown and counted.
type Reason string

// Why a pod does not fit, each with the scheduler's plugin that says so.
const (
	// UnknownNode: there is no such node.
	UnknownNode Reason = "unknown-node"
	// Cordoned: the node is unschedulable and the pod does not tolerate that (NodeUnschedulable).
	Cordoned Reason = "cordoned"
	// Taint: a taint of the node with effect NoSchedule or NoExecute is not tolerated (TaintToleration).
	Taint Reason = "taint"
	// NodeAffinity: nodeSelector or the required node affinity does not match (NodeAffinity).
	NodeAffinity Reason = "node-affinity"
	// NodeFeatures: the pod needs a feature that the node does not declare (NodeDeclaredFeatures).
	NodeFeatures Reason = "node-features"
	// HostPort: a host port is taken (NodePorts).
	HostPort Reason = "host-port"
	// PodCount: the node has as many pods as it may have (NodeResourcesFit).
	PodCount Reason = "pod-count"
	// Resource: too little of a resource is left (NodeResourcesFit).
	Resource Reason = "resource"
	// VolumeConflict: a disk that only one pod may use is used on the node (VolumeRestrictions).
	VolumeConflict Reason = "volume-conflict"
	// ClaimInUse: another pod uses a claim that is ReadWriteOncePod (VolumeRestrictions).
	ClaimInUse Reason = "claim-in-use"
	// VolumeLimit: the node may not attach that many volumes of the driver (NodeVolumeLimits).
	VolumeLimit Reason = "volume-limit"
	// ClaimUnusable: a claim is missing, lost, being deleted, or not bound although it should be (VolumeBinding).
	ClaimUnusable Reason = "claim-unusable"
	// VolumeNode: a bound volume cannot be used on the node (VolumeBinding).
	VolumeNode Reason = "volume-node"
	// VolumeUnavailable: no volume for an unbound claim is there or can be made for the node (VolumeBinding).
	VolumeUnavailable Reason = "volume-unavailable"
	// VolumeZone: a bound volume is labelled with another zone or region (VolumeZone).
	VolumeZone Reason = "volume-zone"
	// TopologySpread: a hard topology spread constraint would be violated (PodTopologySpread).
	TopologySpread Reason = "topology-spread"
	// PodAffinity: the required pod affinity is not met (InterPodAffinity).
	PodAffinity Reason = "pod-affinity"
	// PodAntiAffinity: the pod's required anti-affinity forbids it (InterPodAffinity).
	PodAntiAffinity Reason = "pod-anti-affinity"
	// ExistingAntiAffinity: the required anti-affinity of a pod that is there forbids it (InterPodAffinity).
	ExistingAntiAffinity Reason = "existing-anti-affinity"
)

// Why a pod is not judged at all.
const (
	// OtherScheduler: spec.schedulerName is not the default scheduler.
	OtherScheduler Reason = "other-scheduler"
	// Gated: the pod has scheduling gates.
	Gated Reason = "gated"
	// Grouped: the pod is scheduled together with others.
	Grouped Reason = "grouped"
	// DeviceClaims: the pod needs devices by dynamic resource allocation.
	DeviceClaims Reason = "device-claims"
	// NewVolume: the replacement gets a new volume, made before it is known where the pod goes.
	NewVolume Reason = "new-volume"
)

// Verdict is the answer for one pod and one node. The zero value is no answer.
type Verdict struct {
	// OK: the scheduler would place the pod on the node. Never true when Judged is false.
	OK bool
	// Judged is false if the question is outside of what this package answers.
	Judged bool
	// Reason is why not. Empty if OK. If several rules object, it is the first in the order of the constants above.
	Reason Reason
	// Detail is what the rule objects to, such as the name of the resource, the key of the taint, the claim. May be empty.
	Detail string
}

// String is for logs: "fits", "resource: cpu", "not judged: gated".
func (v Verdict) String() string {
	switch {
	case v.OK:
		return "fits"
	case !v.Judged:
		return "not judged: " + string(v.Reason)
	case v.Detail == "":
		return string(v.Reason)
	}
	return string(v.Reason) + ": " + v.Detail
}

// no is a refusal.
func no(reason Reason, detail string) Verdict {
	return Verdict{Judged: true, Reason: reason, Detail: detail}
}

// unjudged is the answer to what is not answered.
func unjudged(reason Reason, detail string) Verdict { return Verdict{Reason: reason, Detail: detail} }

// yes is the answer when no rule objects.
func yes() Verdict { return Verdict{OK: true, Judged: true} }
