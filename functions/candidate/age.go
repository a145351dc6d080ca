package candidate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// AnswerWhenDue returns the intent for the pod of the scope if it is due at the time of the scope and nothing protects it. Its
// weight is the number of seconds since the pod became due, or 0 without a due time.
func AnswerWhenDue(
	scope schemas.PodScope, strategy policy.Timed, reason func(pod *corev1.Pod, now time.Time) string,
) []schemas.Intent {
	p := &scope.Pod
	if len(p.Protected) > 0 {
		return nil
	}
	if at, ever := strategy.Due(&p.Pod); !ever || scope.Now.Before(at) {
		return nil
	}
	intent := p.Move(reason(&p.Pod, scope.Now))
	if at, _ := strategy.Due(&p.Pod); !at.IsZero() {
		intent.Weight = int64(scope.Now.Sub(at) / time.Second)
	}
	return []schemas.Intent{intent}
}

// longest is the longest time in seconds that a [time.Duration] holds, about 292 years.
const longest = uint(1<<63-1) / uint(time.Second)

// AtAge returns when the pod reaches an age in seconds. ever is false for a pod without a creation time.
func AtAge(pod *corev1.Pod, seconds uint) (at time.Time, ever bool) {
	return After(pod.CreationTimestamp.Time, seconds)
}

// After returns the time so many seconds after from. ever is false when from is not known, or the time is centuries away.
func After(from time.Time, seconds uint) (at time.Time, ever bool) {
	if from.IsZero() || seconds > longest {
		return time.Time{}, false
	}
	return from.Add(time.Duration(seconds) * time.Second), true
}

// Age returns the age of the pod for people, in whole seconds.
func Age(pod *corev1.Pod, now time.Time) string { return Text(now.Sub(pod.CreationTimestamp.Time)) }

// Text writes a duration in whole seconds for people: 142h, 1h30m, 5m2s, 0s.
func Text(d time.Duration) string { return strict.Short(d.Truncate(time.Second)) }
