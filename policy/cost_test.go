package policy

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestMoveCost(t *testing.T) {
	pod := func(priority *int32, class corev1.PodQOSClass, annotations ...string) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Priority: priority}, Status: corev1.PodStatus{QOSClass: class}}
		p.Annotations = map[string]string{}
		for i := 0; i < len(annotations); i += 2 {
			p.Annotations[annotations[i]] = annotations[i+1]
		}
		return p
	}
	const best, burstable, guaranteed = corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed
	deletion := corev1.PodDeletionCost
	var costs []int64
	for _, p := range []*corev1.Pod{
		pod(nil, guaranteed, PreferNoEviction, ""), pod(new(int32(-2147483648)), best), pod(new(int32(0)), best, deletion, "-2147483648"),
		pod(new(int32(0)), best, deletion, "-5"), pod(new(int32(0)), best), pod(new(int32(0)), best, deletion, "5"),
		pod(new(int32(0)), best, deletion, "2147483647"), pod(new(int32(0)), burstable, deletion, "-5"), pod(new(int32(0)), guaranteed),
		pod(new(int32(0)), best, PreferNoEviction, ""), pod(new(int32(1)), best), pod(new(int32(2147483647)), guaranteed, PreferNoEviction, "", deletion, "2147483647"),
	} {
		costs = append(costs, MoveCost(p))
	}
	if !slices.IsSorted(costs) || len(slices.Compact(slices.Clone(costs))) != len(costs) || costs[0] < 0 || costs[len(costs)-1] >= MostCost {
		t.Errorf("got %v, want numbers in order, each higher than the one before, below %d", costs, MostCost)
	}
	if got, want := MoveCost(pod(nil, best, deletion, "much")), MoveCost(pod(nil, best)); got != want {
		t.Errorf("an annotation that is not valid: got %d, want %d", got, want)
	}
}

func TestQualityOfServiceWithoutStatus(t *testing.T) {
	container := func(lists ...string) corev1.Container { // requests then limits, each cpu then memory; "" is absent
		var c corev1.Container
		for i, text := range lists {
			if text == "" {
				continue
			}
			into, name := &c.Resources.Requests, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}[i%2]
			if i > 1 {
				into = &c.Resources.Limits
			}
			if *into == nil {
				*into = corev1.ResourceList{}
			}
			(*into)[name] = resource.MustParse(text)
		}
		return c
	}
	gpu := container()
	gpu.Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	type list = []corev1.Container
	for _, c := range []struct {
		name             string
		init, containers list
		want             corev1.PodQOSClass
	}{
		{"nothing asked for", nil, list{container()}, corev1.PodQOSBestEffort},
		{"other resources do not count", nil, list{gpu}, corev1.PodQOSBestEffort},
		{"zero is nothing", nil, list{container("0", "", "", "0")}, corev1.PodQOSBestEffort},
		{"a request", nil, list{container("1")}, corev1.PodQOSBurstable},
		{"a limit of one resource", nil, list{container("", "", "1")}, corev1.PodQOSBurstable},
		{"limits of both", nil, list{container("", "", "1", "1Gi")}, corev1.PodQOSGuaranteed},
		{"requests equal to limits", nil, list{container("1000m", "1Gi", "1", "1024Mi")}, corev1.PodQOSGuaranteed},
		{"a request below its limit", nil, list{container("1", "1Gi", "2", "1Gi")}, corev1.PodQOSBurstable},
		{"one container of two", nil, list{container("", "", "1", "1Gi"), container()}, corev1.PodQOSBurstable},
		{"an init container counts", list{container("1")}, list{container()}, corev1.PodQOSBurstable},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: c.init, Containers: c.containers}}
		if got := classOf(p); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		ranks := map[corev1.PodQOSClass]int64{corev1.PodQOSBestEffort: 0, corev1.PodQOSBurstable: 1, corev1.PodQOSGuaranteed: 2}
		if got := service(p); got != ranks[c.want] {
			t.Errorf("%s: got rank %d, want %d", c.name, got, ranks[c.want])
		}
	}
	order := []corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}
	if !slices.IsSortedFunc(order, func(a, b corev1.PodQOSClass) int {
		return int(service(&corev1.Pod{Status: corev1.PodStatus{QOSClass: a}}) - service(&corev1.Pod{Status: corev1.PodStatus{QOSClass: b}}))
	}) {
		t.Errorf("the classes do not rank in the order %v", order)
	}
}
