package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
)

// story is what the history of the bus, the audit log and the cluster say, when all is over.
type story struct {
	events   int // read so far
	wishes   []wish
	final    map[string][]verdict // by the intent's ID
	ends     map[string][]verdict
	accepted []eviction
	unsure   []eviction // without an answer: the caller was gone
	pods     map[types.UID]*corev1.Pod
	answers  int // left in the table
	restarts []time.Time
	breaks   []time.Time            // of the actuator and of the bus
	messages map[demand][]time.Time // intents messages, by what they are about, without a pod
}

func newStory() story {
	return story{final: map[string][]verdict{}, ends: map[string][]verdict{}, pods: map[types.UID]*corev1.Pod{}, messages: map[demand][]time.Time{}}
}

// wish is one intent, with when it was made.
type wish struct {
	schemas.Intent
	demand
	at    time.Time
	place int // in the history
}

// demand is what intents that are one wish have in common.
type demand struct {
	profile, strategy string
	kind              schemas.ScopeKind
	key               string
	pod               types.UID
}

type verdict struct {
	schemas.Verdict
	at    time.Time
	place int
}

// eviction is one that the API server has in its audit log.
type eviction struct {
	pod            string
	uid            types.UID
	received, done time.Time
}

// judge waits until the story is whole, and says what is wrong with it.
func (r *run) judge() {
	var s story
	var open []string
	deadline := time.Now().Add(quietWithin)
	for {
		var err error
		s, err = r.read()
		if open = []string{fmt.Sprint(err)}; err == nil {
			open = s.open()
		}
		if len(open) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Second)
	}
	r.report(s)
	for _, wrong := range first(20, slices.Concat(open, s.twice(), s.unmoved(), s.exceeded(&r.pods))) {
		r.fail("%s", wrong)
	}
	if n, least := s.intents(), r.leastIntents(); n < least {
		r.fail("%d intents, want at least %d: too little happened for a test", n, least)
	}
}

// intents counts those that the history has, and those that it has a verdict of: an answer that a newer one replaced while the
// bus was away is not in it.
func (s *story) intents() int {
	ids := map[string]bool{}
	for _, w := range s.wishes {
		ids[w.ID] = true
	}
	for id := range s.final {
		ids[id] = true
	}
	return len(ids)
}

// first is at most n lines, and how many more there are.
func first(n int, lines []string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n]), fmt.Sprintf("and %d more", len(lines)-n))
}

// report prints what was done and what came of it.
func (r *run) report(s story) {
	outcomes := map[string]int{}
	for _, list := range s.final {
		for _, v := range list {
			outcomes[string(v.Outcome)+" "+string(v.Reason)]++
		}
	}
	for _, list := range s.ends {
		for _, v := range list {
			outcomes[string(v.Outcome)+" "+string(v.Reason)]++
		}
	}
	var lines []string
	for _, counts := range []map[string]int{r.counts, outcomes} {
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			lines = append(lines, fmt.Sprintf("%6d %s", counts[what], what))
		}
	}
	r.t.Logf("seed %d, %d minutes: %d intents, %d of them with a verdict of their own; %d evictions accepted, %d without an answer\n%s",
		r.seed, r.minutes, s.intents(), len(s.final), len(s.accepted), len(s.unsure), strings.Join(lines, "\n"))
}

// read reads the story as it is now.
func (r *run) read() (story, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	s := newStory()
	s.restarts, s.breaks = r.restarts, r.breaks
	if err := r.readBus(ctx, &s); err != nil {
		return s, err
	}
	log, err := r.cluster.Audit(ctx)
	if err != nil {
		return s, err
	}
	for _, e := range log {
		if err := s.audit(e); err != nil {
			return s, err
		}
	}
	list, err := r.cluster.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	for i := range list.Items {
		s.pods[list.Items[i].UID] = &list.Items[i]
	}
	return s, nil
}

