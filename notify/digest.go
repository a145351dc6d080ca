package notify

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// silence is how long the same problem of a pod, or the same storm, is not repeated. It begins again with each repetition of a
	// storm.
	silence = time.Hour
	// stormOver is how long after its last deferral a storm is over.
	stormOver = 10 * time.Minute
	// fresh is the age limit of a drain that is reported: a new leader publishes all maintenances once more.
	fresh = 5 * time.Minute
	// Beyond dueGroups, the oldest group is due at once. Beyond mostGroups, while the service takes no messages, it is left out.
	dueGroups, mostGroups = 1_000, 2_000
	// mostSaid limits the texts that are not repeated. Beyond it, some are forgotten.
	mostSaid = 20_000
)

// Digest collects events. The zero value is not usable: see [NewDigest]. It is not safe for concurrent use.
type Digest struct {
	quiet, longest time.Duration
	groups         map[string]*group
	said           map[string]time.Time // texts that are not repeated before this time
	leftOut        int                  // groups since the last call of LeftOut
}

// NewDigest returns a Digest. A group is due after the time quiet without an event, and at the latest after the time longest
// since its first event.
func NewDigest(quiet, longest time.Duration) *Digest {
	return &Digest{quiet: quiet, longest: longest, groups: map[string]*group{}, said: map[string]time.Time{}}
}

// Add takes an event. It ignores events that need no message, and unreadable events.
func (d *Digest) Add(e schemas.Event, now time.Time) {
	switch e.Type {
	case schemas.VerdictType:
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			d.verdict(e, v, now)
		}
	case schemas.ReceiptType:
		if r, err := schemas.Decode[schemas.Receipt](e); err == nil {
			d.receipt(e, r, now)
		}
	case schemas.MaintenanceType:
		if m, err := schemas.Decode[schemas.Maintenance](e); err == nil {
			d.maintenance(e, m, now)
		}
	}
}

// Due removes the groups that are due, and returns their notifications, oldest first. With all it takes every group.
func (d *Digest) Due(now time.Time, all bool) []Notification {
	var due []*group
	for key, g := range d.groups {
		if all || !now.Before(d.dueAt(g)) {
			due = append(due, g)
			delete(d.groups, key)
		}
	}
	slices.SortFunc(due, func(a, b *group) int { return cmp.Or(a.first.Compare(b.first), a.n.Began.Compare(b.n.Began)) })
	var out []Notification
	for _, g := range due {
		out = append(out, g.notification())
	}
	return out
}

