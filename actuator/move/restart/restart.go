// Package restart moves a pod by its Deployment, which makes a replacement before the pod goes.
//
//	Start (restart.go) ──▶ find (takespart.go) ──▶ eligible (eligible.go) ──▶ save ──▶ begin (restart.go)
//	Step  (restart.go) ──▶ look ──▶ follow ──▶ followRollout (rollout.go) or followSurge (surge.go) ──▶ carryOut (change.go)
//
// The phase of a move is in its stored state (state.go):
//
//	Planned ──▶ Waiting ──────────────────▶ the move is done
//	               │  └──▶ Returning ──────▶ the same, of a surge
//	               └──▶ TakingBack ────────▶ the move is undone
//
// # Rollout restart
//
// Like kubectl rollout restart, the method changes an annotation of the pod template, and the Deployment rolls out
// again: it stops the old pod once the new one is available. A rollout ignores budgets, so only a Deployment that never
// stops a pod before its replacement is available takes part. If the rollout gets stuck, the method restores the
// annotation: the controller finds the old ReplicaSet by its template and removes the new pod, and the old pod keeps
// running.
//
// # Surge
//
// The method adds one replica to the Deployment. When it is available and the budget of the pod would allow its
// eviction, the method restores the number of replicas, and the ReplicaSet removes the pod, which has the lowest
// deletion cost. An eviction would not work: the Deployment would replace the pod at once, because it still wants one
// more. When a ReplicaSet is scaled down, it removes pods that are not ready first, so the old pod survives a failure
// of the new one. Scaling down ignores budgets, so the method sends a dry run of the eviction directly before it. A
// Deployment under a HorizontalPodAutoscaler, which would remove the replica again, uses a rollout restart.
//
// # Annotations
//
// Each change is one patch for the version of the Deployment that was read. Its annotations show the change and how to
// undo it by hand:
//
//	rehome.dev/restarted-at    when the move began; it identifies the move, and the cooldown counts from it. It stays.
//	rehome.dev/restarted-for   the pod that moves, as NAME/UID. It stays.
//	rehome.dev/restart-undo    during a rollout restart: the annotation of the template and its value before, as JSON
//	rehome.dev/surge-replicas  during a surge: the number of replicas before
//
// During a surge the pod has rehome.dev/surge-cost-before, with its previous deletion cost. If another client changes
// the Deployment meanwhile, its change stays: the move ends and reports it.
package restart

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// callTimeout bounds all calls of one step together. The API server tries for up to ten seconds to write a budget.
	callTimeout = 15 * time.Second
	// soon is the delay after a change, including a change by another client.
	soon = 100 * time.Millisecond
	// poll is the delay while the move waits: the status of a Deployment or a budget lags behind its pods.
	poll = 2 * time.Second
)

// Config configures a [Method]. Client is required.
type Config struct {
	// Client needs these rights: get and patch Deployments; get ReplicaSets, namespaces, and PersistentVolumeClaims;
	// get and list pods; and list budgets. For surges it also needs to patch pods, create dry-run evictions, and list
	// autoscalers.
	Client kubernetes.Interface
	// Policy is for the moves that the method starts, see [Method.With]. A move keeps the policy of its plan.
	Policy policy.Restart
	// DryRun sends every change as a dry run.
	DryRun bool
	// Elsewhere reports whether another node has room for a second pod like this one, and if not, why. It does not change
	// the pod. nil leaves the decision to the scheduler, and the move is undone if it finds no node.
	Elsewhere func(pod *corev1.Pod) (fits bool, why string)
}

// Method lets Deployments make a replacement first. It is a [move.Method].
type Method struct{ cfg Config }

var _ move.Method = (*Method)(nil)

// New returns a method.
func New(c Config) *Method { return &Method{cfg: c} }

// With returns the method with another policy for the moves that it starts. A dry run stays one.
func (m *Method) With(p policy.Restart, dryRun bool) *Method {
	with := *m
	with.cfg.Policy = p
	with.cfg.DryRun = m.cfg.DryRun || dryRun
	return &with
}

// Start implements [move.Method]. It is not applicable to pods without a Deployment, to Deployments that do not take
// part, and to Deployments with several replicas and no budget that forbids a disruption. A missing right is a refusal.
func (m *Method) Start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	s, refusal, err := m.plan(ctx, pod, m.cfg.Policy, now)
	switch {
	case apierrors.IsForbidden(err):
		return move.Refused(methodOf(m.cfg.Policy), move.Forbidden(err)), nil
	case err != nil:
		return move.Progress{}, err
	case refusal != nil:
		return move.Refused(s.Method, refusal), nil
	case s.Method == "":
		return move.Progress{Stage: move.NotApplicable}, nil
	}
	text := s.encode()
	if err := save(ctx, move.Record{Method: s.Method, Workload: &s.Deployment, State: text}); err != nil {
		return move.Progress{}, fmt.Errorf("%s of pod %s: %w", s.Method, s.Pod, err)
	}
	p, err := m.Step(ctx, text, false, now)
	p, err = move.Begun(p, s.Method, s.words(), err)
	p.Workload = &s.Deployment
	return p, err
}

