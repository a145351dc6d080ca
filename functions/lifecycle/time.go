package lifecycle

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// longest is the longest time in seconds that a [time.Duration] holds, about 292 years.
const longest = uint(1<<63-1) / uint(time.Second)

// AtAge is when the pod is that many seconds old, counted from its creation. ever is false when it never is: the pod has
// no time of creation, or so old it cannot become.
func AtAge(pod *corev1.Pod, seconds uint) (at time.Time, ever bool) {
	return After(pod.CreationTimestamp.Time, seconds)
}

// After is the time that many seconds after from. ever is false when from is not known, or it is centuries away.
func After(from time.Time, seconds uint) (at time.Time, ever bool) {
	if from.IsZero() || seconds > longest {
		return time.Time{}, false
	}
	return from.Add(time.Duration(seconds) * time.Second), true
}

// Age is the pod's age in whole seconds, as people write it.
func Age(pod *corev1.Pod, now time.Time) string { return Text(now.Sub(pod.CreationTimestamp.Time)) }

// Text is a duration in whole seconds as people write it: 142h, 1h30m, 5m2s, 0s.
func Text(d time.Duration) string {
	text := d.Truncate(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
