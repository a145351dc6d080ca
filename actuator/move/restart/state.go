package restart

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// defaultProgress is the progress deadline of a Deployment that has none.
	defaultProgress = 600 * time.Second
	// moment is the time that controllers have beyond a deadline.
	moment = 30 * time.Second
	day    = 24 * time.Hour
)

// phase is how far a move is.
type phase string

const (
	planned    phase = "Planned"    // the first change is not made, or its answer was lost
	waiting    phase = "Waiting"    // for the replacement
	returning  phase = "Returning"  // of a surge: the Deployment has its replicas back, and the pod goes
	takingBack phase = "TakingBack" // Refusal says why
)

// state is the part of the ledger record that the method reads.
type state struct {
	Phase      phase             `json:"phase"`
	Pod        schemas.PodRef    `json:"pod"`
	Deployment schemas.ObjectRef `json:"deployment"`
	// Method is restart or surge, Policy the one that the move was planned by.
	Method schemas.Method `json:"method"`
	Policy policy.Restart `json:"policy"`
	// Version is the one of the Deployment that the first patch is for.
	Version string `json:"version"`
	// At is the time of the plan. It identifies the move on the Deployment.
	At time.Time `json:"at"`
	// Limit is how long the move may take until it is taken back.
	Limit time.Duration `json:"limit"`
	// Replicas is how many pods the Deployment wants.
	Replicas int32 `json:"replicas"`
	// Refusal is why the move is taken back, Back since when.
	Refusal *move.Refusal `json:"refusal,omitempty"`
	Back    time.Time     `json:"back,omitzero"`

	// Annotation is the key in the template that a rollout restart changes, Old its value before. nil: it had none.
	Annotation string  `json:"annotation,omitempty"`
	Old        *string `json:"old,omitempty"`
	// Template is a digest of the template without the annotation. A change by another client is seen by it.
	Template string `json:"template,omitempty"`
}

// value identifies the move: the RFC 3339 time in the annotations.
func (s state) value() string { return s.At.Format(time.RFC3339Nano) }

// words describe the first change.
func (s state) words() string {
	if s.Method == schemas.MethodSurge {
		return "one replica more for " + s.Deployment.String()
	}
	return "rollout restart of " + s.Deployment.String()
}

// takeBack is the progress of a move that is taken back from the next step on.
func (s state) takeBack(why *move.Refusal, now time.Time) move.Progress {
	s.Phase, s.Refusal, s.Back = takingBack, why, now.UTC().Round(0)
	return working(s, why.Message, soon)
}

// fresh makes the state of a move that nothing was done for yet.
func fresh(c candidate) state {
	d := c.Deployment
	s := state{
		Phase:      planned,
		Pod:        schemas.PodRef{Namespace: c.Pod.Namespace, Name: c.Pod.Name, UID: c.Pod.UID},
		Deployment: schemas.ObjectRef{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, UID: d.UID},
		Method:     c.Method,
		Policy:     c.Policy,
		Version:    d.ResourceVersion,
		At:         c.Now.UTC().Round(0),
		Limit:      limit(c),
		Replicas:   replicasOf(d),
	}
	if c.Method == schemas.MethodSurge {
		return s
	}
	s.Annotation = c.Policy.Annotation
	if s.Annotation == "" {
		s.Annotation = policy.DefaultRestartAnnotation
	}
	if old, has := d.Spec.Template.Annotations[s.Annotation]; has {
		s.Old = &old
		if old == s.value() { // only a new value rolls out
			s.At = s.At.Add(time.Nanosecond)
		}
	}
	s.Template = digest(d.Spec.Template, s.Annotation)
	return s
}

// limit is how long the move of a candidate may take. Without one in the policy it is the progress deadline for each pod that is
// replaced, with a moment for the controller to report that itself.
func limit(c candidate) time.Duration {
	if c.Policy.Timeout > 0 {
		return c.Policy.Timeout
	}
	progress := defaultProgress
	if seconds := c.Deployment.Spec.ProgressDeadlineSeconds; seconds != nil {
		progress = min(time.Duration(*seconds)*time.Second, day) // the largest number stands for no deadline
	}
	if c.Method == schemas.MethodSurge {
		return progress
	}
	return progress*time.Duration(min(replicasOf(c.Deployment), 1000)) + moment
}

// digest is the same for templates that differ in that annotation only.
func digest(template corev1.PodTemplateSpec, annotation string) string {
	template = *template.DeepCopy()
	delete(template.Annotations, annotation)
	text, err := json.Marshal(template)
	if err != nil { // such a template cannot have come from the API server
		return err.Error()
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (s state) encode() move.State {
	text, err := json.Marshal(s)
	if err != nil { // every field has a JSON form
		return nil
	}
	return text
}

func decode(text move.State) (state, error) {
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("decode the state of a restart: %w", err)
	}
	return s, nil
}