// Next returns when the next group is due. Zero: there is none.
func (d *Digest) Next() (next time.Time) {
	for _, g := range d.groups {
		if at := d.dueAt(g); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

func (d *Digest) dueAt(g *group) time.Time {
	at := g.last.Add(d.quiet)
	if latest := g.first.Add(d.longest); latest.Before(at) {
		return latest
	}
	return at
}

// group returns the group of a key, and makes it.
func (d *Digest) group(kind Kind, key string, now time.Time) *group {
	key = string(kind) + "/" + key
	if d.groups[key] == nil {
		if len(d.groups) >= mostGroups {
			delete(d.groups, d.oldest(func(*group) bool { return true }))
			d.leftOut++
		}
		if len(d.groups) >= dueGroups {
			if open := d.oldest(func(g *group) bool { return !g.first.IsZero() }); open != "" {
				d.groups[open].first = time.Time{}
			}
		}
		d.groups[key] = newGroup(kind, now)
	}
	return d.groups[key]
}

// oldest returns the key of the oldest group that matches, or "".
func (d *Digest) oldest(matches func(*group) bool) (oldest string) {
	for key, g := range d.groups {
		if matches(g) && (oldest == "" || g.n.Began.Before(d.groups[oldest].n.Began)) {
			oldest = key
		}
	}
	return oldest
}

// LeftOut returns how many groups were left out since its last call.
func (d *Digest) LeftOut() int {
	n := d.leftOut
	d.leftOut = 0
	return n
}

// news reports whether something was not said before, and remembers it.
func (d *Digest) news(what string, now, until time.Time) bool {
	if now.Before(d.said[what]) {
		return false
	}
	if len(d.said) >= mostSaid {
		d.forget(now)
	}
	d.said[what] = until
	return true
}

// forget removes what is over and, if that is nothing, half of the rest.
func (d *Digest) forget(now time.Time) {
	before := len(d.said)
	for what, until := range d.said {
		if !now.Before(until) {
			delete(d.said, what)
		}
	}
	for what := range d.said {
		if len(d.said) < before/2 {
			return
		}
		delete(d.said, what)
	}
}

func (d *Digest) verdict(e schemas.Event, v schemas.Verdict, now time.Time) {
	pod := v.Intent.Pod.String()
	what := fmt.Sprintf("%s: %s", v.Reason, v.Message)
	switch {
	case v.Reason.IsStorm():
		d.storm(e, string(v.Reason), what, now)
		return
	case v.Strategy == schemas.MaintenanceStrategy:
		return // the events of the maintenance have the sum
	}
	rank := 0
	switch {
	case v.Outcome.Moves():
		rank, what = 1, fmt.Sprintf("%s from %s by %s: %s", v.Outcome, v.Intent.Node, v.Strategy, v.Intent.Reason)
	case v.Outcome == schemas.Settled && v.Reason != schemas.ReasonReplaced: // each one ends another move
		what = fmt.Sprintf("%s: %s", v.Outcome, what)
	case v.Outcome == schemas.Deferred, v.Outcome == schemas.Rejected, v.Outcome == schemas.Failed:
		if !d.news(fmt.Sprintf("%s %s %s", v.Intent.Pod.UID, v.Strategy, v.Reason), now, now.Add(silence)) {
			return
		}
		what = fmt.Sprintf("%s: %s", v.Outcome, what)
	default:
		return
	}
	g := d.group(Moves, cmp.Or(e.CorrelationID, e.ID), now)
	g.add(e, now)
	g.n.Correlation, g.n.DryRun = e.CorrelationID, g.n.DryRun || v.DryRun
	g.say(rank, what, pod)
	g.place(v.Intent.Node, v.Intent.Pod.Namespace, v.Strategy)
	switch {
	case v.Outcome.Moves():
		g.n.Moved++
	case v.Outcome == schemas.Deferred:
		g.n.Deferred++
	case v.Outcome == schemas.Rejected:
		g.n.Refused++
	case v.Outcome == schemas.Failed:
		g.n.Failed++
	case v.Outcome == schemas.Settled:
		g.n.Problems++
	}
}

// storm adds a deferral to the group of the storm. A storm that was reported before gets no new group.
func (d *Digest) storm(e schemas.Event, reason, what string, now time.Time) {
	key := "storm " + reason
	isNew := d.news(key, now, now.Add(stormOver))
	d.said[key] = now.Add(stormOver)
	if g := d.groups[string(Storm)+"/"]; isNew || g != nil {
		g = d.group(Storm, "", now)
		g.add(e, now)
		g.n.Deferred++
		g.say(0, what)
	}
}

// receipt notes the end of a request. The end of a drain is an event of its maintenance.
func (d *Digest) receipt(e schemas.Event, r schemas.Receipt, now time.Time) {
	if r.State == schemas.RequestAccepted || r.Maintenance != nil && r.Reason == schemas.ReceiptDone {
		return
	}
	g := d.group(Moves, cmp.Or(e.CorrelationID, e.ID), now)
	g.add(e, now)
	g.n.Correlation, g.n.DryRun = e.CorrelationID, g.n.DryRun || r.DryRun
	g.requestTitle = fmt.Sprintf("request %s/%s %s (%s)", r.Sender, r.Name, r.State, r.Reason)
	g.say(0, fmt.Sprintf("%s: %s", r.Reason, r.Message))
}

// maintenance notes nodes that are drained, or that cannot be drained, and refusals.
func (d *Digest) maintenance(e schemas.Event, m schemas.Maintenance, now time.Time) {
	say := func(title, text string, pods v1alpha1.PodCounts, node string) {
		g := d.group(Drain, m.Name, now)
		g.add(e, now)
		g.n.Maintenance, g.n.DryRun, g.requestTitle = m.Name, m.DryRun, title
		g.n.Moved += int(pods.Moved)
		g.n.Deferred += int(pods.Blocked)
		g.place(node, "", "")
		g.say(0, text)
	}
	if m.Refusal != nil && d.news(fmt.Sprintf("%s %s refused %s", m.Name, m.UID, m.Refusal.Reason), now, now.Add(silence)) {
		say("refused", m.Refusal.Reason+": "+m.Refusal.Message, v1alpha1.PodCounts{}, "")
	}
	for _, n := range m.Nodes {
		var pods v1alpha1.PodCounts
		if n.Pods != nil {
			pods = *n.Pods
		}
		title, text := "", ""
		switch {
		case n.Stage == v1alpha1.IsDrained && n.DrainedAt != nil && e.Time.Sub(n.DrainedAt.Time) < fresh:
			title = m.Summary.Nodes + " nodes are done"
			text = fmt.Sprintf("node %s is drained: %s moved", n.Name, count(int(pods.Moved), "pod"))
		case n.Stage == v1alpha1.Held:
			title, text = "stopped", fmt.Sprintf("node %s is held: %s left: %s", n.Name, count(int(pods.Left), "pod"), n.Message)
		case n.Stage == v1alpha1.Draining && len(n.Blocked) > 0:
			b := n.Blocked[0]
			title = "blocked"
			text = fmt.Sprintf("node %s: %s blocked, such as %s/%s: %s: %s", n.Name, count(int(pods.Blocked), "pod"), b.Namespace, b.Name,
				b.Reason, cmp.Or(b.Message, b.By))
		}
		if text != "" && d.news(fmt.Sprintf("%s %s %s %s", m.Name, m.UID, n.Name, title), now, now.Add(silence)) {
			say(title, text, pods, n.Name)
		}
	}
}
