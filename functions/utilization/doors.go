package utilization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/placement"
)

// doors are what stands between pods and the targets: the sets of taints that keep pods out, each once. nil: a target
// takes any pod.
type doors [][]corev1.Taint

func doorsOf(targets []Node) doors {
	var found doors
	var text []byte
	seen := map[string]bool{}
	for _, t := range targets {
		taints := hard(t.Taints)
		if len(taints) == 0 {
			return nil
		}
		if text = written(text[:0], taints); !seen[string(text)] {
			seen[string(text)] = true
			found = append(found, taints)
		}
	}
	return found
}

// hard are the taints that keep pods out. PreferNoSchedule does not.
func hard(taints []corev1.Taint) []corev1.Taint {
	soft := func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute
	}
	if !slices.ContainsFunc(taints, soft) {
		return taints
	}
	return slices.DeleteFunc(slices.Clone(taints), soft)
}

// written appends the taints to text so that equal text means equal taints: no part of a taint has a space in it.
func written(text []byte, taints []corev1.Taint) []byte {
	for i := range taints {
		for _, part := range [...]string{taints[i].Key, taints[i].Value, string(taints[i].Effect)} {
			text = append(append(text, part...), ' ')
		}
	}
	return text
}

// open says whether a pod with these tolerations gets through one of the doors.
func (d doors) open(tolerations []corev1.Toleration) bool {
	return d == nil || slices.ContainsFunc(d, func(taints []corev1.Taint) bool {
		for i := range taints {
			if !placement.Tolerates(tolerations, &taints[i]) {
				return false
			}
		}
		return true
	})
}
