package candidate

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
)

// Compare orders two pods by the cost of moving them: negative when a should move before b. In this order:
//
//	cost                the lower [policy.MoveCost] first
//	age                 the younger first
//	namespace, name, UID
//
// The last makes the order total.
func Compare(a, b *corev1.Pod) int {
	return cmp.Or(
		cmp.Compare(policy.MoveCost(a), policy.MoveCost(b)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.UID, b.UID),
	)
}
