package explain

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

type link struct {
	Step
	chain string
	pod   schemas.PodRef
	scope schemas.ScopeRef
}

func (r *record) lives() []Life {
	by := map[types.UID]*Life{}
	life := func(p schemas.PodRef) *Life {
		if by[p.UID] == nil {
			by[p.UID] = &Life{Pod: p, Chains: []Chain{}}
		}
		return by[p.UID]
	}
	links := r.links()
	began := map[string]bool{} // IDs of chains with a step
	for len(links) > 0 {
		n := 1
		for n < len(links) && links[n].chain == links[0].chain && links[n].pod.UID == links[0].pod.UID {
			n++
		}
		began[links[0].chain] = true
		l := life(links[0].pod)
		l.Chains = append(l.Chains, r.chain(links[:n]))
		links = links[n:]
	}
	for _, v := range r.replaced {
		life(*v.Settlement.Replacement).CameFor = &v.Intent.Pod
	}
	for _, d := range r.sortedDeltas() {
		p := schemas.PodRef{Namespace: d.Object.Namespace, Name: d.Object.Name, UID: d.Object.UID}
		if d.Object.Kind == "Pod" && r.means(p) && !began[d.ID] {
			life(p).change(d)
		}
	}
	all := []Life{}
	for _, l := range by {
		l.Chains = merged(l.Chains)
		all = append(all, *l)
	}
	slices.SortFunc(all, func(a, b Life) int {
		return cmp.Or(a.begin().Compare(b.begin()), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return all
}

// begin returns the time of the first event.
func (l Life) begin() time.Time {
	var first time.Time
	for _, c := range l.Chains {
		if first.IsZero() || c.Began.Before(first) {
			first = c.Began
		}
	}
	for _, c := range l.Changes {
		if first.IsZero() || c.First.Before(first) {
			first = c.First
		}
	}
	return first
}

// change counts a change that began no chain.
func (l *Life) change(d delta) {
	for i := range l.Changes {
		if c := &l.Changes[i]; c.Kind == d.Kind {
			c.Times++
			c.Last = d.Time
			return
		}
	}
	l.Changes = append(l.Changes, Changes{Kind: d.Kind, Times: 1, First: d.Time, Last: d.Time})
}

func (r *record) sortedDeltas() []delta {
	return slices.SortedFunc(maps.Values(r.deltas), func(a, b delta) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.ID, b.ID))
	})
}

// links returns all steps, sorted by pod, chain, and time.
func (r *record) links() []link {
	all := r.judged()
	for id, a := range r.answers {
		if !r.covered(id, a) {
			all = append(all, r.pending(a))
		}
	}
	first := map[string]time.Time{}
	for _, l := range all {
		if at, ok := first[l.chain]; !ok || l.Time.Before(at) {
			first[l.chain] = l.Time
		}
	}
	slices.SortFunc(all, func(a, b link) int {
		return cmp.Or(
			cmp.Compare(a.pod.UID, b.pod.UID), first[a.chain].Compare(first[b.chain]), cmp.Compare(a.chain, b.chain),
			a.Time.Compare(b.Time), a.Said.Compare(b.Said), cmp.Compare(a.Strategy, b.Strategy),
		)
	})
	return all
}

func (r *record) pending(a answer) link {
	return link{
		Step: Step{
			Time: a.Time, Profile: a.of.Profile, Strategy: a.of.Strategy, Scope: a.of.About(), Node: a.intent.Node,
			Why: a.intent.Reason, Times: 1, Expires: a.intent.Expires,
		},
		chain: a.CorrelationID, pod: a.intent.Pod, scope: a.of.Scope,
	}
}

// covered reports whether an answer needs no step because a verdict covers it: the answer is its cause, or the verdict is later
// and about the same pod, strategy, and scope. A later verdict also covers an earlier answer that listed the pod.
func (r *record) covered(id string, a answer) bool {
	for _, v := range r.verdicts {
		same := v.Profile == a.of.Profile && v.Strategy == a.of.Strategy && v.Scope.Kind == a.of.Scope.Kind &&
			v.Scope.Key == a.of.Scope.Key && v.Intent.Pod.UID == a.intent.Pod.UID
		if v.CausationID == id || same && !v.Time.Before(a.Time) {
			return true
		}
	}
	return false
}

