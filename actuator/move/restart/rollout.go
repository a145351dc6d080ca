package restart

import (
	"fmt"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// undo is the content of the annotation restart-undo.
type undo struct {
	Annotation string  `json:"annotation"`
	Old        *string `json:"old"` // null if there was none
}

// firstOf returns the change that begins a move.
func firstOf(s state) change {
	value, pod := s.value(), s.Pod.Name+"/"+string(s.Pod.UID)
	c := change{Annotations: map[string]*string{restartedAt: &value, restartedFor: &pod}}
	if s.Method == schemas.MethodSurge {
		before, more := fmt.Sprint(s.Replicas), s.Replicas+1
		c.Annotations[surgeReplicas], c.Replicas = &before, &more
		return c
	}
	c.Annotations[restartUndo] = new(string(move.Encode(undo{s.Annotation, s.Old})))
	c.Template = map[string]*string{s.Annotation: &value}
	return c
}

// followRollout decides the next step of a rollout restart.
func followRollout(s state, v view) decision {
	d := v.Deployment
	value, has := d.Spec.Template.Annotations[s.Annotation]
	ours := has && value == s.value()
	switch {
	case s.Template != digest(d.Spec.Template, s.Annotation):
		return endRollout(s, v, "another client changed the template during the restart, and it rolls out again")
	case !ours && s.Phase == takingBack && s.isOld(value, has):
		return settleRollout(s, v)
	case !ours:
		return endRollout(s, v, "another client removed or changed the annotation "+s.Annotation+
			" during the restart; configure a tool that restores the template to ignore it")
	case complete(d) && v.going():
		return endRollout(s, v, "")
	case complete(d):
		return endRollout(s, v, "the rollout is complete, but the pod does not belong to the Deployment any more and runs on")
	case s.Phase == takingBack: // with the old value, the old ReplicaSet is the newest again
		return decision{
			Change: &change{Template: map[string]*string{s.Annotation: s.Old}},
			Then:   working(s, soon),
		}
	}
	if why, is := s.overdue(v, "restart"); is {
		return giveUp(why)
	}
	return decision{Then: working(s, poll)}
}

// isOld reports whether the template annotation has its value from before the move.
func (s state) isOld(value string, has bool) bool {
	if s.Old == nil {
		return !has
	}
	return has && value == *s.Old
}

// settleRollout waits until an undone rollout has removed its pods, or until the time is over: a controller that is
// down does it later.
func settleRollout(s state, v view) decision {
	if !rolledOut(v.Deployment) && v.Now.Before(s.Back.Add(s.Limit)) {
		return decision{Then: working(s, poll)}
	}
	words := "the restart was taken back"
	if s.Refusal != nil { // each ledger record in this phase has one, unless it is damaged
		words = s.Refusal.Message
	}
	return endRollout(s, v, words)
}

// endRollout removes the annotation of the move. words describe a deviation from the plan, or are empty.
func endRollout(s state, v view, words string) decision {
	last := decision{Then: ending(s, v, words)}
	if a := v.Deployment.Annotations; a[restartUndo] != "" && a[restartedAt] == s.value() {
		last.Change = &change{Annotations: map[string]*string{restartUndo: nil}}
	}
	return last
}
