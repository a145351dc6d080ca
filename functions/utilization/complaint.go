package utilization

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// complaint is what is wrong with the nodes that pods are to leave.
type complaint struct {
	is        string // such as over-used
	resources []corev1.ResourceName
	limits    Limits
	beyond    bool // only the resources beyond their limits are to blame
}

// about says in words what is wrong with the node, such as "node-1 is over-used: cpu 83 % of 50 %".
func (c complaint) about(node Node) string {
	var b strings.Builder
	b.WriteString(node.Name + " is " + c.is)
	separator := ": "
	for i, l := range c.limits {
		share := node.figures[i].share
		if !l.given || c.beyond && !l.above(share) {
			continue
		}
		name := string(c.resources[i])
		if c.resources[i] == schemas.LoadMetric {
			name = "load"
		}
		is, of := percentages(share, l.percent)
		b.WriteString(separator + name + " " + is + " of " + of)
		separator = ", "
	}
	return b.String()
}

// percentages writes two percentages to one decimal place, or to as many as it takes to tell them apart.
func percentages(a, b float64) (left, right string) {
	for places := 1; ; places++ {
		left, right = percentage(a, places), percentage(b, places)
		if left != right || places == 6 {
			return left, right
		}
	}
}

// percentage leaves out zeros at the end.
func percentage(value float64, places int) string {
	text := strconv.FormatFloat(value, 'f', places, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " %"
}
