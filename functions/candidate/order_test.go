package candidate

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
)

func pod(name string, priority int32, class corev1.PodQOSClass, annotations ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}, Status: corev1.PodStatus{QOSClass: class}}
	if priority != 0 {
		p.Spec.Priority = &priority
	}
	for _, key := range annotations {
		p.Annotations = map[string]string{key: "false"}
	}
	return p
}

func TestPodsThatMatterLessMoveFirst(t *testing.T) {
	const best, burst, guaranteed = corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed
	other := pod("a", 2, guaranteed)
	other.Namespace = "x"
	younger := pod("b", 2, guaranteed)
	younger.UID = "1"
	want := []*corev1.Pod{
		pod("z", 0, guaranteed, policy.PreferNoEviction), // no priority at all
		pod("y", -1, guaranteed),
		pod("x", 1, best),
		pod("w", 1, best, policy.PreferNoEviction),
		pod("v", 1, burst),
		pod("u", 1, guaranteed),
		pod("a", 2, guaranteed),
		pod("b", 2, guaranteed),
		younger,
		other,
	}
	for i, a := range want {
		for j, b := range want {
			expected := max(-1, min(1, i-j))
			if got := Compare(a, b); got != expected {
				t.Errorf("Compare(%s/%s, %s/%s) = %d, want %d", a.Namespace, a.Name, b.Namespace, b.Name, got, expected)
			}
		}
	}
}

func TestTheQualityOfServiceIsWorkedOutWhenTheStatusLacksIt(t *testing.T) {
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
	if !slices.IsSortedFunc(order, func(a, b corev1.PodQOSClass) int { return int(service(pod("", 0, a)) - service(pod("", 0, b))) }) {
		t.Errorf("the classes do not rank in the order %v", order)
	}
}
