package schemas

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ObjectRef names one object of the cluster. UID tells it from an earlier or later object of the same name.
type ObjectRef struct {
	// Kind is the Kubernetes kind, such as Node, Pod or PodDisruptionBudget.
	Kind string `json:"kind"`
	// Namespace is empty for objects that have none.
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
}

// String is the reference as people write it: node/worker-1, pod/web/api-0.
func (r ObjectRef) String() string {
	if r.Namespace == "" {
		return strings.ToLower(r.Kind) + "/" + r.Name
	}
	return strings.ToLower(r.Kind) + "/" + r.Namespace + "/" + r.Name
}

// about is the CloudEvents subject of the object: its path in the API, without group and version.
func (r ObjectRef) about() string {
	plural := strings.ToLower(r.Kind) + "s"
	if r.Namespace == "" {
		return plural + "/" + r.Name
	}
	return "namespaces/" + r.Namespace + "/" + plural + "/" + r.Name
}

// PodRef names one pod, for ever: a pod that is made anew under the same name has another UID.
type PodRef struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// String is namespace/name.
func (r PodRef) String() string { return r.Namespace + "/" + r.Name }
