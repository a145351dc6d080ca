package fit

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Annotations of claims that the scheduler reads.
const (
	bindCompleted = "pv.kubernetes.io/bind-completed"
	selectedNode  = "volume.kubernetes.io/selected-node"
	defaultClass  = "storageclass.kubernetes.io/is-default-class"
)

// storage is the known state of volumes.
type storage struct {
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes map[string]*volume
	// ofClass are the volumes by the name of their class, then by their own name.
	ofClass    map[string]map[string]*volume
	classes    map[string]*storagev1.StorageClass
	drivers    map[string]*storagev1.CSIDriver
	capacities map[types.NamespacedName]*storagev1.CSIStorageCapacity
	// limits is the number of volumes of a driver that may be attached, by node, then by driver.
	limits map[string]map[string]int64
	// attachments by their name, and the same by node.
	attachments map[string]*storagev1.VolumeAttachment
	attachedTo  map[string]map[string]*storagev1.VolumeAttachment
	// users are the pods that use each claim.
	users map[types.NamespacedName]map[types.UID]*placed
}

func newStorage() storage {
	return storage{
		claims:      map[types.NamespacedName]*corev1.PersistentVolumeClaim{},
		volumes:     map[string]*volume{},
		ofClass:     map[string]map[string]*volume{},
		classes:     map[string]*storagev1.StorageClass{},
		drivers:     map[string]*storagev1.CSIDriver{},
		capacities:  map[types.NamespacedName]*storagev1.CSIStorageCapacity{},
		limits:      map[string]map[string]int64{},
		attachments: map[string]*storagev1.VolumeAttachment{},
		attachedTo:  map[string]map[string]*storagev1.VolumeAttachment{},
		users:       map[types.NamespacedName]map[types.UID]*placed{},
	}
}

// keyOf returns the namespace and name of an object.
func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// enter records the claims of a pod. Ephemeral claims have no other users.
func (s *storage) enter(p *placed) {
	for _, ref := range p.claims {
		if !ref.ephemeral {
			put(s.users, types.NamespacedName{Namespace: p.namespace, Name: ref.name}, p.uid, p)
		}
	}
}

func (s *storage) leave(p *placed) {
	for _, ref := range p.claims {
		if !ref.ephemeral {
			remove(s.users, types.NamespacedName{Namespace: p.namespace, Name: ref.name}, p.uid)
		}
	}
}

func put[A, B comparable, V any](in map[A]map[B]V, a A, b B, v V) {
	if in[a] == nil {
		in[a] = map[B]V{}
	}
	in[a][b] = v
}

func remove[A, B comparable, V any](from map[A]map[B]V, a A, b B) {
	delete(from[a], b)
	if len(from[a]) == 0 {
		delete(from, a)
	}
}

// volume is a volume with its parsed node affinity.
type volume struct {
	*corev1.PersistentVolume
	class string
	// nodes is nil if the volume can be used everywhere.
	nodes *nodeaffinity.LazyErrorNodeSelector
	// zones are its labels of zone and region.
	zones []zoneLabel
}

func newVolume(v *corev1.PersistentVolume) *volume {
	read := &volume{PersistentVolume: v, class: v.Spec.StorageClassName, zones: zoneLabels(v.Labels)}
	if class, beta := v.Annotations[corev1.BetaStorageClassAnnotation]; beta {
		read.class = class
	}
	if affinity := v.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		read.nodes = nodeaffinity.NewLazyErrorNodeSelector(affinity.Required)
	}
	return read
}

// usableOn reports whether a node with these labels may use the volume. Only labels count, not node names.
func (v *volume) usableOn(nodeLabels map[string]string) bool {
	if v.nodes == nil {
		return true
	}
	ok, err := v.nodes.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: nodeLabels}})
	return ok && err == nil
}

func (s *storage) setVolume(v *corev1.PersistentVolume) {
	s.removeVolume(v.Name)
	read := newVolume(v)
	s.volumes[v.Name] = read
	put(s.ofClass, read.class, v.Name, read)
}

func (s *storage) removeVolume(name string) {
	if known := s.volumes[name]; known != nil {
		delete(s.volumes, name)
		remove(s.ofClass, known.class, name)
	}
}

func (s *storage) setLimits(n *storagev1.CSINode) {
	limits := map[string]int64{}
	for _, d := range n.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			limits[d.Name] = int64(*d.Allocatable.Count)
		}
	}
	s.limits[n.Name] = limits
}

func (s *storage) setAttachment(a *storagev1.VolumeAttachment) {
	s.removeAttachment(a.Name)
	s.attachments[a.Name] = a
	put(s.attachedTo, a.Spec.NodeName, a.Name, a)
}

func (s *storage) removeAttachment(name string) {
	if known := s.attachments[name]; known != nil {
		delete(s.attachments, name)
		remove(s.attachedTo, known.Spec.NodeName, name)
	}
}

