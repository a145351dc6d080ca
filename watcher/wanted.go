package watcher

import (
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// wish is what is wanted of a node.
type wish struct {
	name   string // of the maintenance
	node   string
	reason string
	schemas.NodeRequest
	// uid is the one that a new maintenance gets. Empty: any.
	uid types.UID
}

// maintenanceStages are the stages that can be wanted, in the order in which they are gone through.
func maintenanceStages() []v1alpha1.Stage {
	return []v1alpha1.Stage{v1alpha1.Cordon, v1alpha1.Drain, v1alpha1.Complete}
}

// further says whether a stage comes after another one.
func further(a, b v1alpha1.Stage) bool {
	return slices.Index(maintenanceStages(), a) > slices.Index(maintenanceStages(), b)
}

// of is what the maintenance becomes, and why it cannot. Both nil: it is as is wanted. A deadline takes the place of the one
// that was there, and a guard that was lifted stays so.
func (w wish) of(is *v1alpha1.NodeMaintenance, now time.Time) (*v1alpha1.NodeMaintenance, *objection) {
	if is == nil {
		return w.first(now), nil
	}
	if further(is.Spec.Stage, w.Stage) {
		return nil, refuse(schemas.ReceiptConflict,
			"the stage cannot go from %s to %s, only forwards; when the node is given back, it can be asked for anew",
			is.Spec.Stage, w.Stage)
	}
	next := is.DeepCopy()
	if next.Spec.Stage != w.Stage {
		next.Spec.Stage, next.Spec.Reason = w.Stage, w.reason
	}
	if w.Deadline != nil {
		next.Spec.Deadline, next.Spec.OnDeadline = w.Deadline, w.OnDeadline
	}
	for _, guard := range w.Force {
		if !slices.Contains(next.Spec.Force, guard) {
			next.Spec.Force = append(next.Spec.Force, guard)
		}
	}
	if reflect.DeepEqual(next.Spec, is.Spec) {
		return nil, nil
	}
	next.Generation++
	return next, nil
}

// first is a new maintenance.
func (w wish) first(now time.Time) *v1alpha1.NodeMaintenance {
	uid := w.uid
	if uid == "" {
		uid = uuid.NewUUID()
	}
	return &v1alpha1.NodeMaintenance{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "NodeMaintenance"},
		ObjectMeta: metav1.ObjectMeta{
			Name: w.name, UID: uid, Generation: 1, CreationTimestamp: metav1.NewTime(now.UTC().Truncate(time.Second)),
		},
		Spec: v1alpha1.NodeMaintenanceSpec{
			Nodes: v1alpha1.NodeSet{Names: []string{w.node}}, Stage: w.Stage, Reason: w.reason, Deadline: w.Deadline,
			OnDeadline: w.OnDeadline, Force: w.Force,
		},
	}
}

// reasonOf is why a node is maintained, with who asked, in as many characters as a maintenance may have.
func reasonOf(r schemas.Request) string {
	text := r.Reason
	if r.Requester != "" {
		text += " (asked for by " + r.Requester + ")"
	}
	if runes := []rune(text); len(runes) > schemas.MaxRequestReason {
		return string(runes[:schemas.MaxRequestReason-1]) + "…"
	}
	return text
}
