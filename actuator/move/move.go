// Package move defines how a pod is moved. Each way is a [Method] in a package of its own:
//
//	restart          the Deployment makes a replacement first, by a rollout restart or one replica more
//	evictionrequest  an EvictionRequest asks responders to make the pod go
//	eviction         the eviction call
//	background       a webhook took the eviction call over and moves the pod itself
//
// The actuator calls Start in execute (actuator/execution.go), and Step in step (actuator/steps.go):
//
//	Start ──▶ Working ──▶ Step ──▶ Working ──▶ ... ──▶ Done, Undone or Released
//	              │ the cause is gone
//	              └─────▶ Step, canceled ──▶ Working ──▶ ... ──▶ Done or Undone
//
// A method keeps nothing in memory between calls. The actuator stores [Record] in the ledger and passes its State to the
// next call, so a move continues in another process.
package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/schemas"
)

// Starter moves pods in one way. It may be called from several goroutines at once, but not for the same pod. The end of
// ctx interrupts calls to the API server: end it when the lease is lost, but not at a shutdown.
type Starter interface {
	// Start plans the move of the pod, saves the plan, and takes the first step. Progress has the Method and the
	// Workload. Start changes nothing in the cluster before save returns nil; it may call save again with a newer plan.
	// The Stage is NotApplicable or Released if the pod cannot be moved in this way, and Done with a Refusal if it left
	// by itself.
	//
	// An error means that nothing was changed, because the API server did not answer or save failed. It wraps
	// [ErrChanged] if the pod is not the given one anymore, and [ErrNotLeading] if the client sent no write because the lease
	// is not valid. If the result of the first step is unknown, Start returns Working.
	Start(ctx context.Context, pod *corev1.Pod, now time.Time, save Save) (Progress, error)
}

// Method is a [Starter] whose moves take several steps.
type Method interface {
	Starter
	// Step takes the next step. It reads the state of the move from the cluster, so a repeated step changes nothing
	// twice. After an error the actuator tries again. If errors are [Permanent] for an hour, it cancels the move, and ends
	// it after the next such error.
	//
	// canceled means that the cause of the move is gone. The step undoes whatever it can, and the move never ends as
	// Released. A move continues if it cannot be undone, or only at a higher price than its completion.
	Step(ctx context.Context, state State, canceled bool, now time.Time) (Progress, error)
}

// ErrChanged is wrapped by the error of Start if the pod was changed since it was read. Check the protections of the
// pod again before the next try.
var ErrChanged = errors.New("the pod was changed since it was read")

// ErrNotLeading is wrapped by the error of a write that the client did not send, because another process may lead.
var ErrNotLeading = errors.New("another process may lead")

// State is the state of a method between two steps, as JSON.
type State = json.RawMessage

// Planned is the phase of a state whose first change was not made, or whose answer was lost. The actuator applies the gates to
// the pod again before the next step of such a move, and cancels it if they reject the pod. If the pod has a replacement, lack of
// room for another one does not count.
const Planned = "Planned"

// IsPlanned reports whether the phase of a state is [Planned].
func IsPlanned(s State) bool {
	d, err := Decode[struct {
		Phase string `json:"phase"`
	}](s)
	return err == nil && d.Phase == Planned
}

// Record is the part of the ledger record that belongs to the method.
type Record struct {
	// Method is the name of the method that takes the next step.
	Method schemas.Method `json:"method"`
	// Workload is the object that creates the replacement, or nil if the method does not know it.
	Workload *schemas.ObjectRef `json:"workload,omitempty"`
	// State is nil if there is no next step.
	State State `json:"state,omitempty"`
}

// Save stores the record of a move. If it fails, Start changes nothing.
type Save func(ctx context.Context, r Record) error

// Refusal is the reason why an intent is not executed, now or ever, or why its pod cannot be moved in one way. Outcome is
// the outcome of the intent if there is no other way.
type Refusal struct {
	Outcome schemas.Outcome // deferred, rejected, expired or failed
	Reason  schemas.ReasonCode
	Message string
	// Blockers are the objects to wait for, such as the PodDisruptionBudgets that forbid the move.
	Blockers []schemas.ObjectRef
	// Wait means that another move includes the pod, so no other method should move it meanwhile.
	Wait bool
}

// Stage is the state of a move.
type Stage int

// The stages.
const (
	Working       Stage = iota // the move goes on; the next step is due after Delay
	Done                       // the pod is gone or terminating, and its workload is as it was before
	Undone                     // the move was given up or canceled, and everything is as before; the pod still runs
	Released                   // the move was given up without a change, and another method may move the pod
	NotApplicable              // only from Start: the method does not apply to the pod
)

