package schemas

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ObjectRef refers to an object of the cluster. UID distinguishes it from other objects that had the same name.
type ObjectRef struct {
	// Kind is the Kubernetes kind, such as Node, Pod, or PodDisruptionBudget.
	Kind string `json:"kind" pattern:"^[A-Z][A-Za-z0-9]*$"`
	// Namespace is empty for cluster-scoped objects.
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
}

// String returns a short form such as node/worker-1 or pod/web/api-0.
func (r ObjectRef) String() string {
	if r.Namespace == "" {
		return strings.ToLower(r.Kind) + "/" + r.Name
	}
	return strings.ToLower(r.Kind) + "/" + r.Namespace + "/" + r.Name
}

// Named returns the reference without the UID: it refers to any object with the name.
func (r ObjectRef) Named() ObjectRef {
	r.UID = ""
	return r
}

// about returns the CloudEvents subject of the object: its API path without group and version.
func (r ObjectRef) about() string {
	plural := strings.ToLower(r.Kind) + "s"
	if r.Namespace == "" {
		return plural + "/" + r.Name
	}
	return "namespaces/" + r.Namespace + "/" + plural + "/" + r.Name
}

// PodRef refers to one pod. A new pod with the same name has another UID.
type PodRef struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// String returns NAMESPACE/NAME.
func (r PodRef) String() string { return r.Namespace + "/" + r.Name }

// Object returns the pod as an object.
func (r PodRef) Object() ObjectRef {
	return ObjectRef{Kind: "Pod", Namespace: r.Namespace, Name: r.Name, UID: r.UID}
}