// classOf returns the class that a claim requests, or "".
func classOf(claim *corev1.PersistentVolumeClaim) string {
	if class, beta := claim.Annotations[corev1.BetaStorageClassAnnotation]; beta {
		return class
	}
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// waits reports whether volumes of a class are chosen or made only after the pod has a node.
func (s *storage) waits(class string) bool {
	known := s.classes[class]
	return known != nil && known.VolumeBindingMode != nil &&
		*known.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// defaultClass returns the class of a new claim that names none: the newest default class, and by name among equals.
func (s *storage) defaultClass() string {
	var best *storagev1.StorageClass
	for _, name := range slices.Sorted(maps.Keys(s.classes)) {
		class := s.classes[name]
		if class.Annotations[defaultClass] != "true" {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&class.CreationTimestamp) {
			best = class
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}

// isAllowed reports whether a class allows volumes on nodes with these labels.
func isAllowed(class *storagev1.StorageClass, nodeLabels map[string]string) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	return slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		return len(t.MatchLabelExpressions) > 0 && !slices.ContainsFunc(t.MatchLabelExpressions,
			func(r corev1.TopologySelectorLabelRequirement) bool {
				value, has := nodeLabels[r.Key]
				return !has || !slices.Contains(r.Values, value)
			})
	})
}

// suffices reports whether a driver has that many bytes for a node with these labels. A driver that does not report its
// capacity always has.
func (s *storage) suffices(class *storagev1.StorageClass, bytes int64, nodeLabels map[string]string) bool {
	driver := s.drivers[class.Provisioner]
	if driver == nil || driver.Spec.StorageCapacity == nil || !*driver.Spec.StorageCapacity {
		return true
	}
	for _, capacity := range s.capacities {
		limit := capacity.MaximumVolumeSize
		if limit == nil {
			limit = capacity.Capacity
		}
		if capacity.StorageClassName != class.Name || limit == nil || limit.Value() < bytes || capacity.NodeTopology == nil {
			continue
		}
		nodes, err := metav1.LabelSelectorAsSelector(capacity.NodeTopology)
		if err == nil && nodes.Matches(labels.Set(nodeLabels)) {
			return true
		}
	}
	return false
}

// match returns the existing volume for a waiting claim on a node: the one that is reserved for it, or else the
// smallest suitable one, the first by name among equals, or nil. It ignores taken volumes.
func (s *storage) match(claim *corev1.PersistentVolumeClaim, h *host, taken map[string]bool) *volume {
	selector := labels.Everything()
	if claim.Spec.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(claim.Spec.Selector); err != nil {
			return nil
		}
	}
	var best *volume
	for name, v := range s.ofClass[classOf(claim)] {
		if taken[name] || !isLargeEnough(v, claim) || !isSameKind(v, claim) || v.DeletionTimestamp != nil {
			continue
		}
		switch {
		case isReserved(v, claim):
			if !v.usableOn(h.node.Labels) {
				return nil
			}
			return v
		case v.Spec.ClaimRef != nil, v.Status.Phase != corev1.VolumeAvailable, !selector.Matches(labels.Set(v.Labels)),
			!hasModes(v, claim), !v.usableOn(h.node.Labels):
			continue
		}
		if best == nil || isBefore(v, best) {
			best = v
		}
	}
	return best
}

// isLargeEnough reports whether a volume has the size that a claim requests.
func isLargeEnough(v *volume, claim *corev1.PersistentVolumeClaim) bool {
	has, want := v.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return has.Cmp(want) >= 0
}

// isSameKind reports whether both are file systems or both are block volumes, with the same attributes class.
func isSameKind(v *volume, claim *corev1.PersistentVolumeClaim) bool {
	return orDefault(v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) ==
		orDefault(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) &&
		orDefault(v.Spec.VolumeAttributesClassName, "") == orDefault(claim.Spec.VolumeAttributesClassName, "")
}

func orDefault[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// isReserved reports whether a volume is reserved for a claim.
func isReserved(v *volume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == claim.Name && ref.Namespace == claim.Namespace &&
		(ref.UID == "" || ref.UID == claim.UID)
}

// hasModes reports whether a volume has all access modes that a claim requests.
func hasModes(v *volume, claim *corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(claim.Spec.AccessModes, func(mode corev1.PersistentVolumeAccessMode) bool {
		return !slices.Contains(v.Spec.AccessModes, mode)
	})
}

// isBefore orders volumes by size, then by name.
func isBefore(v, other *volume) bool {
	x, y := v.Spec.Capacity[corev1.ResourceStorage], other.Spec.Capacity[corev1.ResourceStorage]
	if order := x.Cmp(y); order != 0 {
		return order < 0
	}
	return v.Name < other.Name
}