// readBus reads the history and the table of answers.
func (r *run) readBus(ctx context.Context, s *story) error {
	b, err := bus.Connect(bus.Options{URL: r.servers.URL(), Name: "faults", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer b.Close()
	for b.Ready() != nil && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if err := b.Events(ctx, bus.Query{Since: time.Unix(1, 0)}, s.add); err != nil {
		return err
	}
	answered, err := b.Answered(ctx)
	s.answers = len(answered)
	return err
}

// add takes an event of the history.
func (s *story) add(e schemas.Event) error {
	s.events++
	switch e.Type {
	case schemas.IntentsType:
		a, err := schemas.Decode[schemas.Intents](e)
		if err != nil {
			return err
		}
		about := demand{profile: a.Profile, strategy: a.Strategy, kind: a.Scope.Kind, key: a.Scope.Key}
		s.messages[about] = append(s.messages[about], e.Time)
		for _, i := range a.Intents {
			d := demand{a.Profile, a.Strategy, a.Scope.Kind, a.Scope.Key, i.Pod.UID}
			s.wishes = append(s.wishes, wish{i, d, e.Time, s.events})
		}
	case schemas.VerdictType:
		v, err := schemas.Decode[schemas.Verdict](e)
		if err != nil {
			return err
		}
		to := s.final
		if v.Outcome == schemas.Settled {
			to = s.ends
		}
		to[v.Intent.ID] = append(to[v.Intent.ID], verdict{v, e.Time, s.events})
	}
	return nil
}

// audit takes an entry of the audit log.
func (s *story) audit(e cluster.AuditEntry) error {
	if e.Namespace != namespace || e.Subresource != "eviction" || e.Code != http.StatusCreated && e.Code != http.StatusGatewayTimeout {
		return nil
	}
	var request policyv1.Eviction
	if err := json.Unmarshal(e.Object, &request); err != nil {
		return fmt.Errorf("eviction in the audit log: %w: %s", err, e.Object)
	}
	o := request.DeleteOptions
	if o == nil || o.Preconditions == nil || o.Preconditions.UID == nil {
		return fmt.Errorf("pod %s was evicted without its UID as a precondition: %s", e.Name, e.Object)
	}
	one := eviction{e.Name, *o.Preconditions.UID, e.Received, e.Time}
	if e.Code == http.StatusCreated {
		s.accepted = append(s.accepted, one)
	} else {
		s.unsure = append(s.unsure, one)
	}
	return nil
}

// open says what is not over yet. An intent without a verdict of its own is over when it was the same wish as another one
// whose verdict was made or stored after it: answers are copied to the history, and a verdict can wait for the bus.
func (s *story) open() (lines []string) {
	latest, last := map[demand]time.Time{}, map[demand]int{}
	for _, list := range s.final {
		for _, v := range list {
			d := demand{v.Profile, v.Strategy, v.Scope.Kind, v.Scope.Key, v.Intent.Pod.UID}
			if v.at.After(latest[d]) {
				latest[d] = v.at
			}
			last[d] = max(last[d], v.place)
		}
	}
	for _, w := range s.wishes {
		if len(s.final[w.ID]) == 0 && latest[w.demand].Before(w.at) && last[w.demand] < w.place && !s.replacedUnread(w) {
			lines = append(lines, fmt.Sprintf("intent %s on pod %s, made at %s, has no verdict, nor any that came later: %s; %s",
				w.ID, w.Pod, w.at.Format(time.StampMilli), s.aroundMessage(w), s.about(w.Pod.UID)))
		}
	}
	if s.answers > 0 {
		lines = append(lines, fmt.Sprintf("%d answers are left in the table", s.answers))
	}
	return append(lines, s.unsaid()...)
}

// replacedUnread says whether a newer intents message took the place of the one of a wish before an actuator read it, or before
// one that had read it could say so.
func (s *story) replacedUnread(w wish) bool {
	about := w.demand
	about.pod = ""
	for _, at := range s.messages[about] {
		if at.After(w.at) {
			return at.Sub(w.at) < time.Second || s.brokenBetween(w.at.Add(-30*time.Second), at.Add(10*time.Second))
		}
	}
	return false
}

// aroundMessage lists the messages that replaced the one of a wish, and what was broken in the minute around it.
func (s *story) aroundMessage(w wish) string {
	about := w.demand
	about.pod = ""
	var later, broken []string
	for _, at := range s.messages[about] {
		if at.After(w.at) {
			later = append(later, at.Format(time.StampMilli))
		}
	}
	for _, at := range slices.Concat(s.breaks, s.restarts) {
		if at.Sub(w.at).Abs() < time.Minute {
			broken = append(broken, at.Format(time.StampMilli))
		}
	}
	return fmt.Sprintf("newer messages at %v, faults at %v", later, broken)
}

// brokenBetween says whether the actuator, the bus, or the API server was killed between two times. Without the API server
// the actuator loses its lease, and with that the messages that it read.
func (s *story) brokenBetween(from, to time.Time) bool {
	return slices.ContainsFunc(slices.Concat(s.breaks, s.restarts), func(at time.Time) bool { return at.After(from) && at.Before(to) })
}

// unsaid lists the evictions that no verdict tells of, and the moves that none ends. One whose caller was gone counts when
// its pod is gone, too.
func (s *story) unsaid() (lines []string) {
	moved := map[types.UID]bool{}
	for id, list := range s.final {
		for _, v := range list {
			if v.Outcome != schemas.Evicted {
				continue
			}
			moved[v.Intent.Pod.UID] = true
			if len(s.ends[id]) == 0 {
				lines = append(lines, fmt.Sprintf("nothing says how the move of pod %s ended, intent %s", v.Intent.Pod, id))
			}
		}
	}
	evicted := slices.Clone(s.accepted)
	for _, e := range s.unsure {
		if s.pods[e.uid] == nil {
			evicted = append(evicted, e)
		}
	}
	for _, e := range evicted {
		if !moved[e.uid] {
			lines = append(lines, fmt.Sprintf("pod %s, UID %s, was evicted at %v and is gone, and no verdict says so: %s",
				e.pod, e.uid, e.received, s.about(e.uid)))
		}
	}
	return lines
}

// about is what was said of a pod, in order.
func (s *story) about(uid types.UID) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, w := range s.wishes {
		if w.Pod.UID == uid {
			lines = append(lines, line{w.at, "wanted as " + w.ID})
		}
	}
	for _, verdicts := range []map[string][]verdict{s.final, s.ends} {
		for id, list := range verdicts {
			for _, v := range list {
				if v.Intent.Pod.UID == uid {
					lines = append(lines, line{v.at, fmt.Sprintf("%s %s %s: %s", id, v.Outcome, v.Reason, v.Message)})
				}
			}
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.text, b.text)) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "\n    %s %s", l.at.Format(time.StampMilli), l.text)
	}
	return b.String()
}

