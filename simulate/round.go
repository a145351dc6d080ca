package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher"
)

// Config configures a round. Policy, Functions, and Now are required.
type Config struct {
	Policy policy.Policy
	// Functions are the strategies of the policy.
	Functions []functions.Function
	// Now is the clock. Each turn reads it once, at its start. The same times give the same decisions.
	Now func() time.Time
	// NoLimits ignores the limits of the policy on the number of moves.
	NoLimits bool
	// Loads are for load strategies.
	Loads Loads
	// MinorVersion is the minor version of the scheduler: 36 for Kubernetes 1.36. 0 means the one of the newest kubelet among
	// the nodes, since no kubelet is newer than its control plane.
	MinorVersion int
	// Carry executes the intents of one turn and returns a verdict for each, in order, even with an error. nil executes
	// nothing: each pod counts as evicted unless the PodDisruptionBudgets among the objects forbid it.
	Carry func(context.Context, []actuator.Intent) ([]schemas.Verdict, error)
}

type round struct {
	Config
	offline *watcher.Offline
	moved   []types.UID // pods, the first to move first
	// scheduler predicts the nodes of replacements.
	scheduler *score.Profile
	pods      map[types.UID]*corev1.Pod
	budgets   budgets
	limits    limits
}

// Run decides one round about the objects. It removes fields that no decision depends on from them. After each turn it
// calls report with the verdicts of the turn, in the order in which the strategy listed the pods. No two objects may
// have the same kind, namespace, and name; their order does not matter.
//
// It continues after an error of Carry, and returns it at the end. An error of report, or the end of ctx, ends it after
// the turn.
func Run(ctx context.Context, c Config, objects []metav1.Object, report func([]schemas.Verdict) error) error {
	r, err := filled(c, objects)
	if err != nil {
		return err
	}
	return r.run(ctx, report)
}

// filled returns a round with the objects.
func filled(c Config, objects []metav1.Object) (*round, error) {
	offline, err := watcher.NewOffline(c.Policy)
	if err != nil {
		return nil, err
	}
	scheduler, err := c.Policy.Scheduler.Load()
	if err != nil {
		return nil, err
	}
	if c.MinorVersion == 0 {
		c.MinorVersion = newestKubelet(objects)
	}
	offline.SetMinorVersion(c.MinorVersion)
	r := &round{
		Config: c, offline: offline, scheduler: scheduler,
		pods: map[types.UID]*corev1.Pod{}, budgets: budgets{}, limits: limits{c.Policy.Limits, map[string]uint{}},
	}
	if c.NoLimits {
		r.limits.Limits = policy.Limits{}
	}
	r.load()
	return r, r.fill(objects)
}

func (r *round) run(ctx context.Context, report func([]schemas.Verdict) error) error {
	var failed []error
	for _, point := range []policy.Point{policy.Deschedule, policy.Balance} {
		for _, p := range r.Policy.Profiles {
			for _, s := range p.Strategies {
				if s.Point != point {
					continue
				}
				carried, err := r.turn(ctx, p.Name, s.Name, report)
				failed = append(failed, carried)
				if err != nil {
					return errors.Join(append(failed, err)...)
				}
			}
		}
	}
	return errors.Join(failed...)
}

// turn runs the turn of one strategy. carried is the error of the execution.
func (r *round) turn(ctx context.Context, profile, strategy string, report func([]schemas.Verdict) error) (carried, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := r.entries(profile, strategy)
	if err != nil {
		return nil, err
	}
	carried = r.execute(ctx, entries)
	var verdicts []schemas.Verdict
	var gone []types.UID
	for _, w := range entries {
		verdicts = append(verdicts, *w.verdict)
		if w.verdict.Outcome.Moves() {
			gone = append(gone, w.open.Pod.UID)
		}
	}
	if err := report(verdicts); err != nil {
		return carried, err
	}
	return carried, r.leave(gone)
}

// entry is an intent and its verdict, if it has one already.
type entry struct {
	open    actuator.Intent
	verdict *schemas.Verdict // nil if there is none yet
}

func (w *entry) decide(r *move.Refusal) {
	v := w.open.Verdict(r.Outcome, r.Reason, r.Message)
	v.Blockers = r.Blockers
	w.verdict = &v
}

// entries evaluates all scopes of a strategy. Its candidates have their verdicts, after the intents for the same scope.
func (r *round) entries(profile, strategy string) ([]*entry, error) {
	at := slices.IndexFunc(r.Functions, func(f functions.Function) bool { return f.Strategy.Name == strategy })
	if at < 0 {
		return nil, fmt.Errorf("there is no function for strategy %s", strategy)
	}
	now := r.now()
	scopes, err := r.offline.Payloads(profile, strategy, now)
	if err != nil {
		return nil, err
	}
	var all []*entry
	known := map[types.UID]bool{}
	for _, scope := range scopes {
		wanted, candidates, err := ask(r.Functions[at], scope)
		if err != nil {
			return nil, err
		}
		for _, w := range wanted {
			known[w.open.Pod.UID] = true
			r.judge(w, now)
			all = append(all, w)
		}
		for _, w := range candidates {
			if uid := w.open.Pod.UID; !known[uid] {
				known[uid] = true
				all = append(all, w)
			}
		}
	}
	return all, nil
}

func (r *round) now() time.Time { return r.Now() }

// judge applies the gates of the actuator to the pod.
func (r *round) judge(w *entry, now time.Time) {
	s := actuator.Situation{Now: now, Intent: w.open, Pod: r.pods[w.open.Pod.UID], Enabled: true}
	if no := actuator.Judge(s); no != nil {
		w.decide(no)
	}
}
