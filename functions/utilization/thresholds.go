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

// Thresholds are shares of what a node offers to pods, in percent from 0 to 100, by resource. The zero value names no
// resource and is not valid.
type Thresholds map[corev1.ResourceName]float64

// Names are the resources, sorted.
func (t Thresholds) Names() []corev1.ResourceName { return slices.Sorted(maps.Keys(t)) }

// WithBasics are the resources and cpu, memory and pods, which every pod needs, sorted.
func (t Thresholds) WithBasics() []corev1.ResourceName {
	names := append(t.Names(), corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods)
	slices.Sort(names)
	return slices.Compact(names)
}

// Validate says what is wrong, when usage is taken from that source; each error in it is a *[policy.FieldError].
func (t Thresholds) Validate(from policy.LoadSource) error {
	var found policy.Findings
	if len(t) == 0 {
		found.Add("", nil, "names no resource", "want at least one, such as "+example(from))
	}
	for _, name := range t.Names() {
		if share := t[name]; share < 0 || share > 100 || math.IsNaN(share) {
			found.Add(Key(name), share, "is no share of a node", "want a percentage from 0 to 100")
		}
		if right := otherName(name, from); right != "" {
			found.Add(Key(name), nil, "is not a resource that is measured", right)
		}
	}
	return found.Err()
}

// Key is the path of the share of a resource, below the thresholds.
func Key(name corev1.ResourceName) string { return "[" + string(name) + "]" }

func example(from policy.LoadSource) string {
	if from == policy.LoadPrometheus {
		return string(schemas.LoadMetric) + ": 20"
	}
	return "cpu: 20"
}

// otherName says which names there are at a source that does not know this one, and nothing of a source that does.
func otherName(name corev1.ResourceName, from policy.LoadSource) string {
	basic := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourcePods
	switch from {
	case policy.LoadPrometheus:
		if name != schemas.LoadMetric {
			return "want " + string(schemas.LoadMetric) + ", the only one that Prometheus is asked for"
		}
	case policy.LoadKubernetes:
		if !basic {
			return "want cpu, memory or pods"
		}
	default:
		extended := strings.Contains(string(name), "/") && len(validation.IsQualifiedName(string(name))) == 0
		if !basic && !extended && name != corev1.ResourceEphemeralStorage &&
			!strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			return "want cpu, memory, pods, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME, such as nvidia.com/gpu"
		}
	}
	return ""
}

// ValidateExcluded says what is wrong with namespaces of which only Exclude may be used; each error in it is a
// *[policy.FieldError].
func ValidateExcluded(namespaces policy.Namespaces) error {
	var found policy.Findings
	if len(namespaces.Include) > 0 {
		found.Add("include", nil, "cannot be used by this strategy", "list the other namespaces in exclude")
	}
	found.Join("", policy.Namespaces{Exclude: namespaces.Exclude}.Validate())
	return found.Err()
}

// ValidateCount says what is wrong with how many nodes must be under-used at least; the error is a *[policy.FieldError]
// about the field numberOfNodes.
func ValidateCount(numberOfNodes int) error {
	if numberOfNodes >= 0 {
		return nil
	}
	return &policy.FieldError{
		Field: "numberOfNodes", Value: numberOfNodes, Reason: "must not be negative", Right: "0 is any number",
	}
}
