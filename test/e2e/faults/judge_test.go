package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

const (
	// lostWith is the longest time between the death of an API server, which can lose the audit entry of an eviction, and the
	// verdict on it.
	lostWith = time.Minute
	// staleLimit is the longest time after the removal of a taint until an eviction for it arrives, and it counts from the end of
	// a fault that hides the removal from Rehome.
	staleLimit = 5 * time.Second
	// readLimit is the longest time until a leader has read a message and stored its verdicts.
	readLimit = 10 * time.Second
	// reconnectLimit is the longest time after a fault until a leader reads messages, or watches the API server, again.
	reconnectLimit = 30 * time.Second
)

// finding is a rule and its violations.
type finding struct {
	rule       string
	violations []string
}

// judge waits until everything has completed, reports, and fails on every violation, and if there are too few intents.
func (r *run) judge(least int) {
	h, unfinished := r.completed()
	if h == nil {
		return
	}
	r.report(h, append(r.findings(h, unfinished), finding{"limits exceeded", h.exceeded(&r.pods)}))
	if n := h.intentCount(); n < least {
		r.fail("%d intents, want at least %d: the run tests too little", n, least)
	}
}

// findings applies all rules except the limits.
func (r *run) findings(h *history, unfinished []string) []finding {
	return []finding{
		{"verdicts lost, or moves without an end", unfinished},
		{"verdicts or moves doubled", h.doubled()},
		{"verdicts on evictions that did not happen", h.unmoved()},
		{"evictions without a cause", h.causeless()},
		{"evictions for a load that no node has", h.evictedByLoad()},
		{"evictions of protected pods", h.protectedEvicted(r.protected)},
	}
}

// firstOf returns at most n lines, and the number of the others.
func firstOf(n int, lines []string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n]), fmt.Sprintf("and %d more", len(lines)-n))
}

// report logs the counts of the run, and fails on every violation.
func (r *run) report(h *history, findings []finding) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(what string, n int) { fmt.Fprintf(table, "%s\t%d\n", what, n) }
	rows := func(counts map[string]int) {
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			row(what, counts[what])
		}
		fmt.Fprintln(table, "\t")
	}
	row("intents", h.intentCount())
	row("intents with a verdict", len(h.verdicts))
	row("evictions", len(h.accepted))
	row("evictions without an answer", len(h.unsure))
	sums := map[string]int{}
	for _, kind := range []string{"kill", "pause", "partition", "full disk"} {
		sums[kind+"s"] = 0
		for name, n := range r.counts {
			if strings.HasPrefix(name, kind) {
				sums[kind+"s"] += n
			}
		}
	}
	rows(sums)
	for _, f := range findings {
		row(f.rule, len(f.violations))
	}
	row("intents and moves lost with the records of the bus", h.excused)
	fmt.Fprintf(table, "highest resident memory\t%.0f MiB, %s\n\t\n", r.memory/(1<<20), r.largest)
	rows(r.counts)
	outcomes := map[string]int{}
	for _, verdicts := range []map[string][]verdict{h.verdicts, h.settled} {
		for _, list := range verdicts {
			for _, v := range list {
				outcomes[string(v.Outcome)+" "+string(v.Reason)]++
			}
		}
	}
	rows(outcomes)
	table.Flush()
	r.t.Logf("seed %d, %d minutes\n%s", *seed, *minutes, text.String())
	for _, f := range findings {
		for _, v := range firstOf(10, f.violations) {
			r.fail("%s: %s", f.rule, v)
		}
	}
}

// unfinished returns the intents without a verdict and the moves without an end. An intent is also finished when there
// is a later verdict on the same subject: intents are copied to the history, and a verdict can wait for the bus.
// Intents and moves that were lost when the bus was restored to an older state are only counted.
func (h *history) unfinished() (lines []string) {
	latest, last := map[subject]time.Time{}, map[subject]int{}
	for _, list := range h.verdicts {
		for _, v := range list {
			of := v.subject()
			if v.at.After(latest[of]) {
				latest[of] = v.at
			}
			last[of] = max(last[of], v.place)
		}
	}
	for _, i := range h.intents {
		if len(h.verdicts[i.ID]) > 0 || !latest[i.subject].Before(i.at) || last[i.subject] >= i.place || h.replacedUnread(i) {
			continue
		}
		if !h.excuse(i.at, "") { // the bus lost the message, and the watcher evaluates the pod again
			lines = append(lines, fmt.Sprintf("intent %s on pod %s, made at %s, has no verdict and no later one, newer messages at %v, taints of %s %v: %s",
				i.ID, i.Pod, i.at.Format(clock), h.newer(i), i.Node, h.taints[i.Node], h.about(i.Pod.UID)))
		}
	}
	if h.waiting > 0 {
		lines = append(lines, fmt.Sprintf("%d messages are left in the intents table", h.waiting))
	}
	return append(lines, h.unreported()...)
}

