package workload

import (
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
)

// space is a namespace: its budgets, and the pods that they can select.
type space struct {
	budgets map[string]labels.Selector
	// looks are the labels that its pods have. Pods of one workload mostly have the same, and are matched once.
	looks  map[unique.Handle[string]]*look
	groups map[*group]struct{}
}

// look is the labels of pods, how many have them, and whether a budget selects those.
type look struct {
	pods     int
	budgeted bool
}

// space returns the namespace, made if it is not known.
func (x *index) space(name unique.Handle[string]) *space {
	s := x.spaces[name]
	if s == nil {
		s = &space{
			budgets: map[string]labels.Selector{}, looks: map[unique.Handle[string]]*look{}, groups: map[*group]struct{}{},
		}
		x.spaces[name] = s
	}
	return s
}

// tidy forgets a namespace in which there is nothing.
func (x *index) tidy(name unique.Handle[string]) {
	if s := x.spaces[name]; s != nil && len(s.budgets) == 0 && len(s.looks) == 0 {
		delete(x.spaces, name)
	}
}

// enter counts a pod among those with its labels.
func (s *space) enter(p *keptPod) {
	l := s.looks[p.labels]
	if l == nil {
		l = &look{budgeted: s.selects(p.labels)}
		s.looks[p.labels] = l
	}
	l.pods++
}

func (s *space) leave(p *keptPod) {
	l := s.looks[p.labels]
	if l.pods--; l.pods == 0 {
		delete(s.looks, p.labels)
	}
}

// selects says whether a budget selects pods with these labels.
func (s *space) selects(look unique.Handle[string]) bool {
	for _, selector := range s.budgets {
		if selector.Matches(written(look.Value())) {
			return true
		}
	}
	return false
}

// learnBudget takes one change of a budget into account. old or new is nil where there is none.
func (x *index) learnBudget(old, new *keptBudget) touched {
	if old != nil && new != nil && same(old.selector, new.selector) {
		return nil // only its status, as happens all the time
	}
	var name unique.Handle[string]
	if new == nil {
		name = old.namespace
	} else {
		name = new.namespace
	}
	s := x.space(name)
	defer x.tidy(name)
	if old != nil {
		delete(s.budgets, old.name)
	}
	if new != nil && new.selector != nil {
		s.budgets[new.name] = new.selector
	}
	return s.rematch()
}

// same says whether two selectors select the same; of nil ones, nothing.
func same(a, b labels.Selector) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.String() == b.String()
}

// rematch matches all pods again, and returns the workloads with a pod that has got a budget or lost its last one.
func (s *space) rematch() touched {
	changed := map[unique.Handle[string]]bool{}
	for of, l := range s.looks {
		if now := s.selects(of); now != l.budgeted {
			l.budgeted, changed[of] = now, true
		}
	}
	var t touched
	if len(changed) == 0 {
		return t
	}
	for g := range s.groups {
		for _, p := range g.pods {
			if changed[p.labels] {
				t = append(t, g.workload.UID)
				break
			}
		}
	}
	slices.Sort(t)
	return slices.Compact(t) // a Deployment has several groups
}

// written are labels as [labels.Set] writes them: key=value,key=value. Neither has one of these signs in it.
type written string

// Has implements [labels.Labels].
func (w written) Has(key string) bool {
	_, has := w.Lookup(key)
	return has
}

// Get implements [labels.Labels].
func (w written) Get(key string) string {
	value, _ := w.Lookup(key)
	return value
}

// Lookup implements [labels.Labels].
func (w written) Lookup(key string) (string, bool) {
	for pair := range strings.SplitSeq(string(w), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}
