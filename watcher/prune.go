package watcher

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastApplied holds a copy of the whole object, put there by kubectl apply.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// prune is the transform of all informers: it drops what no decision rests on before an object enters the cache, which
// is most of a pod. Objects of other kinds pass unchanged. It works in place and may be applied again.
func prune(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		prunePod(o)
	case *corev1.Node:
		pruneMeta(&o.ObjectMeta)
		o.Status = corev1.NodeStatus{
			Capacity: o.Status.Capacity, Allocatable: o.Status.Allocatable, Conditions: pruneConditions(o.Status.Conditions),
		}
	case *policyv1.PodDisruptionBudget:
		pruneMeta(&o.ObjectMeta)
		o.Status.Conditions = nil
	}
	return object, nil
}

func pruneMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	delete(m.Annotations, lastApplied)
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
}

func pruneConditions(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for i := range conditions {
		conditions[i].LastHeartbeatTime = metav1.Time{} // changes every few seconds and says nothing about a pod's place
		conditions[i].Message = ""
	}
	return conditions
}

func prunePod(p *corev1.Pod) {
	pruneMeta(&p.ObjectMeta)
	s := p.Spec
	p.Spec = corev1.PodSpec{
		Volumes: pruneVolumes(s.Volumes), InitContainers: pruneContainers(s.InitContainers),
		Containers: pruneContainers(s.Containers), NodeSelector: s.NodeSelector, NodeName: s.NodeName,
		TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds, HostNetwork: s.HostNetwork, Affinity: s.Affinity,
		SchedulerName: s.SchedulerName, Tolerations: s.Tolerations, PriorityClassName: s.PriorityClassName,
		Priority: s.Priority, Overhead: s.Overhead, TopologySpreadConstraints: s.TopologySpreadConstraints,
		ResourceClaims: s.ResourceClaims, Resources: s.Resources,
	}
	t := p.Status
	p.Status = corev1.PodStatus{
		Phase: t.Phase, Conditions: prunePodConditions(t.Conditions), Reason: t.Reason, StartTime: t.StartTime,
		InitContainerStatuses: pruneStatuses(t.InitContainerStatuses), ContainerStatuses: pruneStatuses(t.ContainerStatuses),
		EphemeralContainerStatuses: pruneStatuses(t.EphemeralContainerStatuses),
		QOSClass:                   t.QOSClass, NominatedNodeName: t.NominatedNodeName,
	}
}

func prunePodConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	for i := range conditions {
		conditions[i].LastProbeTime = metav1.Time{}
		conditions[i].Message = ""
	}
	return conditions
}

// pruneContainers keeps what scheduling looks at, and the image, which tells replicas of different versions apart.
func pruneContainers(containers []corev1.Container) []corev1.Container {
	for i := range containers {
		c := containers[i]
		containers[i] = corev1.Container{
			Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy,
		}
	}
	return containers
}

func pruneStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	for i := range statuses {
		s := statuses[i]
		statuses[i] = corev1.ContainerStatus{
			Name: s.Name, State: pruneState(s.State), LastTerminationState: pruneState(s.LastTerminationState),
			Ready: s.Ready, RestartCount: s.RestartCount,
		}
	}
	return statuses
}

// pruneState drops the messages, which can hold the end of a container's log.
func pruneState(s corev1.ContainerState) corev1.ContainerState {
	if s.Waiting != nil {
		s.Waiting.Message = ""
	}
	if s.Terminated != nil {
		s.Terminated.Message = ""
	}
	return s
}

// pruneVolumes keeps which kind of source a volume has, and the names that tie a pod to a place.
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
		default:
			continue // service account tokens, ConfigMaps and the like follow the pod anywhere
		}
		kept = append(kept, w)
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}
