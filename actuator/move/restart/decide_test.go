package restart

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// situated is one step of a move that has begun: its stored state and the cluster.
type situated struct {
	s state
	v view
}

// begunMove returns a move right after its first change, which the controller has not observed yet.
func begunMove(method schemas.Method) situated {
	c := aCandidate(method)
	s := fresh(c)
	s.Phase = waiting
	d := c.Deployment
	d.Annotations = map[string]string{restartedAt: s.value(), restartedFor: "api-1/pod-1"}
	if method == surge {
		d.Annotations[surgeReplicas] = "1"
		d.Spec.Replicas = new(int32(2))
	} else {
		d.Annotations[restartUndo] = `{"annotation":"` + policy.DefaultRestartAnnotation + `","old":null}`
		d.Spec.Template.Annotations = map[string]string{policy.DefaultRestartAnnotation: s.value()}
	}
	d.Generation++
	return situated{s, view{Deployment: d, Pod: c.Pod, Now: noon().Add(time.Second)}}
}

// seen sets the state of the Deployment after its controller observed it: the number of pods, and how many of them have
// the newest template and are available.
func (m *situated) seen(replicas, updated, available int32) {
	d := m.v.Deployment
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: updated,
		AvailableReplicas: available, Conditions: d.Status.Conditions}
}

// refuses makes the API server refuse new pods since that long ago, for example because of a quota.
func (m *situated) refuses(since time.Duration) {
	m.v.Deployment.Status.Conditions = append(m.v.Deployment.Status.Conditions, appsv1.DeploymentCondition{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "exceeded quota: one",
		LastTransitionTime: metav1.Time{Time: m.v.Now.Add(-since)},
	})
}

func (m *situated) leaving() {
	m.v.Pod.DeletionTimestamp = &metav1.Time{Time: m.v.Now}
}

func (m *situated) givenUp() {
	m.s.Phase, m.s.Back = takingBack, m.v.Now
	m.s.Refusal = &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartNoRoom, Message: "full"}
}

// outline is the part of a decision that is compared: writes and messages.
type outline struct {
	Annotations, Template map[string]*string
	Replicas              int32
	Cost                  *cost
	Ask, GiveUp           bool
	Phase                 phase
	Stage                 move.Stage
	Reason                schemas.ReasonCode
	Message               string
}

// outlineOf returns an outline, with the phase only if the decision changes it.
func outlineOf(before state, d decision) outline {
	o := outline{Cost: d.Cost, Ask: d.Ask, GiveUp: d.GiveUp != nil, Stage: d.Then.Stage, Message: d.Then.Message}
	if s, err := decode(d.Then.State); err == nil && s.Phase != before.Phase {
		o.Phase = s.Phase
	}
	if d.Change != nil {
		o.Annotations, o.Template = d.Change.Annotations, d.Change.Template
		if d.Change.Replicas != nil {
			o.Replicas = *d.Change.Replicas
		}
	}
	if d.GiveUp != nil {
		o.Reason, o.Message = d.GiveUp.Reason, d.GiveUp.Message
	}
	if d.Then.Refusal != nil {
		o.Reason = d.Then.Refusal.Reason
	}
	return o
}

