package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// ErrUnavailable is wrapped by errors that say that the API server could not be asked about the pod.
var ErrUnavailable = errors.New("API server unavailable")

const (
	// lookTimeout bounds one read of a pod: far more than a healthy API server needs.
	lookTimeout = 5 * time.Second
	// tries is how often a pod is read and checked that others change before it is moved.
	tries = 3
	// latest is the version with which look reads from the storage, not from a cache.
	latest = ""
)

// executeFunc is the shape of [Actuator.execute].
type executeFunc func(context.Context, Intent, saveFunc) (schemas.Verdict, error)

// saveFunc stores in the ledger how a pod is going to be moved, before the first step. If it fails, nothing may be changed.
type saveFunc func(ctx context.Context, r record) error

// execute takes one intent to its verdict: it reads the live pod, asks the gates, and starts the move.
//
// With an error, there is no verdict and nothing was changed: the pod could not be read (it wraps [ErrUnavailable]), save
// failed, or ctx ended before the first call. After that, the end of ctx does not interrupt the move.
func (a *Actuator) execute(ctx context.Context, i Intent, save saveFunc) (v schemas.Verdict, err error) {
	version := a.cfg.View.Version(i.Pod.UID)
	for range tries {
		pod, readErr := a.look(ctx, i.Pod, version)
		switch {
		case apierrors.IsForbidden(readErr):
			return a.verdict(i, Rejection{schemas.Failed, schemas.ReasonForbidden, readErr.Error()}), nil
		case readErr != nil:
			return schemas.Verdict{}, fmt.Errorf("look at pod %s: %w: %w", i.Pod, ErrUnavailable, readErr)
		}
		s := a.situation(i, pod)
		if r, rejected := ask(Gates(), s); rejected {
			return a.verdict(i, r), nil
		}
		if v, err = a.startMove(ctx, s, save); !errors.Is(err, move.ErrChanged) {
			break
		}
		version = latest
	}
	return v, err
}

// look reads the pod from the API server, which may answer from its own cache if that is not older than the version. Before an
// eviction, the version that is known here will do: the eviction has it as a precondition. nil: there is none.
func (a *Actuator) look(ctx context.Context, ref schemas.PodRef, version string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	pod, err := a.cfg.Client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{ResourceVersion: version})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return pod, nil
}

// situation asks the policy about the pod.
func (a *Actuator) situation(i Intent, pod *corev1.Pod) Situation {
	s := Situation{Now: a.cfg.Now(), Intent: i, Pod: pod}
	var profile policy.Profile
	p := a.policy.Load()
	switch profile, s.Enabled = enables(p, i); {
	case !s.Enabled || pod == nil:
	case i.Strategy == schemas.MaintenanceStrategy:
		s.Protections = p.Maintenance.Protects(pod, s.Now)
	default:
		s.Protections = profile.Evictor.ProtectsBut(i.asked().Override, pod, s.Now, a.cfg.Facts)
	}
	return s
}

// enables returns the profile of an intent, and whether the policy has it with the intent's strategy. Requests may name every
// profile, and maintenances need none.
func enables(p *policy.Policy, i Intent) (policy.Profile, bool) {
	profile, ok := p.Profile(i.Profile)
	switch i.Strategy {
	case schemas.RequestStrategy:
		return profile, ok
	case schemas.MaintenanceStrategy:
		return profile, true
	}
	return profile, ok && slices.ContainsFunc(profile.Strategies, func(s policy.Enabled) bool { return s.Name == i.Strategy })
}

func (a *Actuator) verdict(i Intent, r Rejection) schemas.Verdict {
	v := i.Verdict(r.Outcome, r.Reason, r.Message)
	v.DryRun = a.isDryRun(i)
	return v
}

// isDryRun says whether nothing is changed, because of the configuration or the request.
func (a *Actuator) isDryRun(i Intent) bool { return a.cfg.DryRun || i.asked().DryRun }

// choice is one method that is tried for a pod.
type choice struct {
	move.Method
	skip     bool // a pod that cannot be moved by this method is not moved by another
	optional bool // a missing right does not matter, since the policy does not enable this method
}