// replacedUnread reports whether a newer message replaced an intent before an actuator read it, or before an actuator that had
// read it could report that. A new leader reads only the newest message of each scope, which speaks for its pods
// (docs/architecture.md, "Where state lives": intents that wait on the bus are the newest per key).
func (h *history) replacedUnread(i intent) bool {
	newer := h.newer(i)
	if len(newer) == 0 {
		return h.withdrawnUnread(i)
	}
	next := newer[0]
	return next.Sub(i.at) < time.Second || !h.led(i.at, next.Add(readLimit)) ||
		h.cutBetween(i.at.Add(-reconnectLimit), next.Add(readLimit))
}

// withdrawnUnread reports whether the taint of an intent was removed soon, and another actuator led then. The message that
// withdraws an intent has no intents. A new leader drops it as soon as it has read it, and the history can miss it while the bus is
// away.
func (h *history) withdrawnUnread(i intent) bool {
	return slices.ContainsFunc(h.taints[i.Node], func(t taint) bool {
		return !t.set && t.at.After(i.at) && t.at.Before(i.at.Add(reconnectLimit)) && !h.led(i.at, t.at.Add(readLimit))
	})
}

// newer returns the times of the messages that replaced the one of an intent.
func (h *history) newer(i intent) (list []time.Time) {
	about := i.subject
	about.pod = ""
	for _, at := range h.messages[about] {
		if at.After(i.at) {
			list = append(list, at)
		}
	}
	slices.SortFunc(list, time.Time.Compare)
	return list
}

// unreported returns the moves without an end and the evictions without a verdict. An eviction without an answer counts
// when its pod is gone, unless the test or a controller deleted the pod.
func (h *history) unreported() (lines []string) {
	moved := map[types.UID]bool{}
	for id, list := range h.verdicts {
		for i, v := range list {
			if !v.Outcome.Moves() {
				continue
			}
			moved[v.Intent.Pod.UID] = true
			if i+1 < len(list) && h.back(v.Intent.Pod.UID, list[i+1].at) {
				continue // the next leader found the pod, and gave another verdict
			}
			if len(h.settled[id]) == 0 && !h.excuse(v.at, v.Intent.Pod.UID) && !h.endedAgain(v) {
				lines = append(lines, fmt.Sprintf("no verdict ends the move of pod %s: %s", v.Intent.Pod, h.about(v.Intent.Pod.UID)))
			}
		}
	}
	evicted := slices.Clone(h.accepted)
	for _, e := range h.unsure {
		if h.pods[e.uid] == nil && !h.deleted[e.uid] && !h.rolled[e.pod] {
			evicted = append(evicted, e)
		}
	}
	for _, e := range evicted {
		if !moved[e.uid] && !h.excuse(e.received, e.uid) {
			lines = append(lines, fmt.Sprintf("no verdict reports the eviction of pod %s at %v: %s", e.pod, e.received, h.about(e.uid)))
		}
	}
	return lines
}

// doubled returns the intents with several verdicts and the pods with several evictions.
func (h *history) doubled() (lines []string) {
	for _, verdicts := range []map[string][]verdict{h.verdicts, h.settled} {
		for id, list := range verdicts {
			if len(list) > 1 && !h.triedAgain(list) {
				lines = append(lines, fmt.Sprintf("intent %s has %d verdicts: %s", id, len(list), h.about(list[0].Intent.Pod.UID)))
			}
		}
	}
	evicted := map[types.UID][]verdict{}
	for _, list := range h.verdicts {
		for _, v := range list {
			if uid := v.Intent.Pod.UID; v.Outcome == schemas.Evicted {
				evicted[uid] = append(evicted[uid], v)
			}
		}
	}
	reported, accepted := map[types.UID]int{}, map[types.UID]int{}
	for uid, list := range evicted {
		slices.SortFunc(list, func(a, b verdict) int { return a.at.Compare(b.at) })
		for i, v := range list {
			if i == 0 || !h.reportedAgain(list[i-1], v) && !h.back(uid, v.at) {
				reported[uid]++
			}
		}
	}
	last := map[types.UID]time.Time{}
	for _, e := range h.accepted {
		if !h.undone(last[e.uid], e.received) {
			accepted[e.uid]++
		}
		last[e.uid] = e.done
	}
	for what, counts := range map[string]map[types.UID]int{"verdicts report the eviction of": reported, "evictions were accepted of": accepted} {
		for uid, n := range counts {
			if n > 1 {
				lines = append(lines, fmt.Sprintf("%d %s one pod: %s", n, what, h.about(uid)))
			}
		}
	}
	return lines
}

// triedAgain reports whether several leaders each gave a verdict on an intent. A message stays in the intents table until all its
// intents have a verdict, so the next leader tries those again that did not start a move (docs/architecture.md, "Where state
// lives"). It cannot know a move whose record is lost, or a move whose pod is back before its verdict was confirmed.
func (h *history) triedAgain(list []verdict) bool {
	for i, v := range list[1:] {
		before := list[i]
		newLeader := h.began(actuatorLease, before.at.Add(-time.Second), v.at)
		uid := before.Intent.Pod.UID
		if !newLeader || before.Outcome.Moves() && !h.excuse(before.at, uid) && !h.back(uid, v.at) {
			return false
		}
	}
	return true
}