func TestRolloutRestartProgress(t *testing.T) {
	const (
		running = schemas.ReasonRestartRunning
		key     = policy.DefaultRestartAnnotation
		taken   = "another client removed or changed the annotation " + key + " during the restart; " +
			"configure a tool that restores the template to ignore it"
		foreign = "another client changed the template during the restart, and it rolls out again"
	)
	clean := map[string]*string{restartUndo: nil}
	failed := func(m *situated) {
		m.v.Deployment.Status.Conditions = []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: exceeded, Message: "late"}}
	}
	for _, tt := range []struct {
		name   string
		change func(*situated)
		want   outline
	}{
		{"the controller has not seen it", func(*situated) {}, outline{}},
		{"a condition of before is not believed until it has", failed, outline{}},
		{"the new pod is missing", func(m *situated) { m.seen(1, 0, 1) },
			outline{}},
		{"the pod goes, and its replacement is not available", func(m *situated) { m.leaving(); m.seen(1, 1, 0) },
			outline{}},
		{"complete, and the pod is being deleted", func(m *situated) { m.leaving(); m.seen(1, 1, 1) },
			outline{Annotations: clean, Stage: move.Done}},
		{"complete, and the pod is gone", func(m *situated) { m.v.Pod = nil; m.seen(1, 1, 1) },
			outline{Annotations: clean, Stage: move.Done}},
		{"complete, and the marks are removed already", func(m *situated) {
			m.v.Pod = nil
			m.seen(1, 1, 1)
			delete(m.v.Deployment.Annotations, restartUndo)
		}, outline{Stage: move.Done}},
		{"complete, and the pod is another one's", func(m *situated) { m.seen(1, 1, 1) },
			outline{Annotations: clean, Stage: move.Undone, Reason: running,
				Message: "the rollout is complete, but the pod does not belong to the Deployment any more and runs on"}},
		{"the progress deadline is exceeded: first that is remembered", func(m *situated) { m.seen(2, 1, 1); failed(m) },
			outline{GiveUp: true, Reason: schemas.ReasonRestartUnhealthy,
				Message: "the restart got stuck and is taken back: Progressing is False, ProgressDeadlineExceeded: late"}},
		{"pods are refused for a moment", func(m *situated) { m.seen(1, 0, 1); m.refuses(moment) },
			outline{}},
		{"pods are refused for longer", func(m *situated) { m.seen(1, 0, 1); m.refuses(moment + 1) },
			outline{GiveUp: true, Reason: schemas.ReasonRestartUnhealthy,
				Message: "the restart got stuck and is taken back: ReplicaFailure is True, FailedCreate: exceeded quota: one"}},
		{"then the annotation is removed", func(m *situated) { m.seen(2, 1, 1); failed(m); m.givenUp() },
			outline{Template: map[string]*string{key: nil}}},
		{"or gets its old value", func(m *situated) { m.seen(2, 1, 1); m.givenUp(); m.s.Old = new("old") },
			outline{Template: map[string]*string{key: new("old")}}},
		{"it became complete at the last moment", func(m *situated) { m.seen(1, 1, 1); m.givenUp(); m.leaving() },
			outline{Annotations: clean, Stage: move.Done}},
		{"the time is just not over", func(m *situated) { m.seen(2, 1, 1); m.v.Now = m.s.At.Add(m.s.Limit) },
			outline{}},
		{"the time is over", func(m *situated) { m.seen(2, 1, 1); m.v.Now = m.s.At.Add(m.s.Limit + 1) },
			outline{GiveUp: true, Reason: schemas.ReasonRestartUnhealthy, Message: "the restart took more than 10m30s and is taken back: " +
				"a rollout is in progress: 1 of 1 pods are of the newest template, 2 are there"}},
		{"taken back, and the second pod is still there", func(m *situated) {
			m.givenUp()
			m.v.Deployment.Spec.Template.Annotations = nil
			m.seen(2, 1, 1)
		}, outline{}},
		{"taken back, and everything is as before", func(m *situated) {
			m.givenUp()
			m.v.Deployment.Spec.Template.Annotations = nil
			m.seen(1, 1, 1)
		}, outline{Annotations: clean, Stage: move.Undone, Reason: schemas.ReasonRestartNoRoom, Message: "full"}},
		{"taken back, and the record has no refusal", func(m *situated) {
			m.givenUp()
			m.s.Refusal, m.v.Deployment.Spec.Template.Annotations = nil, nil
			m.seen(1, 1, 1)
		}, outline{Annotations: clean, Stage: move.Undone, Reason: running, Message: "the restart was taken back"}},
		{"taken back, and the pod went by itself", func(m *situated) {
			m.givenUp()
			m.v.Deployment.Spec.Template.Annotations = nil
			m.seen(1, 1, 1)
			m.v.Pod = nil
		}, outline{Annotations: clean, Stage: move.Done}},
		{"taken back, and the controller is away for too long", func(m *situated) {
			m.givenUp()
			m.v.Deployment.Spec.Template.Annotations = nil
			m.v.Now = m.s.Back.Add(m.s.Limit)
		}, outline{Annotations: clean, Stage: move.Undone, Reason: schemas.ReasonRestartNoRoom, Message: "full"}},
		{"another client removed the annotation", func(m *situated) { m.v.Deployment.Spec.Template.Annotations = nil },
			outline{Annotations: clean, Stage: move.Undone, Reason: running, Message: taken}},
		{"another client removed everything, and the pod is gone", func(m *situated) {
			m.v.Deployment.Spec.Template.Annotations, m.v.Deployment.Annotations, m.v.Pod = nil, nil, nil
		}, outline{Stage: move.Done}},
		{"another client restarted it", func(m *situated) {
			m.v.Deployment.Spec.Template.Annotations[key] = "2027-01-01T00:00:00Z"
		}, outline{Annotations: clean, Stage: move.Undone, Reason: running, Message: taken}},
		{"another client restarted it during the undo", func(m *situated) {
			m.givenUp()
			m.v.Deployment.Spec.Template.Annotations[key] = "2027-01-01T00:00:00Z"
		}, outline{Annotations: clean, Stage: move.Undone, Reason: schemas.ReasonRestartNoRoom, Message: taken}},
		{"another client changed the template, and that got stuck", func(m *situated) {
			m.seen(2, 1, 1)
			failed(m)
			m.v.Deployment.Spec.Template.Spec.Containers = []corev1.Container{{Image: "next"}}
		}, outline{Annotations: clean, Stage: move.Undone, Reason: running, Message: foreign}},
		{"the marks of a later move are left alone", func(m *situated) {
			m.v.Deployment.Spec.Template.Annotations[key] = "2027-01-01T00:00:00Z"
			m.v.Deployment.Annotations[restartedAt] = "2027-01-01T00:00:00Z"
		}, outline{Stage: move.Undone, Reason: running, Message: taken}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := begunMove(restart)
			tt.change(&m)
			same(t, "decision", outlineOf(m.s, followRollout(m.s, m.v)), tt.want)
		})
	}
}