// plan returns the state of a new move, or the reason why there can be none. A state without a method means that the
// Deployment of the pod does not take part.
func (m *Method) plan(ctx context.Context, pod *corev1.Pod, p policy.Restart, now time.Time) (state, *move.Refusal, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := m.find(ctx, pod, p, now)
	switch {
	case err != nil || c == nil:
		return state{}, nil, err
	case replicasOf(c.Deployment) > 1 && restarting(c.Deployment):
		wait := refuse(*c, schemas.ReasonRestartRunning, describe(c.Deployment))
		wait.Wait = true
		return state{Method: c.Method}, wait, nil
	}
	if err := m.complement(ctx, c); err != nil {
		return state{Method: c.Method}, nil, err
	}
	return fresh(*c), eligible(*c), nil
}

// begin makes the first change. If another client has changed the Deployment since the plan, it plans again; the
// actuator saves the new plan before the next step.
func (m *Method) begin(ctx context.Context, s state, v view) (move.Progress, error) {
	switch {
	case v.going():
		return wentBefore(v), nil
	case v.Deployment == nil:
		return deleted(s, v), nil
	case v.Deployment.ResourceVersion != s.Version:
		return m.planAgain(ctx, s, v)
	}
	err := m.patch(ctx, v.Deployment, firstOf(s))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return m.planAgain(ctx, s, v)
	case apierrors.IsForbidden(err):
		return move.Refused(s.Method, move.Forbidden(err)), nil
	case move.Permanent(err):
		r := &move.Refusal{Outcome: schemas.Failed, Reason: schemas.ReasonInvalid, Message: err.Error()}
		return move.Refused(s.Method, r), nil
	case err != nil:
		return move.Progress{}, err
	case m.cfg.DryRun:
		return move.Progress{Stage: move.Done}, nil
	}
	s.Phase = waiting
	return working(s, soon), nil
}

func (m *Method) planAgain(ctx context.Context, s state, v view) (move.Progress, error) {
	renewed, refusal, err := m.plan(ctx, v.Pod, s.Policy, v.Now)
	switch {
	case err != nil:
		return move.Progress{}, err
	case refusal == nil && renewed.Method != s.Method:
		refusal = move.Deferred(schemas.ReasonRestartRunning, "%s does not take part in this way any more", s.Deployment)
	}
	if refusal != nil {
		return move.Refused(s.Method, refusal), nil
	}
	return working(renewed, soon), nil
}

// Step implements [move.Method]. A canceled move whose first change was not made is Undone at once. A canceled surge is
// undone, and so is a rollout that has stopped no pod yet; a later one goes on, because undoing it would restart the
// new pods once more.
func (m *Method) Step(ctx context.Context, text move.State, canceled bool, now time.Time) (move.Progress, error) {
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
	gone := move.Deferred(schemas.ReasonTakenBack, "the cause of the move is gone")
	switch {
	case s.Phase == planned && canceled && !v.going():
		return move.NotMoved(gone), nil
	case s.Phase == planned:
		return m.begin(ctx, s, v)
	case v.Deployment == nil:
		return deleted(s, v), nil
	case canceled && undoable(s, v):
		return s.takeBack(gone, now), nil // saved before it is done
	}
	p, err := m.carryOut(ctx, s, v, follow(s, v))
	if apierrors.IsForbidden(err) && s.Phase == waiting {
		return s.takeBack(move.Forbidden(err), now), nil
	}
	return p, err
}

// undoable reports whether a move that has begun can be undone without another restart.
func undoable(s state, v view) bool {
	return s.Phase == waiting && !v.going() && (s.Method == schemas.MethodSurge || stoppedNone(v.Deployment))
}

// follow decides the next step of a move that has begun.
func follow(s state, v view) decision {
	if s.Method == schemas.MethodSurge {
		return followSurge(s, v)
	}
	return followRollout(s, v)
}

// view is the cluster as a step finds it.
type view struct {
	Deployment *appsv1.Deployment // nil if it was deleted or recreated
	Pod        *corev1.Pod        // nil if it was deleted
	Now        time.Time
}

// going reports whether the pod is gone, or will be without another change.
func (v view) going() bool {
	return v.Pod == nil || v.Pod.DeletionTimestamp != nil || schemas.Ended(v.Pod)
}

// look reads the Deployment and then the pod, so that the pod is never older.
func (m *Method) look(ctx context.Context, s state, now time.Time) (view, error) {
	d, err := m.deployment(ctx, s.Deployment.Namespace, s.Deployment.Name)
	if err != nil {
		return view{}, err
	}
	if d != nil && d.UID != s.Deployment.UID {
		d = nil
	}
	pod, err := get(ctx, m.cfg.Client.CoreV1().Pods(s.Pod.Namespace), "pod", s.Pod.Namespace, s.Pod.Name)
	if err != nil {
		return view{}, err
	}
	if pod != nil && pod.UID != s.Pod.UID {
		pod = nil
	}
	return view{Deployment: d, Pod: pod, Now: now}, nil
}
