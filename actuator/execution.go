package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/move/background"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// ErrUnavailable is wrapped by errors that mean that the API server did not answer a question about the pod.
var ErrUnavailable = errors.New("API server unavailable")

// errNotCached means that the cache did not have the pod, or its workload, when the limits were checked.
var errNotCached = errors.New("the cache of the actuator does not have the pod yet")

const (
	// lookTimeout bounds one read of a pod: far more than a healthy API server needs.
	lookTimeout = 5 * time.Second
	// tries is how often a pod is read and checked if other clients change it before the move.
	tries = 3
	// storage is the version that makes look read from the storage and not from a cache.
	storage = ""
)

type executeFunc func(context.Context, Intent, saveFunc) (schemas.Verdict, error)

// saveFunc stores the planned move in the ledger before its first step. If it fails, nothing may be changed.
type saveFunc func(ctx context.Context, r record) error

// save stores the record of a move before a call. It fails if the limits were checked without the pod, the record is not
// stored, or the lease is no longer valid; then nothing may be changed. After the first call, it fails only if the session
// is over. A dry run stores no record.
func (s *session) save(ctx context.Context, r record) error {
	if r.Intent.asked().DryRun {
		return nil
	}
	s.mu.Lock()
	x := s.moves.all[r.Intent.Pod.UID]
	if pod, known := s.cfg.View.Pod(x.uid()); s.follows && !s.begun.has(x.record) && (!known || pod.Workload.UID != x.at.workload) {
		s.mu.Unlock()
		return errNotCached
	}
	r.Begun, r.Newest, r.Workload, r.Canceled = x.Begun, x.Newest, cmp.Or(r.Workload, x.Workload), x.Canceled
	x.record = r
	if s.ledger == nil {
		s.mu.Unlock()
		return s.checkLease(r.Intent.Pod)
	}
	err := s.begun.add(r)
	stored := s.storeBegun()
	s.mu.Unlock()
	if err = cmp.Or(err, stored.wait(ctx)); err != nil {
		return fmt.Errorf("ledger record of pod %s: %w", r.Intent.Pod, err)
	}
	return s.checkLease(r.Intent.Pod)
}

// checkLease returns an error if another process may lead. A step must not begin then, because its result is stored, too.
// [Guard] checks the lease again right before each write.
func (s *session) checkLease(pod schemas.PodRef) error {
	if s.cfg.LeaseValid != nil && !s.cfg.LeaseValid() {
		return fmt.Errorf("move pod %s: %w", pod, ErrNotLeading)
	}
	return nil
}

// execute takes one intent to its verdict: it reads the pod, applies the gates, and starts the move by the first
// applicable method.
//
// If it returns an error, there is no verdict and nothing was changed: the API server did not answer (the error wraps
// [ErrUnavailable]), save failed, the lease is not valid (it wraps [ErrNotLeading]), the cache lacks the pod, or ctx ended
// before the first call. After the first call, the end of ctx does not interrupt the move.
func (a *Actuator) execute(ctx context.Context, i Intent, save saveFunc) (v schemas.Verdict, err error) {
	calling, end := detached(ctx)
	defer end()
	choices := a.choices(i)
	for try := range tries {
		now := a.cfg.Now()
		// Only an eviction has the version as a precondition, and a conflict shows that the cache is outdated.
		pod, refusal, checkErr := a.check(ctx, i, try > 0 || len(choices) > 1, now)
		switch {
		case checkErr != nil:
			return v, checkErr
		case refusal != nil:
			return a.refused(i, refusal), nil
		}
		var instead *schemas.Instead
		for _, c := range choices {
			r := record{Intent: i, Instead: instead}
			var unsaved error
			var p move.Progress
			p, err = c.Start(calling, pod, now, func(_ context.Context, m move.Record) error {
				r.Method, r.Workload, r.State = m.Method, m.Workload, m.State
				unsaved = cmp.Or(save(ctx, r), ctx.Err())
				return unsaved
			})
			a.noteRight(p)
			why, next := c.givesWay(p)
			switch {
			case unsaved != nil, errors.Is(err, ErrNotLeading):
				return v, fmt.Errorf("move pod %s: %w", i.Pod, err)
			case err != nil:
			case next:
				instead = cmp.Or(instead, why)
				continue
			case p.Refusal != nil || r.State == nil || p.Stage == move.Working && p.State == nil:
				return a.started(i, p, instead), nil
			default:
				r.State = p.State
				return a.started(i, p, instead), save(calling, r)
			}
			break
		}
		if !errors.Is(err, move.ErrChanged) {
			return v, fmt.Errorf("move pod %s: %w: %w", i.Pod, ErrUnavailable, err)
		}
	}
	return v, fmt.Errorf("move pod %s: %w", i.Pod, err)
}

// check reads the pod of an intent and applies the gates. It returns the pod or a refusal. A pod of the cache can be
// outdated, so the API server is asked before it is rejected.
func (a *Actuator) check(ctx context.Context, i Intent, latest bool, now time.Time) (*corev1.Pod, *move.Refusal, error) {
	pod, cached, err := a.read(ctx, i.Pod, latest)
	switch {
	case apierrors.IsForbidden(err):
		return nil, move.Forbidden(err), nil
	case err != nil:
		return nil, nil, fmt.Errorf("look at pod %s: %w: %w", i.Pod, ErrUnavailable, err)
	}
	r := a.judge(i, pod, now)
	if cached && r != nil && r.Outcome == schemas.Rejected {
		return a.check(ctx, i, true, now)
	}
	return pod, r, nil
}