func TestSurgeProgress(t *testing.T) {
	const running = schemas.ReasonRestartRunning
	cheapened := func(m *situated) {
		m.v.Pod.Annotations = map[string]string{corev1.PodDeletionCost: cheapest, costBefore: "5"}
	}
	// returned returns the Deployment with its old number of replicas.
	returned := func(m *situated) {
		m.v.Deployment.Spec.Replicas = new(int32(1))
		delete(m.v.Deployment.Annotations, surgeReplicas)
	}
	at := begunMove(surge).s.value()
	back := map[string]*string{surgeReplicas: nil, restartedAt: &at}
	for _, tt := range []struct {
		name   string
		change func(*situated)
		want   outline
	}{
		{"first the pod becomes the cheapest", func(*situated) {},
			outline{Cost: &cost{Cost: new(cheapest), Before: new("")}}},
		{"the previous cost is remembered", func(m *situated) {
			m.v.Pod.Annotations = map[string]string{corev1.PodDeletionCost: "5"}
		}, outline{Cost: &cost{Cost: new(cheapest), Before: new("5")}}},
		{"the second pod is not available", func(m *situated) { cheapened(m); m.seen(2, 2, 1) },
			outline{}},
		{"the second pod is available: the budget is asked", func(m *situated) { cheapened(m); m.seen(2, 2, 2) },
			outline{Ask: true, Annotations: back, Replicas: 1, Phase: returning}},
		{"the pod went by itself", func(m *situated) { m.leaving(); m.seen(2, 2, 1) },
			outline{Annotations: back, Replicas: 1, Phase: returning}},
		{"the replica is taken back: the pod is being deleted", func(m *situated) { returned(m); m.leaving(); m.seen(1, 1, 1) },
			outline{Stage: move.Done}},
		{"and is gone", func(m *situated) { returned(m); m.v.Pod = nil; m.seen(1, 1, 1) },
			outline{Stage: move.Done}},
		{"and is still there", func(m *situated) { returned(m); cheapened(m); m.seen(2, 2, 2) },
			outline{}},
		{"and another one went in its place", func(m *situated) { returned(m); cheapened(m); m.seen(1, 1, 1) },
			outline{Cost: &cost{Cost: new("5")}, Stage: move.Undone, Reason: running,
				Message: "another pod was removed instead, because it was no longer ready"}},
		{"the time is over: first that is remembered", func(m *situated) { m.seen(2, 2, 1); m.v.Now = m.s.At.Add(m.s.Limit + 1) },
			outline{GiveUp: true, Reason: schemas.ReasonRestartUnhealthy, Message: "the surge took more than 10m0s and is taken back: " +
				"it has one replica more than 1 until a pod has gone; 1 of 2 are available"}},
		{"a budget held it until the time is over", func(m *situated) {
			m.seen(2, 2, 2)
			m.s.Blocked, m.v.Now = "the budget api needs 3 pods", m.s.At.Add(m.s.Limit+1)
		}, outline{GiveUp: true, Reason: schemas.ReasonRestartUnhealthy, Message: "the surge took more than 10m0s and is taken back: " +
			"it has one replica more than 1 until a pod has gone; 2 of 2 are available; " +
			"the API server did not allow the eviction of the pod: the budget api needs 3 pods"}},
		{"pods are refused", func(m *situated) { cheapened(m); m.seen(1, 1, 1); m.refuses(moment + 1) },
			outline{GiveUp: true, Reason: schemas.ReasonRestartUnhealthy,
				Message: "the surge got stuck and is taken back: ReplicaFailure is True, FailedCreate: exceeded quota: one"}},
		{"then the pod costs what it did", func(m *situated) { cheapened(m); m.givenUp(); m.seen(2, 2, 1) },
			outline{Cost: &cost{Cost: new("5")}}},
		{"then the replica is taken back", func(m *situated) { m.givenUp(); m.seen(2, 2, 1) },
			outline{Annotations: back, Replicas: 1}},
		{"then it is over", func(m *situated) { m.givenUp(); returned(m); m.seen(1, 1, 1) },
			outline{Stage: move.Undone, Reason: schemas.ReasonRestartNoRoom, Message: "full"}},
		{"a controller that is away for too long does it later", func(m *situated) {
			m.givenUp()
			returned(m)
			m.v.Now = m.s.At.Add(2*m.s.Limit + moment)
		}, outline{Stage: move.Undone, Reason: schemas.ReasonRestartNoRoom, Message: "full"}},
		{"another client scaled it up", func(m *situated) { cheapened(m); m.v.Deployment.Spec.Replicas = new(int32(3)) },
			outline{Annotations: map[string]*string{surgeReplicas: nil}, Cost: &cost{Cost: new("5")}, Stage: move.Undone, Reason: running,
				Message: "another client scaled the Deployment to 3 replicas during the surge from 1 to 2"}},
		{"another client scaled it down, and the pod is gone", func(m *situated) {
			m.v.Deployment.Spec.Replicas = new(int32(0))
			m.v.Pod = nil
		}, outline{Annotations: map[string]*string{surgeReplicas: nil}, Stage: move.Done}},
		{"another client removed the annotations, but not the replica", func(m *situated) {
			cheapened(m)
			m.seen(2, 2, 2)
			m.v.Deployment.Annotations = nil
		}, outline{Cost: &cost{Cost: new("5")}, Stage: move.Undone, Reason: running,
			Message: "another client removed the annotations of the surge; spec.replicas is 2"}},
		{"another client removed the annotations and the replica", func(m *situated) {
			returned(m)
			m.seen(1, 1, 1)
			m.v.Deployment.Annotations = nil
		}, outline{Stage: move.Undone, Reason: running,
			Message: "another client removed the annotations of the surge; spec.replicas is 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := begunMove(surge)
			tt.change(&m)
			same(t, "decision", outlineOf(m.s, followSurge(m.s, m.v)), tt.want)
		})
	}
}

