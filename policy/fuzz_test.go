package policy

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// For any annotations and labels of a pod, its cost and protections must follow their rules: the owner can protect the
// pod, but cannot lift protections of others.
func FuzzPodAnnotations(f *testing.F) {
	const doNotDisrupt = "karpenter.sh/do-not-disrupt"
	add := func(key, value string) { f.Add(key, value, int64(-3600), int32(0)) }
	add(EvictAnnotation, "FALSE")
	add(EvictAnnotation, "")
	add(PreferNoEviction, "")
	add(doNotDisrupt, "true")
	add(corev1.PodDeletionCost, "-9223372036854775808")
	add("cluster.x-k8s.io/drain", "skip")
	add(corev1.MirrorPodAnnotationKey, "\xff")
	add("kubernetes.io/config.source", "api")
	f.Add(doNotDisrupt, "2562047h47m16.854775807s", int64(1<<40), int32(2000000000))
	f.Add(doNotDisrupt, "30m", int64(-1799), int32(-1))
	f.Add(doNotDisrupt, "-1ns", int64(0), SystemCritical)
	f.Fuzz(func(t *testing.T, key, value string, started int64, priority int32) {
		p := pod(annotated(key, value), func(p *corev1.Pod) {
			p.Labels = map[string]string{key: value}
			p.Spec.Priority = &priority
			p.Status.StartTime = &metav1.Time{Time: noon.Add(time.Duration(started) * time.Second)}
		})
		plain := pod()
		plain.Spec.Priority = &priority
		cost, usual := MoveCost(p), MoveCost(plain)
		if cost < 0 || cost >= MostCost || (cost^usual)>>9 != 0 {
			t.Errorf("the cost is %d, and without annotations %d", cost, usual)
		}
		e := evictor(t, EvictorArgs{})
		rules := map[string]bool{}
		for _, found := range e.Protects(p, noon, nil) {
			if rules[found.Rule] = true; found.Detail == "" {
				t.Errorf("protection without words: %+v", found)
			}
		}
		switch {
		case key == EvictAnnotation && rules[EvictAnnotationFalseRule] != strings.EqualFold(value, "false"),
			key != EvictAnnotation && rules[SystemCriticalPods] != (priority >= SystemCritical),
			key == doNotDisrupt && value == "true" && !rules[SignalRule]:
			t.Errorf("the rules that hold are %v", rules)
		}
		var signals Signals
		switch lapse := signals.lapses(p, noon); {
		case lapse.IsZero():
		case !lapse.After(noon):
			t.Errorf("the signal ends at %s, which is over", lapse)
		case len(signals.protects(nil, p, lapse)) > 0, len(signals.protects(nil, p, lapse.Add(-1))) == 0:
			t.Errorf("the signal ends at %s: then %v, and before %v", lapse, signals.protects(nil, p, lapse), signals.protects(nil, p, lapse.Add(-1)))
		}
	})
}
