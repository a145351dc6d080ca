package simulate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// execute gives every entry a verdict: first it executes the entries within the limits, and then, while some of those did
// not move, the next ones in their place.
func (r *round) execute(ctx context.Context, entries []*entry) error {
	first := map[types.UID]*entry{}
	var waiting, again []*entry
	for _, w := range entries {
		switch uid := w.open.Pod.UID; {
		case w.verdict != nil:
		case first[uid] != nil:
			again = append(again, w)
		default:
			first[uid] = w
			waiting = append(waiting, w)
		}
	}
	slices.SortStableFunc(waiting, r.compare)
	var failed []error
	for len(waiting) > 0 {
		through, held := r.limited(waiting)
		if len(through) == 0 {
			break
		}
		failed = append(failed, r.carryOut(ctx, through))
		waiting = held
	}
	for _, w := range again {
		r.share(w, first[w.open.Pod.UID])
	}
	return errors.Join(failed...)
}

// compare sorts entries about single pods and topology domains in the order of the actuator's queue. Within other groups
// the strategy has chosen the order.
func (r *round) compare(a, b *entry) int {
	if kind := a.open.Scope.Kind; kind != schemas.NodeKind && kind != schemas.PodKind && kind != schemas.DomainKind {
		return 0
	}
	priority := func(w *entry) int {
		return actuator.PriorityOf(r.Policy.Traits(w.open.Strategy), policy.MoveCost(r.pods[w.open.Pod.UID]), w.open.Weight)
	}
	return cmp.Compare(priority(b), priority(a))
}

// limited applies the limits. Intents over a limit get a verdict.
func (r *round) limited(entries []*entry) (through, held []*entry) {
	for _, w := range entries {
		reason, message := r.limits.take(w.open.Intent)
		if reason == "" {
			through = append(through, w)
			continue
		}
		w.decide(move.Deferred(reason, "%s", message))
		held = append(held, w)
	}
	return through, held
}

// carryOut gives the intents their verdicts. Like the actuator, it reserves capacity for the replacement of each moved
// pod.
func (r *round) carryOut(ctx context.Context, entries []*entry) error {
	entries = r.reserve(entries)
	var verdicts []schemas.Verdict
	var err error
	if r.Carry == nil {
		for _, w := range entries {
			verdicts = append(verdicts, r.budgets.carry(w.open, r.pods[w.open.Pod.UID]))
		}
	} else {
		opens := make([]actuator.Intent, len(entries))
		for i, w := range entries {
			opens[i] = w.open
		}
		verdicts, err = r.Carry(ctx, opens)
	}
	for i, w := range entries {
		w.verdict = &verdicts[i]
		if w.verdict.Outcome.Moves() {
			r.moved = append(r.moved, w.open.Pod.UID)
		} else {
			r.limits.giveBack(w.open.Intent)
			if r.Policy.NeedsCapacity() {
				r.offline.Cluster().Release(w.open.Pod.UID)
			}
		}
	}
	return err
}

// reserve returns the entries with capacity for the replacements of their pods, where the rules require it. The others
// get a verdict.
func (r *round) reserve(entries []*entry) (fit []*entry) {
	if !r.Policy.NeedsCapacity() {
		return entries
	}
	for _, w := range entries {
		profile, _ := r.Policy.Profile(w.open.Profile)
		rules, pod := profile.EvictorFor(w.open.Strategy), r.pods[w.open.Pod.UID]
		if no := actuator.Reserve(r.offline.Cluster(), &r.Policy, r.scheduler, w.open, rules, pod); no != nil {
			w.decide(no)
			r.limits.giveBack(w.open.Intent)
		} else {
			fit = append(fit, w)
		}
	}
	return fit
}

// share gives the second entry for the same pod a verdict that follows from the first one's.
func (r *round) share(w, first *entry) {
	no := &move.Refusal{Outcome: first.verdict.Outcome, Reason: first.verdict.Reason, Message: first.verdict.Message}
	if no.Outcome.Moves() {
		no = &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodTerminating,
			Message: string(no.Outcome) + " because of " + first.open.Scope.Key}
	}
	w.decide(no)
}

// ask evaluates one scope. candidates are protected pods that the strategy would move without the protection.
func ask(f functions.Function, scope schemas.Payload) (wanted, candidates []*entry, err error) {
	answer, err := f.EvaluateInPlace(scope, scope.About())
	if err != nil {
		return nil, nil, err
	}
	for _, intent := range answer.Intents {
		wanted = append(wanted, &entry{open: open(answer, intent)})
	}
	protected := map[types.UID][]schemas.Protection{}
	for _, p := range pods(scope) {
		if len(p.Protected) > 0 {
			protected[p.Pod.UID] = p.Protected
		}
	}
	if len(protected) == 0 {
		return wanted, nil, nil
	}
	freely, err := f.EvaluateInPlace(unprotected(scope), scope.About())
	if err != nil {
		return nil, nil, err
	}
	for _, intent := range freely.Intents {
		if rules := protected[intent.Pod.UID]; len(rules) > 0 {
			w := &entry{open: open(freely, intent)}
			w.decide(&move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonProtected, Message: words(rules)})
			candidates = append(candidates, w)
		}
	}
	return wanted, candidates, nil
}

func open(a schemas.Intents, intent schemas.Intent) actuator.Intent {
	return actuator.Intent{Profile: a.Profile, Strategy: a.Strategy, Scope: a.Scope, Intent: intent}
}

func words(rules []schemas.Protection) string {
	all := make([]string, len(rules))
	for i, p := range rules {
		all[i] = p.Rule + ": " + p.Detail
	}
	return strings.Join(all, "; ")
}