func (r *record) judged() []link {
	settled := map[string]verdict{} // by the ID of the verdict on the intent
	for _, v := range r.verdicts {
		if v.Outcome == schemas.Settled {
			settled[v.CausationID] = v
		}
	}
	var all []link
	for id, v := range r.verdicts {
		if _, known := r.verdicts[v.CausationID]; known && v.Outcome == schemas.Settled {
			continue // part of the step of the first verdict
		}
		l := r.judgedBy(v)
		if end, ok := settled[id]; ok {
			l.Settled = settledBy(end)
		}
		all = append(all, l)
	}
	return all
}

// judgedBy returns the step of a verdict. Its time is the time of the answer, if that is known.
func (r *record) judgedBy(v verdict) link {
	s := Step{
		Time: v.Time, Profile: v.Profile, Strategy: v.Strategy, Scope: string(v.Scope.Kind) + "/" + v.Scope.Key, Node: v.Intent.Node,
		Why: v.Intent.Reason, Outcome: v.Outcome, Reason: v.Reason, Message: v.Message, Times: 1, Said: v.Time, Last: v.Time,
		Again: v.Again, Method: v.Method, Instead: v.Instead, Blocked: v.Blockers, DryRun: v.DryRun,
	}
	if a, ok := r.answers[v.CausationID]; ok {
		s.Time = a.Time
	}
	if v.Outcome == schemas.Settled {
		s.Settled = settledBy(v)
	}
	return link{Step: s, chain: v.CorrelationID, pod: v.Intent.Pod, scope: v.Scope}
}

func settledBy(v verdict) *Settled {
	s := &Settled{Time: v.Time, Reason: v.Reason, Message: v.Message}
	if v.Settlement != nil {
		s.Settlement = *v.Settlement
	}
	return s
}

func (r *record) chain(links []link) Chain {
	c := Chain{ID: links[0].chain, Began: links[0].Time}
	switch d, ok := r.deltas[c.ID]; {
	case ok:
		c.Delta, c.Began = &d.Delta, d.Time
	case links[0].scope.Kind == schemas.RequestKind:
		c.Without = askedFor + links[0].scope.Key
	case links[0].scope.Event == c.ID:
		c.Without = withoutChange
	default:
		c.Without = notKept
	}
	for _, l := range links {
		c.Steps = append(c.Steps, l.Step)
	}
	c.Steps = folded(c.Steps)
	return c
}

// folded merges consecutive steps with the same verdict, except moves.
func folded(steps []Step) []Step {
	var out []Step
	for _, s := range steps {
		if len(out) > 0 && alike(out[len(out)-1], s) {
			before := out[len(out)-1]
			s.Time, s.Said, s.Times = before.Time, before.Said, before.Times+s.Times
			out[len(out)-1] = s
			continue
		}
		out = append(out, s)
	}
	return out
}

func alike(a, b Step) bool {
	return a.Outcome != "" && a.Outcome == b.Outcome && !a.Moves() && a.Settled == nil && b.Settled == nil &&
		a.Reason == b.Reason && a.Profile == b.Profile && a.Strategy == b.Strategy && a.Scope == b.Scope && a.DryRun == b.DryRun
}

// merged joins consecutive chains without a delta whose steps fold into the same ones, because every scope is evaluated again
// each half hour.
func merged(chains []Chain) []Chain {
	out := chains[:0]
	for _, c := range chains {
		if len(out) > 0 {
			before := &out[len(out)-1]
			all := folded(append(slices.Clone(before.Steps), c.Steps...))
			if before.Delta == nil && c.Delta == nil && before.Without == c.Without && len(all) == len(before.Steps) {
				before.Steps = all
				continue
			}
		}
		out = append(out, c)
	}
	return out
}
