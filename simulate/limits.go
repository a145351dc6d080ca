package simulate

import (
	"fmt"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// limits count the moves of one round against the limits of the policy.
type limits struct {
	total, perNode, perNamespace *uint
	moved                        uint
	fromNode, fromNamespace      map[string]uint
}

// newLimits takes nil for no limit.
func newLimits(total, perNode, perNamespace *uint) *limits {
	return &limits{
		total: total, perNode: perNode, perNamespace: perNamespace,
		fromNode: map[string]uint{}, fromNamespace: map[string]uint{},
	}
}

func limitsOf(p policy.Policy) *limits {
	return newLimits(p.Limits.Total, p.Limits.PerNode, p.Limits.PerNamespace)
}

// take counts a move, or returns the limit that is reached.
func (l *limits) take(i schemas.Intent) (reason schemas.ReasonCode, message string) {
	for _, at := range [...]struct {
		limit  *uint
		moved  uint
		reason schemas.ReasonCode
		of     string
	}{
		{l.total, l.moved, schemas.ReasonLimitTotal, "in this round"},
		{l.perNode, l.fromNode[i.Node], schemas.ReasonLimitNode, "of node " + i.Node},
		{l.perNamespace, l.fromNamespace[i.Pod.Namespace], schemas.ReasonLimitNamespace, "of namespace " + i.Pod.Namespace},
	} {
		if at.limit != nil && at.moved >= *at.limit {
			return at.reason, fmt.Sprintf("%d pods %s were moved, the limit is %d", at.moved, at.of, *at.limit)
		}
	}
	l.moved++
	l.fromNode[i.Node]++
	l.fromNamespace[i.Pod.Namespace]++
	return "", ""
}

// giveBack undoes a take.
func (l *limits) giveBack(i schemas.Intent) {
	l.moved--
	l.fromNode[i.Node]--
	l.fromNamespace[i.Pod.Namespace]--
}