// choices are the methods that are tried for the pod, in order: as the policy, the request and the maintenance want it.
func (a *Actuator) choices(i Intent) (list []choice) {
	p, asked := a.policy.Load(), i.asked()
	if asked.Method != schemas.UseEvict {
		maintenance := i.Strategy == schemas.MaintenanceStrategy
		preferred := asked.Method == schemas.UseRestart || maintenance && !p.Maintenance.RestartAsUsual()
		if a.restarts != nil && (p.Restart.Workloads != "" || preferred) {
			restart := p.Restart
			if preferred {
				restart = restart.Preferred()
				restart.AgainAlone = maintenance
			}
			skip := p.Restart.Otherwise == policy.OtherwiseSkip && !preferred
			list = append(list, choice{a.restarts.With(restart, asked.DryRun), skip, preferred})
		}
		if a.evictionRequests != nil && p.EvictionRequests.Wait > 0 && !asked.DryRun { // a dry run would tell nothing new
			list = append(list, choice{Method: a.evictionRequests})
		}
	}
	if asked.DryRun {
		return append(list, choice{Method: a.evictions.DryRun()})
	}
	return append(list, choice{Method: a.evictions})
}

// method returns the method of that name. nil: it has no steps.
func (a *Actuator) method(name schemas.Method) move.Method {
	switch {
	case (name == schemas.MethodRestart || name == schemas.MethodSurge) && a.restarts != nil:
		return a.restarts
	case name == schemas.MethodEvictionRequest && a.evictionRequests != nil:
		return a.evictionRequests
	case name == schemas.MethodBackground && a.background != nil:
		return a.background
	}
	return nil
}

// startMove starts the move of the pod of s by the first method that can.
func (a *Actuator) startMove(ctx context.Context, s Situation, save saveFunc) (schemas.Verdict, error) {
	calling, end := detached(ctx)
	defer end()
	var instead *schemas.Instead
	for _, c := range a.choices(s.Intent) {
		var saved record
		var failed error
		p, err := c.Start(calling, s.Pod, s.Now, func(_ context.Context, r move.Record) error {
			saved = record{Intent: s.Intent, Method: r.Method, Workload: r.Workload, Instead: instead, State: r.State}
			failed = cmp.Or(save(ctx, saved), ctx.Err())
			return failed
		})
		if !c.optional {
			a.noteRight(p)
		}
		switch {
		case failed != nil || errors.Is(err, move.ErrChanged):
			return schemas.Verdict{}, fmt.Errorf("move pod %s: %w", s.Intent.Pod, err)
		case err != nil:
			return schemas.Verdict{}, fmt.Errorf("move pod %s: %w: %w", s.Intent.Pod, ErrUnavailable, err)
		case p.Stage == move.NotApplicable, c.optional && p.Refusal != nil && p.Refusal.Reason == schemas.ReasonForbidden:
			continue
		case p.Stage == move.Released && p.Method != schemas.MethodEviction && !c.skip && !p.Refusal.Wait:
			if instead == nil {
				instead = &schemas.Instead{Method: p.Method, Reason: p.Refusal.Reason, Message: p.Refusal.Message}
			}
			continue
		case p.Refusal != nil:
			v := a.verdict(s.Intent, Rejection{p.Refusal.Outcome, p.Refusal.Reason, p.Refusal.Message})
			if v.Blockers = p.Refusal.Blockers; p.Method == schemas.MethodEviction {
				v.Instead = instead
			}
			return v, nil
		}
		outcome, reason := move.Accepted(p.Method)
		v := a.verdict(s.Intent, Rejection{outcome, reason, p.Message})
		v.Method, v.Instead, v.Workload = p.Method, instead, p.Workload
		if p.Stage == move.Working && p.State == nil || saved.State == nil {
			return v, nil
		}
		saved.State = p.State
		return v, save(calling, saved)
	}
	return schemas.Verdict{}, fmt.Errorf("move pod %s: %w", s.Intent.Pod, ErrUnavailable)
}

// noteRight names a missing right of a method that the policy enables, in [Actuator.Ready], in a metric and in a Kubernetes
// Event, until the method works.
func (a *Actuator) noteRight(p move.Progress) {
	if p.Method == "" || p.Method == schemas.MethodEviction {
		return
	}
	if p.Refusal == nil || p.Refusal.Reason != schemas.ReasonForbidden {
		if _, was := a.rights.LoadAndDelete(p.Method); was {
			a.metrics.rights.DeleteLabelValues(string(p.Method))
		}
		return
	}
	err := fmt.Errorf("method %s: a right is missing, pods are moved by the next method: %s", p.Method, p.Refusal.Message)
	if _, was := a.rights.Swap(p.Method, err); was {
		return
	}
	a.metrics.rights.WithLabelValues(string(p.Method)).Set(1)
	a.cfg.Log.Warn("a right is missing", "method", p.Method, "error", p.Refusal.Message)
	if s := a.session.Load(); s != nil {
		s.events.announce(corev1.EventTypeWarning, rightEvent, err.Error())
	}
}
