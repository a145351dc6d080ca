package cluster

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
)

// prune is the transform of all informers: it drops fields that no role reads before an object enters the cache, which is
// most of a pod. Dropping ephemeral containers does not affect where a replacement fits, because it has none. prune works
// in place and may be repeated.
func (c *Cache) prune(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		prunePod(o)
		c.shared.share(o)
	case *corev1.Node:
		pruneMeta(&o.ObjectMeta)
		o.Status = corev1.NodeStatus{
			Capacity: o.Status.Capacity, Allocatable: o.Status.Allocatable, Conditions: pruneConditions(o.Status.Conditions),
			DeclaredFeatures: o.Status.DeclaredFeatures,
		}
	case *policyv1.PodDisruptionBudget:
		pruneMeta(&o.ObjectMeta)
		o.Status.Conditions = nil
	case *appsv1.ReplicaSet:
		return newController("ReplicaSet", o, o.Spec.Replicas), nil
	case *appsv1.Deployment:
		return newController("Deployment", o, o.Spec.Replicas), nil
	case *appsv1.StatefulSet:
		return newController("StatefulSet", o, o.Spec.Replicas), nil
	case *corev1.ReplicationController:
		return newController("ReplicationController", o, o.Spec.Replicas), nil
	default:
		pruneOther(object)
	}
	return object, nil
}

func pruneMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
}

func pruneConditions(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for i := range conditions {
		conditions[i].LastHeartbeatTime = metav1.Time{} // changes every few seconds and does not affect a pod's node
		if !strings.HasSuffix(conditions[i].Message, ")") || !strings.Contains(conditions[i].Message, " (maintenance ") {
			conditions[i].Message = "" // the message of a maintenance has its name in it
		}
	}
	return conditions
}

func prunePod(p *corev1.Pod) {
	pruneMeta(&p.ObjectMeta)
	s := p.Spec
	p.Spec = corev1.PodSpec{
		Volumes: pruneVolumes(s.Volumes), InitContainers: pruneContainers(s.InitContainers),
		Containers: pruneContainers(s.Containers), NodeSelector: s.NodeSelector, NodeName: s.NodeName, Affinity: s.Affinity,
		TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds, HostNetwork: s.HostNetwork, HostUsers: s.HostUsers,
		SchedulerName: s.SchedulerName, SchedulingGates: s.SchedulingGates, SchedulingGroup: s.SchedulingGroup,
		Tolerations: s.Tolerations, PriorityClassName: s.PriorityClassName, Priority: s.Priority, Overhead: s.Overhead,
		TopologySpreadConstraints: s.TopologySpreadConstraints, ResourceClaims: s.ResourceClaims, Resources: s.Resources,
	}
	t := p.Status
	infeasible := resource.IsPodResizeInfeasible(p)
	p.Status = corev1.PodStatus{
		Phase: t.Phase, Conditions: prunePodConditions(t.Conditions), Reason: t.Reason, StartTime: t.StartTime,
		InitContainerStatuses:      pruneStatuses(t.InitContainerStatuses, s.InitContainers, infeasible),
		ContainerStatuses:          pruneStatuses(t.ContainerStatuses, s.Containers, infeasible),
		EphemeralContainerStatuses: pruneStatuses(t.EphemeralContainerStatuses, nil, infeasible),
		QOSClass:                   t.QOSClass, NominatedNodeName: t.NominatedNodeName,
		AllocatedResources: t.AllocatedResources, Resources: requestsOf(t.Resources),
	}
}

func prunePodConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	for i := range conditions {
		c := &conditions[i]
		c.LastProbeTime = metav1.Time{}
		if saysWhy := c.Type == corev1.PodScheduled || c.Type == corev1.PodReady; !saysWhy || c.Status == corev1.ConditionTrue {
			c.Message = ""
		}
		c.Message = cut(c.Message)
	}
	return conditions
}

// longest is the number of bytes that are kept of a message. The message of a waiting container can contain a complete
// answer of a registry.
const longest = 160

// cut shortens a long message and marks the end. It may be repeated.
func cut(text string) string {
	if len(text) <= longest || strings.HasSuffix(text, "…") && len(text) <= longest+len("…") {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// pruneContainers keeps the fields that scheduling reads, and the image, which distinguishes replicas of different
// versions.
func pruneContainers(containers []corev1.Container) []corev1.Container {
	for i := range containers {
		c := containers[i]
		containers[i] = corev1.Container{
			Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy,
			RestartPolicyRules: c.RestartPolicyRules, VolumeMounts: bindMounts(c.VolumeMounts),
		}
	}
	return containers
}

// bindMounts keeps the mounts with options that not every kubelet supports.
func bindMounts(mounts []corev1.VolumeMount) []corev1.VolumeMount {
	var kept []corev1.VolumeMount
	for _, m := range mounts {
		if len(m.BindMountOptions) > 0 {
			kept = append(kept, corev1.VolumeMount{Name: m.Name, BindMountOptions: m.BindMountOptions})
		}
	}
	return kept
}

// pruneStatuses keeps the resources that the kubelet has given a container only if they differ from its spec, because
// most pods are never resized, and they would be a good part of the rest. infeasible means that the pod was resized to
// more than its node has.
func pruneStatuses(
	statuses []corev1.ContainerStatus, containers []corev1.Container, infeasible bool,
) []corev1.ContainerStatus {
	for i := range statuses {
		s := statuses[i]
		statuses[i] = corev1.ContainerStatus{
			Name: s.Name, State: pruneState(s.State), LastTerminationState: pruneState(s.LastTerminationState),
			Ready: s.Ready, RestartCount: s.RestartCount,
		}
		if infeasible || !givenAsAsked(s, containers) {
			statuses[i].AllocatedResources, statuses[i].Resources = s.AllocatedResources, requestsOf(s.Resources)
		}
	}
	return statuses
}

// givenAsAsked returns whether the container has the resources that its spec requests, or its status does not say.
func givenAsAsked(s corev1.ContainerStatus, containers []corev1.Container) bool {
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name })
	if at < 0 {
		return true // no container: it counts for nothing
	}
	asked := containers[at].Resources.Requests
	given := s.Resources == nil || s.Resources.Requests == nil || equality.Semantic.DeepEqual(s.Resources.Requests, asked)
	return given && (s.AllocatedResources == nil || equality.Semantic.DeepEqual(s.AllocatedResources, asked))
}

