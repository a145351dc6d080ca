package simulate

import (
	"fmt"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// limits count the moves of one round against the limits of the policy.
type limits struct {
	policy.Limits
	moved map[string]uint // by what a limit is about
}

const inRound, ofNode, ofNamespace = "in this round", "of node ", "of namespace "

// take counts a move, or returns the limit that is reached.
func (l limits) take(i schemas.Intent) (reason schemas.ReasonCode, message string) {
	for _, at := range [...]struct {
		limit  *uint
		reason schemas.ReasonCode
		of     string
	}{
		{l.Total, schemas.ReasonLimitTotal, inRound},
		{l.PerNode, schemas.ReasonLimitNode, ofNode + i.Node},
		{l.PerNamespace, schemas.ReasonLimitNamespace, ofNamespace + i.Pod.Namespace},
	} {
		if moved := l.moved[at.of]; at.limit != nil && moved >= *at.limit {
			return at.reason, fmt.Sprintf("%d pods %s were moved, the limit is %d", moved, at.of, *at.limit)
		}
	}
	l.moved[inRound]++
	l.moved[ofNode+i.Node]++
	l.moved[ofNamespace+i.Pod.Namespace]++
	return "", ""
}

// giveBack undoes a take.
func (l limits) giveBack(i schemas.Intent) {
	l.moved[inRound]--
	l.moved[ofNode+i.Node]--
	l.moved[ofNamespace+i.Pod.Namespace]--
}
