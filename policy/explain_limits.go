package policy

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// rate says how fast pods are moved.
func (t *text) rate(r Rate) {
	t.line(0, "Moves at most %s in the long run, and %d at once after a pause.", perSecond(r.EvictionsPerSecond), r.Burst)
	if n := r.PerNamespace; n != nil {
		t.line(0, "Out of one namespace it moves at most %s in the long run, and %d at once after a pause.",
			perSecond(n.EvictionsPerSecond), n.Burst)
	}
}

func perSecond(rate float64) string {
	if rate >= 1 {
		return fmt.Sprintf("%g pods a second", rate)
	}
	return fmt.Sprintf("one pod in %v", time.Duration(float64(time.Second)/rate).Round(time.Millisecond))
}

// bound is a number of pods that is not exceeded, and which pods it counts, as in " off one node".
type bound struct {
	most *uint
	of   string
}

// limits says how many pods may be moved.
func (t *text) limits(l Limits) {
	within := []bound{{l.PerNode, " off one node"}, {l.PerNamespace, " out of one namespace"}, {l.Total, ""}}
	f := l.InFlight
	atOnce := []bound{
		{f.PerNode, " off one node"}, {f.PerNamespace, " out of one namespace"}, {f.PerWorkload, " of one workload"}, {f.Total, ""},
	}
	for _, b := range append(within, atOnce...) {
		if b.most != nil && *b.most == 0 {
			t.line(0, "Moves no pod at all: a limit is 0.")
			return
		}
	}
	t.bounds(within, fmt.Sprintf("in any %v", l.Over()))
	t.bounds(atOnce, "at a time, each until its replacement is ready")
	t.unavailable(l)
	if l.Pause != 0 {
		t.line(0, "Waits at least %v between two pods of one workload.", l.Pause)
	}
}

func (t *text) bounds(bounds []bound, when string) {
	for _, b := range bounds {
		switch {
		case b.most == nil:
		case *b.most == 1:
			t.line(0, "Moves at most one pod%s %s; others wait.", b.of, when)
		default:
			t.line(0, "Moves at most %d pods%s %s; others wait.", *b.most, b.of, when)
		}
	}
}

// unavailable says how many pods of a workload without a budget may be missing.
func (t *text) unavailable(l Limits) {
	const no = "of a workload without a PodDisruptionBudget"
	share := DefaultUnavailable()
	if l.Unavailable != nil {
		share = *l.Unavailable
	}
	switch {
	case share == intstr.FromInt32(0), share == intstr.FromString("0%"):
		t.line(0, "Moves no pod %s.", no)
	case share == intstr.FromInt32(1):
		t.line(0, "At most one pod %s may be unavailable at once.", no)
	case share.Type == intstr.Int:
		t.line(0, "At most %d pods %s may be unavailable at once.", share.IntVal, no)
	default:
		t.line(0, "At most %s of the pods %s, and always one, may be unavailable at once.", share.StrVal, no)
	}
}
