package podlifetime

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/lifecycle"
	"github.com/rehome-dev/rehome/policy"
)

// Args are the arguments of the strategy. A pod moves when all that are given agree. At least one of
// MaxPodLifeTimeSeconds, States, Conditions and ExitCodes must be given.
type Args struct {
	Namespaces policy.Namespaces `json:"namespaces,omitzero"`
	// LabelSelector limits the strategy to the pods that it selects. nil: all.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitzero"`
	OwnerKinds    OwnerKinds            `json:"ownerKinds,omitzero"`
	// MaxPodLifeTimeSeconds is the age in whole seconds, counted from creation, that a pod may have: it is to move when it
	// is a second older. nil: any age is too old.
	MaxPodLifeTimeSeconds *uint `json:"maxPodLifeTimeSeconds,omitzero"`
	// States are phases, reasons of pods, and reasons why a container waits or is terminated; one must be the pod's.
	// Empty: any.
	States []string `json:"states,omitzero"`
	// Conditions are such that one must be met by one of the pod's conditions. Empty: none needs to be.
	Conditions []Condition `json:"conditions,omitzero"`
	// ExitCodes are such that a container must be terminated now with one of them. Empty: none needs to be.
	ExitCodes []int32 `json:"exitCodes,omitzero"`
	// IncludingInitContainers makes init containers count for States and ExitCodes.
	IncludingInitContainers bool `json:"includingInitContainers,omitzero"`
	// IncludingEphemeralContainers makes ephemeral containers count for States. They never count for ExitCodes.
	IncludingEphemeralContainers bool `json:"includingEphemeralContainers,omitzero"`
}

// OwnerKinds limits the strategy to pods by the kinds of their owners, such as ReplicaSet. The zero value is all pods.
type OwnerKinds struct {
	// Include are the kinds of which an owner must be; Exclude those of which none may be. At most one may be used.
	Include []string `json:"include,omitzero"`
	Exclude []string `json:"exclude,omitzero"`
}

// Condition describes a condition of a pod. All fields that are given must be true of the same condition. At least one
// must be given.
type Condition struct {
	Type   string `json:"type,omitzero"`
	Status string `json:"status,omitzero"`
	Reason string `json:"reason,omitzero"`
	// MinTimeSinceLastTransitionSeconds is how long ago the condition must have changed its status. nil: no matter when,
	// and whether that is known.
	MinTimeSinceLastTransitionSeconds *uint `json:"minTimeSinceLastTransitionSeconds,omitzero"`
}

// states are those that [Args.States] may list.
func states() []string {
	return []string{
		// phases
		string(corev1.PodRunning), string(corev1.PodPending), string(corev1.PodSucceeded), string(corev1.PodFailed),
		string(corev1.PodUnknown),
		// reasons of a pod
		"NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError",
		// why a container waits
		"PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff", "CreateContainerConfigError",
		"ErrImagePull", "CreateContainerError", "InvalidImageName",
		// why a container is terminated
		"OOMKilled", "Error", "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError",
	}
}

// Validate says what is wrong with the arguments; each error in it is a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("namespaces", a.Namespaces.Validate())
	found.Join("labelSelector", policy.ValidateSelector(a.LabelSelector))
	found.Join("ownerKinds", a.OwnerKinds.validate())
	if a.MaxPodLifeTimeSeconds == nil && len(a.States) == 0 && len(a.Conditions) == 0 && len(a.ExitCodes) == 0 {
		found.Add("", nil, "would move every pod",
			"give at least one of maxPodLifeTimeSeconds, states, conditions and exitCodes")
	}
	for i, state := range a.States {
		if !slices.Contains(states(), state) {
			found.Add("states"+policy.Item(i), state, "is not known", "want one of "+strings.Join(states(), ", "))
		}
	}
	for i, c := range a.Conditions {
		found.Join("conditions"+policy.Item(i), c.validate())
	}
	return found.Err()
}

func (o OwnerKinds) validate() error {
	var found policy.Findings
	if len(o.Include) > 0 && len(o.Exclude) > 0 {
		found.Add("", nil, "has both include and exclude", "keep one")
	}
	found.Join("include", lifecycle.ValidateKinds(o.Include))
	found.Join("exclude", lifecycle.ValidateKinds(o.Exclude))
	return found.Err()
}

func (c Condition) validate() error {
	var found policy.Findings
	if c == (Condition{}) {
		found.Add("", nil, "would be met by every condition",
			"give at least one of type, status, reason and minTimeSinceLastTransitionSeconds")
	}
	switch corev1.ConditionStatus(c.Status) {
	case "", corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
	default:
		found.Add("status", c.Status, "is not the status of a condition", "want True, False or Unknown")
	}
	return found.Err()
}

// has says whether pods with these owners are looked at.
func (o OwnerKinds) has(pod *corev1.Pod) bool {
	if len(o.Include) > 0 {
		return lifecycle.Owned(pod, o.Include)
	}
	return !lifecycle.Owned(pod, o.Exclude)
}