// requestsOf drops the limits, which do not affect scheduling.
func requestsOf(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil || r.Requests == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Requests: r.Requests}
}

// pruneState drops the message of a container that ended, which can hold the end of its log.
func pruneState(s corev1.ContainerState) corev1.ContainerState {
	if s.Waiting != nil {
		s.Waiting.Message = cut(s.Waiting.Message)
	}
	if s.Terminated != nil {
		s.Terminated.Message = ""
	}
	return s
}

// pruneVolumes keeps the kind of source of a volume, and the names that bind a pod to a place.
func pruneVolumes(volumes []corev1.Volume) []corev1.Volume {
	kept := volumes[:0]
	for _, v := range volumes {
		w := corev1.Volume{Name: v.Name}
		switch s := v.VolumeSource; {
		case s.HostPath != nil:
			w.HostPath = s.HostPath
		case s.EmptyDir != nil:
			w.EmptyDir = s.EmptyDir
		case s.PersistentVolumeClaim != nil:
			w.PersistentVolumeClaim = s.PersistentVolumeClaim
		case s.Ephemeral != nil:
			w.Ephemeral = s.Ephemeral
		case s.CSI != nil:
			w.CSI = &corev1.CSIVolumeSource{Driver: s.CSI.Driver}
		case s.GCEPersistentDisk != nil:
			w.GCEPersistentDisk = s.GCEPersistentDisk
		case s.AWSElasticBlockStore != nil:
			w.AWSElasticBlockStore = s.AWSElasticBlockStore
		case s.ISCSI != nil:
			w.ISCSI = &corev1.ISCSIVolumeSource{IQN: s.ISCSI.IQN, ReadOnly: s.ISCSI.ReadOnly}
		case s.RBD != nil:
			w.RBD = &corev1.RBDVolumeSource{
				CephMonitors: s.RBD.CephMonitors, RBDImage: s.RBD.RBDImage, RBDPool: s.RBD.RBDPool, ReadOnly: s.RBD.ReadOnly,
			}
		default:
			continue // service account tokens, ConfigMaps, and the like follow the pod anywhere
		}
		kept = append(kept, w)
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// The annotations with the location and the class of a claim or a volume, and with the default class. Package fit reads
// them.
func storageAnnotations() []string {
	return []string{
		"pv.kubernetes.io/bind-completed", "volume.kubernetes.io/selected-node", corev1.BetaStorageClassAnnotation,
		"storageclass.kubernetes.io/is-default-class",
	}
}

// pruneOther prunes the metadata of the other kinds. A cluster can have many namespaces, claims, volumes,
// and attachments: they keep only the fields that placement and the rules of the policy read.
func pruneOther(object any) {
	if o, ok := object.(metav1.Object); ok {
		var kept map[string]string
		for _, key := range storageAnnotations() {
			if value, set := o.GetAnnotations()[key]; set {
				if kept == nil {
					kept = map[string]string{}
				}
				kept[key] = value
			}
		}
		o.SetAnnotations(kept)
		o.SetFinalizers(nil)
		o.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.Namespace:
		o.Spec, o.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	case *corev1.PersistentVolumeClaim:
		o.Labels, o.Status = nil, corev1.PersistentVolumeClaimStatus{Phase: o.Status.Phase}
	case *corev1.PersistentVolume:
		pruneVolume(o)
	case *storagev1.VolumeAttachment:
		o.Spec.Source, o.Status = storagev1.VolumeAttachmentSource{PersistentVolumeName: o.Spec.Source.PersistentVolumeName},
			storagev1.VolumeAttachmentStatus{}
	}
}

// pruneVolume keeps only the parts of a volume source that count towards an attachment limit.
func pruneVolume(v *corev1.PersistentVolume) {
	s := v.Spec
	v.Spec = corev1.PersistentVolumeSpec{
		Capacity: s.Capacity, AccessModes: s.AccessModes, StorageClassName: s.StorageClassName, VolumeMode: s.VolumeMode,
		NodeAffinity: s.NodeAffinity, VolumeAttributesClassName: s.VolumeAttributesClassName,
	}
	if r := s.ClaimRef; r != nil {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: r.Namespace, Name: r.Name, UID: r.UID}
	}
	if s.CSI != nil {
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: s.CSI.Driver, VolumeHandle: s.CSI.VolumeHandle}
	}
	v.Status = corev1.PersistentVolumeStatus{Phase: v.Status.Phase}
}