func TestMoveTimeout(t *testing.T) {
	for _, tt := range []struct {
		name   string
		method schemas.Method
		change func(*candidate)
		want   time.Duration
	}{
		{"the policy's", restart, func(c *candidate) { c.Policy.Timeout = time.Minute }, time.Minute},
		{"the progress deadline and a moment", restart, func(*candidate) {}, 630 * time.Second},
		{"the deadline of each replica", restart, func(c *candidate) { c.Deployment = aDeployment(3) }, 1830 * time.Second},
		{"of a surge once", surge, func(c *candidate) { c.Deployment = aDeployment(3) }, 600 * time.Second},
		{"the default without a deadline", surge, func(c *candidate) {
			c.Deployment.Spec.ProgressDeadlineSeconds = nil
		}, 600 * time.Second},
		{"a day for no deadline", surge, func(c *candidate) {
			c.Deployment.Spec.ProgressDeadlineSeconds = new(int32(1<<31 - 1))
		}, 24 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := aCandidate(tt.method)
			tt.change(&c)
			same(t, "limit", limit(c), tt.want)
		})
	}
}

func TestDeletedDeploymentMove(t *testing.T) {
	gone := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartUnhealthy, Message: "deployment/shop/api was deleted"}
	for _, tt := range []struct {
		name   string
		begun  bool
		after  time.Duration
		noPod  bool
		stage  move.Stage
		reason *move.Refusal
	}{
		{"the pod is gone", true, 0, true, move.Done, nil},
		{"the pod will follow", true, 0, false, move.Working, nil},
		{"the move was canceled", true, 630 * time.Second, false, move.Undone, gone},
		{"nothing was begun, and the pod will follow", false, 0, false, move.Working, nil},
		{"nothing was begun, and the move was canceled", false, moment, false, move.Released, gone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := begunMove(restart)
			m.v.Deployment, m.v.Now = nil, m.s.At.Add(tt.after)
			if !tt.begun {
				m.s.Phase = planned
			}
			if tt.noPod {
				m.v.Pod = nil
			}
			got := deleted(m.s, m.v)
			same(t, "stage and refusal", []any{got.Stage, got.Refusal}, []any{tt.stage, tt.reason})
		})
	}
}

func TestNewRestartValue(t *testing.T) {
	c := aCandidate(restart)
	c.Policy.Annotation = "example.com/at"
	c.Deployment.Spec.Template.Annotations = map[string]string{"example.com/at": noon().Format(time.RFC3339Nano)}
	s := fresh(c)
	same(t, "what was there", *s.Old, "2026-11-03T12:00:00.00000025Z")
	same(t, "what will be there", s.value(), "2026-11-03T12:00:00.000000251Z")
}
