package utilization

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// whole is the amount of a resource as a whole number: thousandths of CPU, and of anything else its own unit.
func whole(name corev1.ResourceName, amount resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return amount.MilliValue()
	}
	return amount.Value()
}
