package utilization

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Thresholds are percentages, from 0 to 100, of the allocatable resources of a node, by resource.
type Thresholds map[corev1.ResourceName]float64

func (t Thresholds) names() []corev1.ResourceName { return slices.Sorted(maps.Keys(t)) }

// basics returns the resources that every pod needs.
func basics() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
}

// withBasics returns the resources of t and the basic ones, sorted.
func (t Thresholds) withBasics() []corev1.ResourceName {
	names := append(t.names(), basics()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// validate returns an error for each wrong threshold if that source measures usage, a *[policy.FieldError].
func (t Thresholds) validate(source policy.LoadSource) error {
	var found policy.Findings
	if len(t) == 0 {
		example := corev1.ResourceCPU
		if source == policy.LoadPrometheus {
			example = schemas.LoadMetric
		}
		found.Add("", nil, "names no resource", "want at least one, such as "+string(example)+": 20")
	}
	for _, name := range t.names() {
		if share := t[name]; share < 0 || share > 100 || math.IsNaN(share) {
			found.Add(item(name), share, "is not a percentage", "want a percentage from 0 to 100")
		}
		if known, right := measured(name, source); !known {
			found.Add(item(name), nil, "is not a measured resource", right)
		}
	}
	return found.Err()
}

// item returns the path of the threshold of a resource, below the thresholds.
func item(name corev1.ResourceName) string { return "[" + string(name) + "]" }

// measured reports whether the source measures the resource, and which resources it measures.
func measured(name corev1.ResourceName, source policy.LoadSource) (known bool, right string) {
	switch source {
	case policy.LoadPrometheus:
		return name == schemas.LoadMetric, "want " + string(schemas.LoadMetric) + ", the only resource with a Prometheus source"
	case policy.LoadKubernetes:
		return slices.Contains(basics(), name), "want cpu, memory or pods"
	}
	extended := strings.Contains(string(name), "/") && len(validation.IsQualifiedName(string(name))) == 0
	known = extended || slices.Contains(basics(), name) || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	return known, "want cpu, memory, pods, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME, such as nvidia.com/gpu"
}

// validateExcluded rejects everything except excluded namespaces.
func validateExcluded(namespaces policy.Namespaces) error {
	var found policy.Findings
	if len(namespaces.Include) > 0 {
		found.Add("include", nil, "cannot be used by this strategy", "list the other namespaces in exclude")
	}
	found.Join("", policy.Namespaces{Exclude: namespaces.Exclude}.Validate())
	return found.Err()
}

func validateCount(numberOfNodes int) error {
	var found policy.Findings
	if numberOfNodes < 0 {
		found.Add("numberOfNodes", numberOfNodes, "must not be negative", "0 is any number")
	}
	return found.Err()
}
