package restart

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// undo is what the annotation restart-undo says.
type undo struct {
	Annotation string  `json:"annotation"`
	Old        *string `json:"old"` // null: there was none
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

// firstOf is the change that begins a move.
func firstOf(s state) change {
	value, pod := s.value(), s.Pod.Name+"/"+string(s.Pod.UID)
	c := change{Annotations: map[string]*string{restartedAt: &value, restartedFor: &pod}}
	if s.Method == schemas.MethodSurge {
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
	ours := has && value == s.value()
	switch {
	case s.Template != digest(d.Spec.Template, s.Annotation):
		return endRollout(s, v, "somebody else changed the template during the restart, and rolls out anew")
	case !ours && s.Refusal != nil && s.isOld(value, has):
		return settleRollout(s, v)
	case !ours:
		return endRollout(s, v, "somebody else took the annotation "+s.Annotation+
			" away or changed it during the restart; a tool that keeps the template as it is should be told to ignore it")
	case complete(d) && v.going():
		return endRollout(s, v, "")
	case complete(d):
		return endRollout(s, v, "the rollout is complete, but the pod does not belong to the Deployment any more and runs on")
	case s.Refusal != nil:
		return takeBack(s)
	}
	if why, is := stuck(d); is && d.Status.ObservedGeneration >= d.Generation {
		return giveUp("the restart got stuck and is taken back: " + why)
	}
	if v.Now.After(s.At.Add(s.Limit)) {
		return giveUp(fmt.Sprintf("the restart took more than %s and is taken back: %s", s.Limit, situation(d)))
	}
	return decision{Then: working(s, situation(d))}
}

// isOld says whether that is what the annotation of the template was before.
func (s state) isOld(value string, has bool) bool {
	if s.Old == nil {
		return !has
	}
	return has && value == *s.Old
}

// giveUp decides that a move is to be taken back. That is remembered before it is done, so that it is known afterwards
// who did it and why.
func giveUp(why string) decision {
	return decision{GiveUp: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartUnhealthy, Message: why}}
}

// takeBack gives the annotation its old value, so that the old ReplicaSet is the newest again.
func takeBack(s state) decision {
	return decision{
		Change: &change{Template: map[string]*string{s.Annotation: s.Old}},
		Then:   soonAgain(s, s.Refusal.Message),
	}
}

// settleRollout waits until a rollout that was taken back is no more. It does not wait for ever: a controller that is
// away does it when it comes back.
func settleRollout(s state, v view) decision {
	if !rolledOut(v.Deployment) && v.Now.Before(s.Back.Add(s.Limit)) {
		return decision{Then: working(s, s.Refusal.Message)}
	}
	return endRollout(s, v, s.Refusal.Message)
}

// endRollout removes what is left of the move. words say what was not as planned, empty if all was.
func endRollout(s state, v view, words string) decision {
	last := decision{Then: ending(s, v, words)}
	if a := v.Deployment.Annotations; a[restartUndo] != "" && a[restartedAt] == s.value() {
		last.Change = &change{Annotations: map[string]*string{restartUndo: nil}}
	}
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
