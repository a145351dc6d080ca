package actuator

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// ErrUnavailable is wrapped by the error of [Actuator.Handle] when the API server could not be asked about the pod.
var ErrUnavailable = errors.New("API server unavailable")

// lookTimeout bounds one look at a pod or at the budgets: far more than a healthy API server needs.
const lookTimeout = 5 * time.Second

// Handle takes one intent to its verdict: it looks at the live pod, asks the gates, and moves the pod by the method that the
// policy wants for it. What follows after a first step, [Actuator.Lead] sees to.
//
// An error means that there is no verdict and that nothing was changed: the pod could not be looked at (it wraps
// [ErrUnavailable]), or ctx ended before the move was asked for. Once it is asked for, the end of ctx does not
// interrupt it.
func (a *Actuator) Handle(ctx context.Context, open Open) (schemas.Verdict, error) {
	return a.executeOpen(ctx, open, unsaved)
}

// tries is how often a pod is read and checked that others change before it is moved.
const tries = 3

func (a *Actuator) executeOpen(ctx context.Context, open Open, save saveFunc) (v schemas.Verdict, err error) {
	version := a.cfg.View.Version(open.Intent.Pod.UID)
	for range tries {
		if v, err = a.executeOnce(ctx, open, version, save); !errors.Is(err, move.ErrChanged) {
			break
		}
		version = latest
	}
	return v, err
}

func (a *Actuator) executeOnce(ctx context.Context, open Open, version string, save saveFunc) (schemas.Verdict, error) {
	pod, err := a.look(ctx, open.Intent.Pod, version)
	switch {
	case apierrors.IsForbidden(err):
		return a.verdict(open, Objection{schemas.Failed, schemas.ReasonForbidden, err.Error()}), nil
	case err != nil:
		return schemas.Verdict{}, fmt.Errorf("look at pod %s: %w: %w", open.Intent.Pod, ErrUnavailable, err)
	}
	s := a.situation(open, pod)
	if objection, objects := ask(Gates(), s); objects {
		return a.verdict(open, objection), nil
	}
	return a.moveBy(ctx, s, save)
}

// latest is the version with which look reads what is stored: whoever asks what became of an eviction must not be told how
// the pod was before.
const latest = ""

// look reads the pod of that namespace and name from the API server, which may answer from its own cache if that is not
// older than the version. Before an eviction, the one that is known here will do: the eviction carries the pod's UID and resource
// version. nil: there is none.
func (a *Actuator) look(ctx context.Context, ref schemas.PodRef, version string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	pod, err := a.cfg.Client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{
		ResourceVersion: version,
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return pod, nil
}

// situation asks the policy about the pod.
func (a *Actuator) situation(open Open, pod *corev1.Pod) Situation {
	s := Situation{Now: a.cfg.Now(), Open: open, Pod: pod}
	var profile policy.Profile
	p := a.policy.Load()
	switch profile, s.Enabled = enables(p, open); {
	case !s.Enabled || pod == nil:
	case open.Strategy == schemas.MaintenanceStrategy:
		s.Protections = p.Maintenance.Protects(pod, s.Now)
	default:
		s.Protections = profile.Evictor.ProtectsBut(open.asked().Override, pod, s.Now, a.cfg.Facts)
	}
	return s
}

func (a *Actuator) verdict(open Open, o Objection) schemas.Verdict {
	v := open.Verdict(o.Outcome, o.Reason, o.Message)
	v.DryRun = a.pretended(open)
	return v
}
