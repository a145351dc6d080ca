package restart

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// callTimeout bounds the calls of one step together. The API server tries for up to ten seconds to write a budget that
	// others write too.
	callTimeout = 15 * time.Second
	// soon is the delay after a change, or after a change by another client.
	soon = 100 * time.Millisecond
	// poll is the delay while the move waits: the status of a Deployment or a budget follows its pods late.
	poll = 2 * time.Second
	// plans is how often a move is planned whose Deployment another client changes before the first step, such as a controller
	// that writes the status of an object that was just made.
	plans = 5
)

// Room knows which nodes have capacity. The cache of package cluster does.
type Room interface {
	// Elsewhere says whether a node other than the pod's own that matches the selector would take a second pod like it, and if
	// not, why. nil selects all nodes. It does not change the pod.
	Elsewhere(pod *corev1.Pod, nodes labels.Selector) (fits bool, why string)
}

// Config configures a [Method]. Client and Policy are required.
type Config struct {
	// Client gets and patches Deployments; gets ReplicaSets, namespaces and PersistentVolumeClaims; gets and lists pods; and
	// lists budgets and quotas. For surges it also patches pods, creates evictions, and lists autoscalers.
	Client kubernetes.Interface
	// Policy returns the current policy. A move keeps the policy it was planned by.
	Policy func() policy.Restart
	// GracePeriodSeconds returns how long a pod that goes by a surge may take to stop, where that is less than its own
	// grace period. nil, or nil returned: the pod's own. A rollout never changes it.
	GracePeriodSeconds func() *int64
	// DryRun: every change is sent as a dry run.
	DryRun bool
	// Room is asked before a move is planned. nil: the scheduler decides, and the move is taken back if it finds no node.
	Room Room
}

// Method lets Deployments make a replacement first. It is a [move.Method].
type Method struct {
	cfg Config
}

var _ move.Method = (*Method)(nil)

// New makes a method.
func New(c Config) *Method {
	if c.GracePeriodSeconds == nil {
		c.GracePeriodSeconds = func() *int64 { return nil }
	}
	return &Method{cfg: c}
}

// With returns the method with another policy for the moves that it starts. A dry run stays one.
func (m *Method) With(p policy.Restart, dryRun bool) *Method {
	with := *m
	with.cfg.Policy = func() policy.Restart { return p }
	with.cfg.DryRun = m.cfg.DryRun || dryRun
	return &with
}

// Start implements [move.Method]. It is not applicable to pods without a Deployment, to Deployments that do not take part,
// and to those with several replicas and no budget that forbids a disruption. A missing right is a refusal.
func (m *Method) Start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	p, err := m.start(ctx, pod, now, save)
	if apierrors.IsForbidden(err) {
		return move.Refused(methodOf(m.cfg.Policy()), move.Forbidden(err)), nil
	}
	return p, err
}

func (m *Method) start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	for n := 1; ; n++ {
		s, refusal, err := m.plan(ctx, pod, m.cfg.Policy(), now)
		switch {
		case err != nil:
			return move.Progress{}, err
		case refusal != nil:
			return move.Refused(s.Method, refusal), nil
		case s.Method == "":
			return move.Progress{Stage: move.NotApplicable}, nil
		}
		if err := save(ctx, move.Record{Method: s.Method, Workload: &s.Deployment, State: s.encode()}); err != nil {
			return move.Progress{}, fmt.Errorf("%s of pod %s: %w", s.Method, s.Pod, err)
		}
		p, changed, err := m.first(ctx, s, now)
		switch {
		case !changed:
			p = move.Begun(p, s.Method, s.words(), err)
			p.Workload = &s.Deployment
			return p, nil
		case n == plans:
			return move.Refused(s.Method, &move.Refusal{
				Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning, Message: s.Deployment.String() + " is changed all the time",
			}), nil
		}
	}
}

// first takes the first step. changed: nothing was done, because another client changed the Deployment.
func (m *Method) first(ctx context.Context, s state, now time.Time) (p move.Progress, changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v, err := m.look(ctx, s, now)
	if err != nil {
		return move.Progress{}, false, err
	}
	return m.begin(ctx, s, v)
}

// plan makes the state of a move that nothing was done for yet, or says why there can be none. A state without a method: the
// Deployment of the pod does not take part.
func (m *Method) plan(ctx context.Context, pod *corev1.Pod, p policy.Restart, now time.Time) (state, *move.Refusal, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := m.find(ctx, pod, p, now)
	switch {
	case err != nil || c == nil:
		return state{}, nil, err
	case replicasOf(c.Deployment) > 1 && restarting(c.Deployment):
		refusal := not(*c, schemas.ReasonRestartRunning, "%s", situation(c.Deployment))
		refusal.Wait = true
		return state{Method: c.Method}, refusal, nil
	}
	if err := m.complement(ctx, c); err != nil {
		return state{Method: c.Method}, nil, err
	}
	return fresh(*c), eligible(*c), nil
}

// Step implements [move.Method].
func (m *Method) Step(ctx context.Context, text move.State, now time.Time) (move.Progress, error) {
	return m.step(ctx, text, now, false)
}

// Cancel implements [move.Method]. A move whose first change was not made is Undone at once. A surge is taken back, and so is
// a rollout that has stopped no pod yet; a later one goes on, since undoing it would restart the new pods once more.
func (m *Method) Cancel(ctx context.Context, text move.State, now time.Time) (move.Progress, error) {
	return m.step(ctx, text, now, true)
}

func (m *Method) step(ctx context.Context, text move.State, now time.Time, canceled bool) (move.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := decode(text)
	if err != nil {
		return move.Progress{}, err
	}
	v, err := m.look(ctx, s, now)
	if err != nil {
		return move.Progress{}, err
	}
	if s.Phase == planned && v.Deployment != nil && v.Deployment.Annotations[restartedAt] == s.value() {
		s.Phase = waiting // the answer to the first change was lost
	}
	gone := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonTakenBack, Message: "the cause of the move is gone"}
	switch {
	case canceled && s.Phase == planned && !v.going():
		return undone(gone), nil
	case s.Phase == planned:
		return m.beginLate(ctx, s, v)
	case v.Deployment == nil:
		return deleted(s, v), nil
	case canceled && s.Phase == waiting && !v.going() && (s.Method == schemas.MethodSurge || stoppedNone(v.Deployment)):
		return s.takeBack(gone, now), nil // saved before it is done
	}
	var d decision
	if s.Method == schemas.MethodSurge {
		d = followSurge(s, v, m.cfg.GracePeriodSeconds())
	} else {
		d = followRollout(s, v)
	}
	p, err := m.carryOut(ctx, s, v, d)
	if apierrors.IsForbidden(err) && s.Phase == waiting {
		return s.takeBack(move.Forbidden(err), now), nil
	}
	return p, err
}
