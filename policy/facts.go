package policy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Facts answers what some protections need to know beyond the pod: look-ups in what is known of the cluster at the moment
// of the question. Two questions may be answered from different moments. An implementation answers any number of
// goroutines at once, changes nothing that it is given, and may know less than there is, but says nothing that it does
// not know.
type Facts interface {
	// Replicas counts the pods that have an owner reference with that UID, of any phase.
	Replicas(owner types.UID) int
	// Budgeted says whether a PodDisruptionBudget of the pod's namespace selects the pod.
	Budgeted(pod *corev1.Pod) bool
	// StorageClass is the class that a PersistentVolumeClaim names; empty if it names none. found is false if there is no
	// such claim.
	StorageClass(namespace, claim string) (class string, found bool)
	// Priority is the value of a PriorityClass, and whether there is one of that name.
	Priority(class string) (value int32, found bool)
	// NamespaceLabels are the labels of a namespace, and whether there is one of that name.
	NamespaceLabels(name string) (of labels.Set, found bool)
	// Elsewhere says whether the scheduler would place the pod's replacement on a ready node that nodes selects, other
	// than the one that the pod runs on. nil selects all. why says in words what keeps it away; it is empty if it fits.
	Elsewhere(pod *corev1.Pod, nodes labels.Selector) (fits bool, why string)
}

// Needs are the kinds of facts that an [Evictor] asks for. The zero value is none: pods are judged alone.
type Needs struct {
	Replicas, Budgets, StorageClasses, PriorityClasses, Namespaces, Room bool
}

// Needs says which facts can change what [Evictor.Protects] answers.
func (e Evictor) Needs() Needs {
	return Needs{
		Replicas:        e.args.MinReplicas > 1,
		Budgets:         e.protectsUnbudgeted,
		StorageClasses:  len(e.classes) > 0,
		PriorityClasses: e.args.PriorityThreshold.Name != "",
		Namespaces:      e.namespaces != nil,
		Room:            e.args.NodeFit,
	}
}
