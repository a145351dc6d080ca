package fit

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// amounts are quantities as the scheduler counts them: CPU in thousandths, everything else in whole units, rounded up.
type amounts struct {
	cpu, memory, ephemeral int64
	others                 map[corev1.ResourceName]int64
	// scoredCPU and scoredMemory are CPU and memory with a default for each container that requests none. Score plugins
	// use them, filters do not.
	scoredCPU, scoredMemory int64
}

// add adds sign times a list. It omits names that the scheduler does not count.
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
	a.scoredCPU += sign * b.scoredCPU
	a.scoredMemory += sign * b.scoredMemory
	for name, value := range b.others {
		a.addOther(name, sign*value)
	}
}

// isCounted reports whether the scheduler counts a resource in addition to CPU, memory, and ephemeral storage: extended
// resources, huge pages, attachable volumes, and other qualified names.
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

// wanted returns the requests of a pod to be placed, from its spec alone.
func wanted(pod *corev1.Pod) amounts { return requested(pod, resource.PodResourcesOptions{}) }

// held returns the resources of a pod on a node: the larger of its spec and of the resources that the kubelet has given
// it.
func held(pod *corev1.Pod) amounts { return requested(pod, heldOptions()) }

func heldOptions() resource.PodResourcesOptions {
	return resource.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
}

// Held returns the resources that the scheduler counts for a pod on a node: the larger of its spec and of the resources that the
// kubelet has given it.
func Held(pod *corev1.Pod) corev1.ResourceList { return resource.PodRequests(pod, heldOptions()) }

// Score plugins count these requests for a container without requests, so that such pods do not all go to one node.
const (
	defaultMilliCPU = 100
	defaultMemory   = 200 << 20
)

// requested sums up the requests of a pod.
func requested(pod *corev1.Pod, options resource.PodResourcesOptions) amounts {
	var a amounts
	a.add(resource.PodRequests(pod, options), 1)
	a.scoredCPU, a.scoredMemory = a.cpu, a.memory
	spec := &pod.Spec
	cpu, memory := lackingContainers(spec, corev1.ResourceCPU), lackingContainers(spec, corev1.ResourceMemory)
	switch {
	case cpu+memory == 0:
	case len(spec.InitContainers) == 0 && len(pod.Status.ContainerStatuses) == 0:
		a.scoredCPU += cpu * defaultMilliCPU
		a.scoredMemory += memory * defaultMemory
	default:
		options.NonMissingContainerRequests = corev1.ResourceList{}
		if cpu > 0 {
			options.NonMissingContainerRequests[corev1.ResourceCPU] = *apiresource.NewMilliQuantity(defaultMilliCPU, apiresource.DecimalSI)
		}
		if memory > 0 {
			options.NonMissingContainerRequests[corev1.ResourceMemory] = *apiresource.NewQuantity(defaultMemory, apiresource.BinarySI)
		}
		scored := resource.PodRequests(pod, options)
		a.scoredCPU, a.scoredMemory = scored.Cpu().MilliValue(), scored.Memory().Value()
	}
	return a
}

// lackingContainers returns the number of containers without a request of a resource. A request at the pod level counts
// for all.
func lackingContainers(spec *corev1.PodSpec, name corev1.ResourceName) int64 {
	if spec.Resources != nil {
		if _, ofPod := spec.Resources.Requests[name]; ofPod {
			return 0
		}
	}
	count := int64(0)
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			if _, has := containers[i].Resources.Requests[name]; !has {
				count++
			}
		}
	}
	return count
}

// of returns the amount of one resource.
func (a *amounts) of(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return a.cpu
	case corev1.ResourceMemory:
		return a.memory
	case corev1.ResourceEphemeralStorage:
		return a.ephemeral
	}
	return a.others[name]
}

// scored returns the amount of one resource with the defaults.
func (a *amounts) scored(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return a.scoredCPU
	case corev1.ResourceMemory:
		return a.scoredMemory
	}
	return a.of(name)
}

// wantsDevices reports whether a pod requests a device by the name of its class, like a resource.
func wantsDevices(a *amounts) bool {
	for name := range a.others {
		if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
			return true
		}
	}
	return false
}

// lacking returns the name of a resource of which less is left than wanted, or "". Resources that the pod does not
// request may be overcommitted.
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