// twice says what happened more than once.
func (s *story) twice() (lines []string) {
	for _, verdicts := range []map[string][]verdict{s.final, s.ends} {
		for id, list := range verdicts {
			if len(list) > 1 && !s.triedAgain(list) {
				lines = append(lines, fmt.Sprintf("intent %s has %d verdicts: %s", id, len(list), s.about(list[0].Intent.Pod.UID)))
			}
		}
	}
	evicted := map[types.UID]int{}
	for _, list := range s.final {
		for _, v := range list {
			if v.Outcome == schemas.Evicted {
				evicted[v.Intent.Pod.UID]++
			}
		}
	}
	for uid, n := range evicted {
		if n > 1 {
			lines = append(lines, fmt.Sprintf("%d verdicts say that the pod of UID %s was evicted: %s", n, uid, s.about(uid)))
		}
	}
	accepted := map[types.UID]int{}
	for _, e := range s.accepted {
		if accepted[e.uid]++; accepted[e.uid] == 2 {
			lines = append(lines, fmt.Sprintf("pod %s, UID %s, was evicted twice", e.pod, e.uid))
		}
	}
	return lines
}

// triedAgain says whether several verdicts on one intent are those of several leaders. An intents message stays in the table until
// all of its intents have a verdict, so the next leader tries again what did not begin a move.
func (s *story) triedAgain(list []verdict) bool {
	for i, v := range list[1:] {
		before := list[i]
		if before.Outcome == v.Outcome || before.Outcome.Moves() {
			return false
		}
		if !s.brokenBetween(before.at.Add(-lostWith), v.at) {
			return false
		}
	}
	return true
}

// lostWith is how long before the verdict an API server may have died that took the entry of an eviction with it: the
// verdict waits for the API server, and for the bus.
const lostWith = time.Minute

// unmoved lists the verdicts that say that a pod was evicted which was not. An API server that is killed does not write down
// what it was doing; then the verdict says that there was no answer, and the pod is gone.
func (s *story) unmoved() (lines []string) {
	asked := map[types.UID]bool{}
	for _, e := range slices.Concat(s.accepted, s.unsure) {
		asked[e.uid] = true
	}
	for _, list := range s.final {
		for _, v := range list {
			uid := v.Intent.Pod.UID
			if v.Outcome != schemas.Evicted {
				continue
			}
			lost := strings.Contains(v.Message, "the answer was lost") && slices.ContainsFunc(s.restarts, func(at time.Time) bool {
				return at.Before(v.at) && v.at.Sub(at) < lostWith
			})
			if s.pods[uid] != nil || !asked[uid] && !lost {
				lines = append(lines, fmt.Sprintf("pod %s, UID %s, was not evicted: %s", v.Intent.Pod, uid, s.about(uid)))
			}
		}
	}
	return lines
}

// exceeded says where a limit was not kept. An eviction came to pass between its arrival and its answer. A workload has as
// many moves in flight as pods were evicted and not yet replaced by ready ones.
func (s *story) exceeded(pods *pods) (lines []string) {
	slices.SortFunc(s.accepted, func(a, b eviction) int { return a.received.Compare(b.received) })
	for i, e := range s.accepted {
		inWindow, inFlight := 0, -pods.replaced(workloadOf(e.pod), e.received)
		for _, before := range s.accepted[:i] {
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
			lines = append(lines, fmt.Sprintf("the eviction of pod %s at %v came with %d of its workload on the move: %s",
				e.pod, e.received, inFlight, s.about(e.uid)))
		}
	}
	return lines
}