// Progress is the state of a move after a step.
type Progress struct {
	Stage Stage
	// Method and Workload are set by Start. Method differs from the called method if another one continues the move.
	Method   schemas.Method
	Workload *schemas.ObjectRef
	// State replaces the stored state. nil keeps it.
	State State
	// Refusal is the reason for Undone and Released, and for Done if the pod left by itself before anything was
	// changed.
	Refusal *Refusal
	// Message describes the first change, or the reason why a move is Undone.
	Message string
	// Delay is the longest time until the next step; a change of a pod of the workload makes it due at once. 0 leaves
	// it to the actuator.
	Delay time.Duration
}

// Refused returns the progress of a move that did not begin.
func Refused(method schemas.Method, r *Refusal) Progress {
	return Progress{Stage: Released, Method: method, Refusal: r, Message: r.Message}
}

// Begun returns the progress of a move after its first step. message describes the first change. If err leaves the
// result of the step unknown, the move goes on, and the next step determines the result. After [ErrNotLeading] the move
// did not begin.
func Begun(p Progress, method schemas.Method, message string, err error) (Progress, error) {
	p.Method = method
	switch {
	case errors.Is(err, ErrNotLeading):
		return Progress{}, err
	case err != nil:
		message += "; retrying the first step: " + err.Error()
		return Progress{Method: method, Message: message}, nil //nolint:nilerr // the next step determines the result
	case p.Refusal == nil:
		p.Message = message
	}
	return p, nil
}

// Deferred returns a temporary refusal.
func Deferred(reason schemas.ReasonCode, format string, args ...any) *Refusal {
	return &Refusal{Outcome: schemas.Deferred, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// NotMoved returns the progress of a move that was given up.
func NotMoved(r *Refusal) Progress { return Progress{Stage: Undone, Refusal: r, Message: r.Message} }

// Forbidden returns the refusal for a missing right of the actuator. err is the answer of the API server, which names
// the right.
func Forbidden(err error) *Refusal {
	return &Refusal{Outcome: schemas.Failed, Reason: schemas.ReasonForbidden, Message: err.Error()}
}

// Accepted returns the outcome and the reason of the verdict on a pod whose move began by the method.
func Accepted(method schemas.Method) (schemas.Outcome, schemas.ReasonCode) {
	switch method {
	case schemas.MethodRestart:
		return schemas.Restarted, schemas.ReasonRestartAccepted
	case schemas.MethodSurge:
		return schemas.Restarted, schemas.ReasonSurgeAccepted
	case schemas.MethodEvictionRequest:
		return schemas.Requested, schemas.ReasonEvictionRequestAccepted
	case schemas.MethodBackground:
		return schemas.Requested, schemas.ReasonBackgroundAccepted
	case schemas.MethodEviction:
	}
	return schemas.Evicted, schemas.ReasonEvictionAccepted
}

// Live reads the pod of a move from the API server, never from a cache. If there is nothing left to move, the pod is
// nil and over is the reason in words: the pod is gone, even if another one has its name; it is terminating; or it has
// ended.
func Live(ctx context.Context, client kubernetes.Interface, ref schemas.PodRef) (pod *corev1.Pod, over string, err error) {
	pod, err = client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "the pod is gone", nil
	case err != nil:
		return nil, "", fmt.Errorf("look at pod %s: %w", ref, err)
	case pod.UID != ref.UID:
		return nil, "the pod is gone; another one has its name", nil
	case pod.DeletionTimestamp != nil:
		return nil, "the pod is being deleted", nil
	case schemas.Ended(pod):
		return nil, "the pod has ended", nil
	}
	return pod, "", nil
}

// Encode returns a value as JSON, such as the state of a method.
func Encode(state any) State {
	text, err := json.Marshal(state)
	if err != nil { // all fields of states can be encoded as JSON
		panic(err)
	}
	return text
}

// ErrUnreadable is wrapped by errors about a stored move that this version cannot continue.
var ErrUnreadable = errors.New("the stored move cannot be read")

// Decode reads the state of a method. Its error wraps [ErrUnreadable].
func Decode[T any](text State) (state T, err error) {
	if err = json.Unmarshal(text, &state); err != nil {
		return state, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return state, nil
}

// Permanent reports whether err is an answer of the API server that will not change soon, such as a missing right, an
// unknown kind, or an invalid object, or wraps [ErrUnreadable]. A server that does not answer, is overloaded (429), or
// fails (5xx) may answer soon. So may one that does not know the client for a moment (401), and a conflict ends.
func Permanent(err error) bool {
	if errors.Is(err, ErrUnreadable) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}