// read returns the pod to check, or nil if there is none. With latest, it reads the pod from the storage. Otherwise the pod
// can be from the cache of this process, and its eviction fails if it has changed since. These pods are read from
// the API server:
//   - one that a budget selects, because an eviction that fails can use up the budget for two minutes;
//   - one that a webhook can take over, because webhooks do not compare versions;
//   - the pod that probes the API server after an outage.
func (a *Actuator) read(ctx context.Context, ref schemas.PodRef, latest bool) (pod *corev1.Pod, cached bool, err error) {
	pod = a.cfg.View.Object(ref.UID)
	summary, known := a.cfg.View.Pod(ref.UID)
	if latest || pod == nil || !known || summary.Ref != ref {
		pod, err = a.look(ctx, ref, storage)
		return pod, false, err
	}
	if _, down := a.health.wait(a.cfg.Now()); down || summary.Budgeted || background.Marked(pod) {
		pod, err = a.look(ctx, ref, pod.ResourceVersion)
		return pod, false, err
	}
	return pod, true, nil
}

// look reads the pod from the API server, which may answer from a cache that is not older than the version. It returns
// nil if there is no pod.
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

func (a *Actuator) refused(i Intent, r *move.Refusal) schemas.Verdict {
	v := i.Verdict(r.Outcome, r.Reason, r.Message)
	v.Blockers = r.Blockers
	v.DryRun = a.isDryRun(i)
	return v
}

// isDryRun reports whether the configuration or the request asks for a dry run.
func (a *Actuator) isDryRun(i Intent) bool { return a.cfg.DryRun || i.asked().DryRun }

// choice is a candidate method for a pod.
type choice struct {
	move.Starter
	skip     bool // if this method cannot move the pod, no other method is tried
	optional bool // a missing right does not matter, because the policy does not enable this method
}

// choices returns the methods to try for the pod, in order, as the policy, the request, or the maintenance specify.
func (a *Actuator) choices(i Intent) (list []choice) {
	p, asked := a.policy.Load(), i.asked()
	if asked.Method != schemas.UseEvict {
		maintenance := i.Strategy == schemas.MaintenanceStrategy
		preferred := asked.Method == schemas.UseRestart || maintenance && !p.Maintenance.RestartAsUsual()
		if p.Restart.Workloads != "" || preferred {
			restart := p.Restart
			if preferred {
				restart = restart.Preferred()
				restart.AgainAlone = maintenance
			}
			skip := p.Restart.Otherwise == policy.OtherwiseSkip && !preferred
			optional := p.Restart.Workloads == ""
			list = append(list, choice{a.restarts.With(restart, asked.DryRun), skip, optional})
		}
		if p.EvictionRequests.Wait > 0 && !asked.DryRun { // a dry run would show nothing new
			list = append(list, choice{Starter: a.evictionRequests})
		}
	}
	if asked.DryRun {
		return append(list, choice{Starter: a.evictions.DryRun()})
	}
	return append(list, choice{Starter: a.evictions})
}

// method returns the method of that name, or nil if it has no steps.
func (a *Actuator) method(name schemas.Method) move.Method {
	switch name {
	case schemas.MethodRestart, schemas.MethodSurge:
		return a.restarts
	case schemas.MethodEvictionRequest:
		return a.evictionRequests
	case schemas.MethodBackground:
		return a.background
	case schemas.MethodEviction:
	}
	return nil
}

// givesWay reports whether to try the next method after the progress p of this one, and the reason if it is worth
// reporting.
func (c choice) givesWay(p move.Progress) (why *schemas.Instead, next bool) {
	switch {
	case p.Stage == move.NotApplicable, c.optional && lacksRight(p):
		return nil, true
	case p.Stage == move.Released && p.Method != schemas.MethodEviction && !c.skip && !p.Refusal.Wait:
		return &schemas.Instead{Method: p.Method, Reason: p.Refusal.Reason, Message: p.Refusal.Message}, true
	}
	return nil, false
}

// started returns the verdict on an intent whose move was started or refused.
func (a *Actuator) started(i Intent, p move.Progress, instead *schemas.Instead) schemas.Verdict {
	if r := p.Refusal; r != nil {
		v := a.refused(i, r)
		if p.Method == schemas.MethodEviction {
			v.Instead = instead
		}
		return v
	}
	outcome, reason := move.Accepted(p.Method)
	v := i.Verdict(outcome, reason, p.Message)
	v.DryRun, v.Method, v.Instead, v.Workload = a.isDryRun(i), p.Method, instead, p.Workload
	return v
}

func lacksRight(p move.Progress) bool {
	return p.Refusal != nil && p.Refusal.Reason == schemas.ReasonForbidden
}

// noteRight reports a missing right of a method that the policy enables in [Actuator.Ready], in a metric, and in a
// Kubernetes Event, until the method works or the policy disables it.
func (a *Actuator) noteRight(p move.Progress) {
	if p.Method == "" || p.Method == schemas.MethodEviction || !enablesMethod(a.policy.Load(), p.Method) {
		return
	}
	if !lacksRight(p) {
		a.forgetRight(p.Method)
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

// enablesMethod reports whether the policy enables a method.
func enablesMethod(p *policy.Policy, method schemas.Method) bool {
	switch method {
	case schemas.MethodRestart, schemas.MethodSurge:
		return p.Restart.Workloads != ""
	case schemas.MethodEvictionRequest:
		return p.EvictionRequests.Wait > 0
	case schemas.MethodEviction, schemas.MethodBackground:
	}
	return true
}

// forgetRight ends the report of a missing right of a method.
func (a *Actuator) forgetRight(method schemas.Method) {
	if _, was := a.rights.LoadAndDelete(method); was {
		a.metrics.rights.WithLabelValues(string(method)).Set(0)
	}
}
