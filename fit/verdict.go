package fit

// Reason names the rule behind a verdict. Its values are stable and can be shown and counted.
type Reason string

// The reasons why a pod does not fit, with the scheduler plugins.
const (
	// UnknownNode means that there is no such node.
	UnknownNode Reason = "unknown-node"
	// Cordoned means that the node is unschedulable and the pod does not tolerate that (NodeUnschedulable).
	Cordoned Reason = "cordoned"
	// Taint means that the pod does not tolerate a NoSchedule or NoExecute taint of the node (TaintToleration).
	Taint Reason = "taint"
	// NodeAffinity means that nodeSelector or the required node affinity does not match (NodeAffinity).
	NodeAffinity Reason = "node-affinity"
	// NodeFeatures means that the pod needs a feature that the node does not declare (NodeDeclaredFeatures).
	NodeFeatures Reason = "node-features"
	// HostPort means that a host port is in use (NodePorts).
	HostPort Reason = "host-port"
	// PodCount means that the node has its maximum number of pods (NodeResourcesFit).
	PodCount Reason = "pod-count"
	// Resource means that too little of a resource is left (NodeResourcesFit).
	Resource Reason = "resource"
	// VolumeConflict means that another pod on the node uses an exclusive disk (VolumeRestrictions).
	VolumeConflict Reason = "volume-conflict"
	// ClaimInUse means that another pod uses a ReadWriteOncePod claim (VolumeRestrictions).
	ClaimInUse Reason = "claim-in-use"
	// VolumeLimit means that the node has reached the volume limit of the driver (NodeVolumeLimits).
	VolumeLimit Reason = "volume-limit"
	// ClaimUnusable means that a claim is missing, lost, terminating, or not bound although it should be
	// (VolumeBinding).
	ClaimUnusable Reason = "claim-unusable"
	// VolumeNode means that a bound volume cannot be used on the node (VolumeBinding).
	VolumeNode Reason = "volume-node"
	// VolumeUnavailable means that no volume for an unbound claim exists or can be made for the node (VolumeBinding).
	VolumeUnavailable Reason = "volume-unavailable"
	// VolumeZone means that a bound volume has the label of another zone or region (VolumeZone).
	VolumeZone Reason = "volume-zone"
	// TopologySpread means that the pod would violate a hard topology spread constraint (PodTopologySpread).
	TopologySpread Reason = "topology-spread"
	// PodAffinity means that the required pod affinity is not met (InterPodAffinity).
	PodAffinity Reason = "pod-affinity"
	// PodAntiAffinity means that the pod's required anti-affinity forbids the node (InterPodAffinity).
	PodAntiAffinity Reason = "pod-anti-affinity"
	// ExistingAntiAffinity means that the required anti-affinity of an existing pod forbids the node
	// (InterPodAffinity).
	ExistingAntiAffinity Reason = "existing-anti-affinity"
)

// The reasons why a pod is not judged.
const (
	// OtherScheduler means that spec.schedulerName is not the default scheduler.
	OtherScheduler Reason = "other-scheduler"
	// Gated means that the pod has scheduling gates.
	Gated Reason = "gated"
	// Grouped means that the pod is scheduled together with others.
	Grouped Reason = "grouped"
	// DeviceClaims means that the pod needs devices from dynamic resource allocation.
	DeviceClaims Reason = "device-claims"
	// NewVolume means that the replacement gets a new volume that is provisioned before the pod has a node.
	NewVolume Reason = "new-volume"
)

// Verdict is the answer for one pod and one node. The zero value is no answer.
type Verdict struct {
	// OK means that the scheduler would place the pod on the node. It is never true if Judged is false.
	OK bool
	// Judged is false if this package cannot answer the question.
	Judged bool
	// Reason is empty if OK. If several rules object, it is the first in the order of the constants above.
	Reason Reason
	// Detail names the object of the rule, such as the resource, the taint key, or the claim. It may be empty.
	Detail string
}

// String formats the verdict for logs: "fits", "resource: cpu", "not judged: gated".
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

// no returns a refusal.
func no(reason Reason, detail string) Verdict {
	return Verdict{Judged: true, Reason: reason, Detail: detail}
}

// unjudged returns the verdict for a question that is not answered.
func unjudged(reason Reason, detail string) Verdict { return Verdict{Reason: reason, Detail: detail} }

// yes returns the verdict without an objection.
func yes() Verdict { return Verdict{OK: true, Judged: true} }
