package actuator

import (
	"cmp"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// holdPatience is how long an intent is held until it is deferred, which tells everybody why. What holds an intent mostly
// passes within seconds, when a replacement is ready; asking for a new decision each time would cost more than waiting.
const holdPatience = time.Minute

// holder is what intents are held by: a node, a namespace or a workload, by name or UID, that can take no more for now.
type holder struct{ kind, name string }

// hold says why a pod is held.
type hold struct {
	by  holder
	why Objection
	// until is when it may be over without anybody saying so. Zero: somebody will.
	until time.Time
	// blockers are what the verdict names, if it comes to one.
	blockers []schemas.ObjectRef
}

// holds are the pods that are held, by what holds them.
type holds map[holder]map[*pod]bool

func (h holds) add(p *pod) {
	if h[p.hold.by] == nil {
		h[p.hold.by] = map[*pod]bool{}
	}
	h[p.hold.by][p] = true
}

func (h holds) remove(p *pod) {
	delete(h[p.hold.by], p)
	if len(h[p.hold.by]) == 0 {
		delete(h, p.hold.by)
	}
}

// hold lets the pod whose turn it is wait beside the lanes.
func (t *table) hold(h hold, now time.Time) {
	p := t.waiting.pop()
	p.hold, p.at = h, onHold
	t.held.add(p)
	if c := p.claims[0]; c.since.IsZero() {
		c.since = now
	}
}

// release lets all that one thing holds wait for their turn again, at their number.
func (t *table) release(by holder) {
	for p := range t.held[by] {
		t.leave(p)
		t.line(p, p.number)
	}
}

// releaseAll does it for everything.
func (t *table) releaseAll() {
	for by := range t.held {
		t.release(by)
	}
}

// timed releases what is held until a time that has come, defers what was held for too long, in the order in which it came,
// and returns when it has to be called again; zero: when something changes.
func (t *table) timed(now time.Time) (changes, time.Time) {
	var out changes
	var next time.Time
	soonest := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	var late []*claim
	for by, pods := range t.held {
		over := false
		for p := range pods {
			c := p.claims[0]
			switch until := p.hold.until; {
			case !now.Before(c.since.Add(holdPatience)):
				late = append(late, c)
				continue
			case until.IsZero():
			case !now.Before(until):
				over = true
			default:
				soonest(until)
			}
			soonest(c.since.Add(holdPatience))
		}
		if over {
			t.release(by)
		}
	}
	slices.SortFunc(late, func(a, b *claim) int {
		return cmp.Compare(t.pods[a.open.Intent.Pod.UID].number, t.pods[b.open.Intent.Pod.UID].number)
	})
	for _, c := range late {
		out.verdicts = append(out.verdicts, t.tired(c))
	}
	return out, next
}

// tired defers an intent that was held for too long.
func (t *table) tired(c *claim) decided {
	h := t.pods[c.open.Intent.Pod.UID].hold
	t.settle(c)
	v := c.open.Verdict(schemas.Deferred, h.why.Reason, h.why.Message)
	v.Blockers = h.blockers
	return decided{claim: c, verdict: v}
}
