package cluster

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// controller is the part of a ReplicaSet, Deployment, StatefulSet, or ReplicationController that the cache keeps.
type controller struct {
	metav1.ObjectMeta
	ref      schemas.ObjectRef
	replicas int
	// deployment is the Deployment that controls a ReplicaSet, or the zero reference.
	deployment schemas.ObjectRef
}

func newController(kind string, m metav1.Object, replicas *int32) *controller {
	ref := schemas.ObjectRef{Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID()}
	c := &controller{ref: ref, replicas: 1}
	c.Namespace, c.Name, c.UID, c.ResourceVersion = m.GetNamespace(), m.GetName(), m.GetUID(), m.GetResourceVersion()
	if replicas != nil {
		c.replicas = int(*replicas)
	}
	if kind == "ReplicaSet" {
		c.deployment = controllerOf(m, "Deployment")
	}
	return c
}

// workloadBehind returns the Deployment of a known ReplicaSet, or else the controller itself.
func (w *Workloads) workloadBehind(owner schemas.ObjectRef) schemas.ObjectRef {
	if c := w.controllers[owner.UID]; c != nil && c.ref == owner && c.deployment.UID != "" {
		return c.deployment
	}
	return owner
}

// controllerChanged handles a change of a controller. old or new may be nil; else they have one UID.
func (w *Workloads) controllerChanged(old, new *controller) {
	at := cmp.Or(new, old)
	w.mu.Lock()
	before := w.tally(at.ref.UID)
	if new == nil {
		delete(w.controllers, at.ref.UID)
	} else {
		w.controllers[at.ref.UID] = new
	}
	var touched []types.UID
	if g := w.groups[at.ref]; g != nil {
		if behind := w.workloadBehind(at.ref); behind != g.workload {
			touched = append(touched, g.workload.UID, behind.UID)
			w.detach(g)
			g.workload = behind
			w.workloads[behind.UID] = append(w.workloads[behind.UID], g)
		}
	}
	if w.tally(at.ref.UID) != before {
		touched = append(touched, at.ref.UID)
	}
	w.mu.Unlock()
	w.tell("", touched...)
}

// controllerOf returns the controller of an object if it is of the kind, or of any kind if kind is empty, or else the
// zero reference.
func controllerOf(m metav1.Object, kind string) schemas.ObjectRef {
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil || kind != "" && (owner.Kind != kind || !strings.HasPrefix(owner.APIVersion, "apps/")) {
		return schemas.ObjectRef{}
	}
	return schemas.ObjectRef{Kind: owner.Kind, Namespace: m.GetNamespace(), Name: owner.Name, UID: owner.UID}
}