// unmoved returns the verdicts that report an eviction that did not happen. An API server that is killed loses the
// audit entries of its open requests. Then the verdict reports that the answer was lost, and the pod is gone. If the test or a
// rollout deletes a pod between the record of its move and the eviction, a new leader cannot know that the eviction was not made.
// Restoring etcd can bring the pod back.
func (h *history) unmoved() (lines []string) {
	requested := map[types.UID]bool{}
	for _, e := range slices.Concat(h.accepted, h.unsure) {
		requested[e.uid] = true
	}
	for _, list := range h.verdicts {
		for _, v := range list {
			uid := v.Intent.Pod.UID
			if v.Outcome != schemas.Evicted {
				continue
			}
			restarted := slices.ContainsFunc(h.restarts, func(at time.Time) bool { return at.Before(v.at) && v.at.Sub(at) < lostWith })
			lost := strings.Contains(v.Message, "the answer was lost") &&
				(restarted || h.deleted[uid] || h.dropped[v.Intent.Pod.Namespace] || h.rolled[v.Intent.Pod.Name])
			if h.pods[uid] != nil && !h.back(uid, endless) || !requested[uid] && !lost {
				lines = append(lines, fmt.Sprintf("pod %s: %s", v.Intent.Pod, h.about(uid)))
			}
		}
	}
	return lines
}

// causeless returns the evictions for a taint that had gone before. The limit counts from the time when the watcher
// noticed that. It notices at once, unless something was away shortly before: client-go waits up to half a minute until
// it watches the API server again, and scopes of killed functions are delivered again after 20 s (docs/operations.md,
// the table of parts that are down).
func (h *history) causeless() (lines []string) {
	intents := map[types.UID]intent{}
	for _, i := range h.intents {
		if i.strategy == strategy {
			intents[i.Pod.UID] = i
		}
	}
	for _, e := range h.accepted {
		i, found := intents[e.uid]
		if !found {
			continue // unreported lists it, unless another strategy wanted it
		}
		gone := time.Time{}
		for _, t := range h.taints[i.Node] {
			if t.at.After(e.received) {
				break
			}
			if t.set {
				gone = time.Time{}
			} else if gone.IsZero() {
				gone = t.at
			}
		}
		if gone.IsZero() || e.received.Sub(gone) <= staleLimit {
			continue
		}
		from, noticed := h.noticed(i.Node, gone, e.received)
		if !noticed {
			from = gone.Add(-reconnectLimit)
		}
		if e.received.Sub(from) > staleLimit && !h.hiddenBetween(from, e.received.Add(-staleLimit)) {
			lines = append(lines, fmt.Sprintf("pod %s was evicted from %s at %s, its taint had gone at %s, the watcher published that: %v, %s: %s",
				e.pod, i.Node, e.received.Format(clock), gone.Format(clock), noticed, from.Format(clock), h.about(e.uid)))
		}
	}
	return lines
}

// evictedByLoad returns the evictions by LowNodeUtilization, see policyText.
func (h *history) evictedByLoad() (lines []string) {
	for _, list := range h.verdicts {
		for _, v := range list {
			if v.Outcome == schemas.Evicted && v.Strategy == byLoad {
				lines = append(lines, fmt.Sprintf("pod %s, because %s: %s", v.Intent.Pod, v.Intent.Reason, h.about(v.Intent.Pod.UID)))
			}
		}
	}
	return lines
}

// protectedEvicted returns the evictions of pods that were protected when the eviction arrived.
func (h *history) protectedEvicted(protected map[types.UID][]interval) (lines []string) {
	for _, e := range h.accepted {
		if anyOverlap(protected[e.uid], e.received, e.received) || workloadOf(e.pod) == kept {
			lines = append(lines, fmt.Sprintf("pod %s at %v: %s", e.pod, e.received, h.about(e.uid)))
		}
	}
	return lines
}

// exceeded returns the evictions beyond a limit. An eviction happens between its arrival and its answer. The moves in
// flight of a workload are its evicted pods without a ready replacement.
func (h *history) exceeded(pods *pods) (lines []string) {
	for _, p := range h.pods {
		pods.note(p) // the watch of the pods can be late
	}
	slices.SortFunc(h.accepted, func(a, b eviction) int { return a.received.Compare(b.received) })
	for i, e := range h.accepted {
		inWindow, inFlight := 0, -pods.replaced(workloadOf(e.pod), e.received)
		for _, before := range h.accepted[:i] {
			if e.received.Sub(before.done) < window {
				inWindow++
			}
			if before.done.Before(e.received) && workloadOf(before.pod) == workloadOf(e.pod) {
				inFlight++
			}
		}
		if inWindow >= mostInWindow {
			lines = append(lines, fmt.Sprintf("the eviction of pod %s at %v came after %d within %v", e.pod, e.received, inWindow, window))
		}
		if inFlight >= mostInFlight {
			lines = append(lines, fmt.Sprintf("the eviction of pod %s at %v came with %d moves of its workload in flight: %s",
				e.pod, e.received, inFlight, h.about(e.uid)))
		}
	}
	return lines
}
