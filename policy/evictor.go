package policy

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// SystemCritical is the lowest priority of pods that the cluster itself rests on, and the highest that a threshold may
// have: that of the class system-cluster-critical, from which Kubernetes reserves all priorities upwards.
const SystemCritical int32 = 2_000_000_000

// EvictorArgs are the arguments of DefaultEvictor: what protects a pod of the profile. The zero value has the peer's
// defaults.
type EvictorArgs struct {
	LabelSelector     *metav1.LabelSelector `json:"labelSelector,omitzero"`
	PriorityThreshold PriorityThreshold     `json:"priorityThreshold,omitzero"`
	MinPodAge         metav1.Duration       `json:"minPodAge,omitzero"`
	NoEvictionPolicy  NoEvictionPolicy      `json:"noEvictionPolicy,omitzero"`
	PodProtections    PodProtections        `json:"podProtections,omitzero"`

	// The older way to say what PodProtections says. Only one of the two may be used.
	EvictLocalStoragePods   bool `json:"evictLocalStoragePods,omitzero"`
	EvictDaemonSetPods      bool `json:"evictDaemonSetPods,omitzero"`
	EvictSystemCriticalPods bool `json:"evictSystemCriticalPods,omitzero"`
	EvictFailedBarePods     bool `json:"evictFailedBarePods,omitzero"`
	IgnorePVCPods           bool `json:"ignorePvcPods,omitzero"`
	IgnorePodsWithoutPDB    bool `json:"ignorePodsWithoutPDB,omitzero"`

	// NodeFit protects a pod whose replacement would fit on no other node.
	NodeFit bool `json:"nodeFit,omitzero"`
	// NodeSelector limits those other nodes, in label selector syntax. Empty: all. It has no effect without NodeFit.
	NodeSelector string `json:"nodeSelector,omitzero"`
	// NamespaceLabelSelector protects the pods of namespaces that it does not select. nil and the empty one select all.
	NamespaceLabelSelector *metav1.LabelSelector `json:"namespaceLabelSelector,omitzero"`
	// MinReplicas protects a pod whose only owner has fewer pods. 0 and 1 protect none.
	MinReplicas uint `json:"minReplicas,omitzero"`
}

// PriorityThreshold protects pods of at least this priority. The zero value protects none.
type PriorityThreshold struct {
	Value *int32 `json:"value,omitzero"`
	// Name is that of a PriorityClass whose value is the threshold, instead of Value. If there is none, all pods are
	// protected.
	Name string `json:"name,omitzero"`
}

// NoEvictionPolicy says what the annotation [PreferNoEviction] means.
type NoEvictionPolicy string

// The meanings. The empty string is Preferred.
const (
	Preferred NoEvictionPolicy = "Preferred" // such a pod is moved after others of its priority
	Mandatory NoEvictionPolicy = "Mandatory" // such a pod is protected
)

// PodProtections switches protections that are on by default off, and others on. The names are those of the rules.
type PodProtections struct {
	DefaultDisabled []string          `json:"defaultDisabled,omitzero"`
	ExtraEnabled    []string          `json:"extraEnabled,omitzero"`
	Config          ProtectionsConfig `json:"config,omitzero"`
}

// ProtectionsConfig are the arguments of single protections.
type ProtectionsConfig struct {
	PodsWithPVC PVCProtection `json:"PodsWithPVC,omitzero"`
}

// PVCProtection limits the protection PodsWithPVC to claims of some storage classes, and to those that have none or that
// do not exist. The zero value limits nothing. It has no effect unless PodsWithPVC is among those that are switched on.
type PVCProtection struct {
	ProtectedStorageClasses []StorageClass `json:"protectedStorageClasses,omitzero"`
}

// StorageClass names a StorageClass.
type StorageClass struct {
	Name string `json:"name"`
}

// Evictor says what protects a pod of a profile. The zero value protects what the peer protects by default: mirror,
// static and terminating pods, system-critical ones, bare ones, those of DaemonSets, and those with local storage; and
// pods with one of [DefaultSignals].
type Evictor struct {
	args EvictorArgs
	// selector is args.LabelSelector; nil matches every pod.
	selector labels.Selector
	// The rest is what PodProtections or the older fields come to; false is the default.
	movesSystemCritical, movesFailedBare, movesLocalStorage, movesDaemonSets bool
	protectsPVC, protectsClaims, protectsUnbudgeted                          bool
	// classes are the storage classes that protectsPVC is limited to; nil: to none.
	classes []string
	// namespaces and targets are args.NamespaceLabelSelector and args.NodeSelector; nil matches everything.
	namespaces, targets labels.Selector
	// signals also protect.
	signals Signals
}

// NewEvictor makes the Evictor of args. The error is that of [EvictorArgs.Validate].
func NewEvictor(args EvictorArgs) (Evictor, error) {
	if err := args.Validate(); err != nil {
		return Evictor{}, err
	}
	e := Evictor{
		args:                args,
		movesSystemCritical: args.EvictSystemCriticalPods,
		movesFailedBare:     args.EvictFailedBarePods,
		movesLocalStorage:   args.EvictLocalStoragePods,
		movesDaemonSets:     args.EvictDaemonSetPods,
		protectsPVC:         args.IgnorePVCPods,
		protectsUnbudgeted:  args.IgnorePodsWithoutPDB,
	}
	if args.LabelSelector != nil {
		e.selector = Selects(args.LabelSelector)
	}
	if s := Selects(args.NamespaceLabelSelector); !s.Empty() {
		e.namespaces = s
	}
	if s, err := labels.Parse(args.NodeSelector); err == nil && !s.Empty() {
		e.targets = s
	}
	e.apply(args.PodProtections)
	return e, nil
}

// apply switches protections off and on.
func (e *Evictor) apply(p PodProtections) {
	for _, rule := range p.DefaultDisabled {
		switch rule {
		case SystemCriticalPods:
			e.movesSystemCritical = true
		case FailedBarePods:
			e.movesFailedBare = true
		case PodsWithLocalStorage:
			e.movesLocalStorage = true
		case DaemonSetPods:
			e.movesDaemonSets = true
		}
	}
	for _, rule := range p.ExtraEnabled {
		switch rule {
		case PodsWithPVC:
			e.protectsPVC = true
			for _, class := range p.Config.PodsWithPVC.ProtectedStorageClasses {
				e.classes = append(e.classes, class.Name)
			}
		case PodsWithoutPDB:
			e.protectsUnbudgeted = true
		case PodsWithResourceClaims:
			e.protectsClaims = true
		}
	}
}

// Lapses is the first moment after now at which something that protects the pod ends by the passing of time alone:
// minPodAge, or a signal that is a length of time. Zero: nothing does, or the pod has not started.
func (e Evictor) Lapses(pod *corev1.Pod, now time.Time) time.Time {
	if pod.Status.StartTime == nil {
		return time.Time{}
	}
	started := pod.Status.StartTime.Time
	first := e.signals.lapses(pod, now)
	if old := started.Add(e.args.MinPodAge.Duration); old.After(now) && (first.IsZero() || old.Before(first)) {
		return old
	}
	return first
}

// Args are the arguments that e was made of.
func (e Evictor) Args() EvictorArgs { return e.args }
