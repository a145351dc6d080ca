package restart

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// undo is what the annotation restart-undo says.
type undo struct {
	Annotation string  `json:"annotation"`
	Old        *string `json:"old"` // null: there was none
	// Back is when the old value was given back, because the rollout got stuck. Zero: it was not.
	Back time.Time `json:"back,omitzero"`
}

// text is the value of the annotation.
func (u undo) text() *string {
	text, err := json.Marshal(u)
	if err != nil { // every field has a JSON form
		return nil
	}
	s := string(text)
	return &s
}

// undoOf reads the annotation. A missing one, or one that somebody else wrote, is none.
func undoOf(s state, d *appsv1.Deployment) (undo, bool) {
	var u undo
	text := d.Annotations[restartUndo]
	if text == "" || d.Annotations[restartedAt] != s.value() || json.Unmarshal([]byte(text), &u) != nil {
		return undo{}, false
	}
	return u, true
}

// firstOf is the change that begins a move.
func firstOf(method schemas.Method, s state) change {
	value, pod := s.value(), s.Pod.Name+"/"+string(s.Pod.UID)
	c := change{Annotations: map[string]*string{restartedAt: &value, restartedFor: &pod}}
	if method == schemas.MethodSurge {
		before, more := fmt.Sprint(s.Replicas), s.Replicas+1
		c.Annotations[surgeReplicas], c.Replicas = &before, &more
		return c
	}
	c.Annotations[restartUndo] = undo{Annotation: s.Annotation, Old: s.Old}.text()
	c.Template = map[string]*string{s.Annotation: &value}
	return c
}

// followRollout decides what a step does about a rollout restart that has begun.
func followRollout(s state, v view) decision {
	d := v.Deployment
	value, has := d.Spec.Template.Annotations[s.Annotation]
	marked, mine := undoOf(s, d)
	switch {
	case s.Template != digest(d.Spec.Template, s.Annotation):
		return endRollout(s, v, "somebody else changed the template during the restart, and rolls out anew")
	case mine && !marked.Back.IsZero():
		return settleRollout(s, v, marked)
	case !has || value != s.value():
		return endRollout(s, v, "somebody else took the annotation "+s.Annotation+
			" away or changed it during the restart; a tool that keeps the template as it is should be told to ignore it")
	case complete(d) && v.going():
		return endRollout(s, v, "")
	case complete(d):
		return endRollout(s, v, "the rollout is complete, but the pod does not belong to the Deployment any more and runs on")
	}
	if why, is := stuck(d); is && d.Status.ObservedGeneration >= d.Generation {
		return takeBack(s, v, "the restart got stuck and was taken back: "+why)
	}
	if v.Now.After(s.At.Add(s.Limit)) {
		return takeBack(s, v, fmt.Sprintf("the restart took more than %s and was taken back: %s", s.Limit, situation(d)))
	}
	return decision{Then: working(s, situation(d))}
}

// takeBack gives the annotation its old value, so that the old ReplicaSet is the newest again.
func takeBack(s state, v view, why string) decision {
	back := undo{Annotation: s.Annotation, Old: s.Old, Back: v.Now.UTC().Round(0)}
	value := s.value()
	return decision{
		Change: &change{
			Annotations: map[string]*string{restartUndo: back.text(), restartedAt: &value},
			Template:    map[string]*string{s.Annotation: s.Old},
		},
		Back: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartUnhealthy, Message: why},
	}
}

// settleRollout waits until a rollout that was taken back is no more. It does not wait for ever: a controller that is away
// does it when it comes back.
func settleRollout(s state, v view, marked undo) decision {
	if !rolledOut(v.Deployment) && v.Now.Before(marked.Back.Add(s.Limit)) {
		return decision{Then: working(s, "the restart is being taken back: "+situation(v.Deployment))}
	}
	if s.Refusal != nil {
		return endRollout(s, v, s.Refusal.Message)
	}
	return endRollout(s, v, "the restart got stuck and was taken back")
}

// endRollout removes what is left of the move. words say why, if the pod still runs.
func endRollout(s state, v view, words string) decision {
	var last decision
	if _, mine := undoOf(s, v.Deployment); mine {
		last.Change = &change{Annotations: map[string]*string{restartUndo: nil}}
	}
	last.Then = ending(s, v, words)
	return last
}

// ending is the end of a move as the pod has it. words say what was not as planned, empty if all was.
func ending(s state, v view, words string) move.Progress {
	if !v.going() {
		refusal := move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning}
		if s.Refusal != nil {
			refusal = *s.Refusal
		}
		refusal.Message = words
		return move.Progress{Stage: move.Undone, State: s.encode(), Refusal: &refusal, Message: words}
	}
	message := "the pod is " + leave(v)
	if words != "" {
		message += "; " + words
	}
	return move.Progress{Stage: move.Done, State: s.encode(), Message: message}
}

// leave says how the pod of a view goes.
func leave(v view) string {
	switch {
	case v.Pod == nil:
		return "gone"
	case v.Pod.DeletionTimestamp != nil:
		return "being deleted"
	}
	return "at its end: it has " + strings.ToLower(string(v.Pod.Status.Phase))
}
