package fit

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/resource"
)

// amounts are quantities as the scheduler counts them: CPU in thousandths, everything else in whole units, rounded up.
type amounts struct {
	cpu, memory, ephemeral int64
	others                 map[corev1.ResourceName]int64
}

// add adds sign times a list. Names that the scheduler does not count are left out.
func (a *amounts) add(list corev1.ResourceList, sign int64) {
	for name, quantity := range list {
		switch {
		case name == corev1.ResourceCPU:
			a.cpu += sign * quantity.MilliValue()
		case name == corev1.ResourceMemory:
			a.memory += sign * quantity.Value()
		case name == corev1.ResourceEphemeralStorage:
			a.ephemeral += sign * quantity.Value()
		case isCounted(name):
			a.addOther(name, sign*quantity.Value())
		}
	}
}

func (a *amounts) addOther(name corev1.ResourceName, value int64) {
	if a.others == nil {
		a.others = map[corev1.ResourceName]int64{}
	}
	a.others[name] += value
	if a.others[name] == 0 {
		delete(a.others, name)
	}
	if len(a.others) == 0 {
		a.others = nil
	}
}

// merge adds sign times other amounts.
func (a *amounts) merge(b *amounts, sign int64) {
	a.cpu += sign * b.cpu
	a.memory += sign * b.memory
	a.ephemeral += sign * b.ephemeral
	for name, value := range b.others {
		a.addOther(name, sign*value)
	}
}

// isCounted says whether the scheduler counts a resource besides CPU, memory and ephemeral storage: extended resources,
// huge pages, attachable volumes and other names that are qualified.
func isCounted(name corev1.ResourceName) bool {
	text := string(name)
	switch {
	case strings.HasPrefix(text, corev1.ResourceHugePagesPrefix),
		strings.HasPrefix(text, corev1.ResourceAttachableVolumesPrefix),
		strings.Contains(text, corev1.ResourceDefaultNamespacePrefix):
		return true
	}
	return strings.Contains(text, "/") && !strings.HasPrefix(text, corev1.DefaultResourceRequestsPrefix)
}

// wanted is what a pod that is to be placed asks for: its spec and nothing else.
func wanted(pod *corev1.Pod) amounts {
	var a amounts
	a.add(resource.PodRequests(pod, resource.PodResourcesOptions{}), 1)
	return a
}

// held is what a pod on a node holds: the larger of its spec and of what the kubelet has given it.
func held(pod *corev1.Pod) amounts {
	var a amounts
	a.add(resource.PodRequests(pod, resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}), 1)
	return a
}

// wantsDevices says whether a pod asks for a device by the name of its class, as if it were a resource.
func wantsDevices(a *amounts) bool {
	for name := range a.others {
		if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
			return true
		}
	}
	return false
}

// lacking names a resource of which less is left than wanted, or nothing. What is not asked for may be overdrawn.
func lacking(want, allocatable, requested *amounts) corev1.ResourceName {
	switch {
	case want.cpu > 0 && want.cpu > allocatable.cpu-requested.cpu:
		return corev1.ResourceCPU
	case want.memory > 0 && want.memory > allocatable.memory-requested.memory:
		return corev1.ResourceMemory
	case want.ephemeral > 0 && want.ephemeral > allocatable.ephemeral-requested.ephemeral:
		return corev1.ResourceEphemeralStorage
	}
	var least corev1.ResourceName
	for name, value := range want.others {
		short := value > 0 && value > allocatable.others[name]-requested.others[name]
		if short && (least == "" || name < least) {
			least = name // Of several the first by name, so that the answer is always the same.
		}
	}
	return least
}
