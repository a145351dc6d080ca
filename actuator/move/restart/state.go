package restart

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// defaultProgress is the progress deadline of a Deployment that names none.
	defaultProgress = 600 * time.Second
	// moment is what the controllers are given beyond a deadline.
	moment = 30 * time.Second
	day    = 24 * time.Hour
)

// state is what is remembered of a move from step to step. It is written before the first change.
type state struct {
	Pod        schemas.PodRef    `json:"pod"`
	Node       string            `json:"node"`
	Deployment schemas.ObjectRef `json:"deployment"`
	// Method is restart or surge.
	Method schemas.Method `json:"method"`
	// Policy is the one that the move was planned by.
	Policy policy.Restart `json:"policy"`
	// Version is the one of the Deployment that the first patch is for.
	Version string `json:"version"`
	// At is when the move was planned. It names the move on the Deployment.
	At time.Time `json:"at"`
	// Limit is how long the move may take until it is taken back, beside what the controller says.
	Limit time.Duration `json:"limit"`
	// Replicas is how many pods the Deployment wants.
	Replicas int32 `json:"replicas"`
	// Begun: the first patch was seen on the Deployment.
	Begun bool `json:"begun,omitempty"`

	// Refusal is why the move is taken back, Back since when. nil: it is not.
	Refusal *move.Refusal `json:"refusal,omitempty"`
	Back    time.Time     `json:"back,omitzero"`

	// Autoscaler is the name of the one that scales the Deployment of a surge. Empty: none.
	Autoscaler string `json:"autoscaler,omitempty"`
	// Returning: the replacement is available, and the replica more is given back.
	Returning bool `json:"returning,omitempty"`

	// Annotation is the key in the template that a rollout restart changes, Old its value before. nil: it had none.
	Annotation string  `json:"annotation,omitempty"`
	Old        *string `json:"old,omitempty"`
	// Template is a digest of the template without the annotation. Somebody else's change is seen by it.
	Template string `json:"template,omitempty"`
}

// value names the move: the RFC 3339 time in the annotations.
func (s state) value() string { return s.At.Format(time.RFC3339Nano) }

// fresh makes the state of a move that nothing was done for yet.
func fresh(c candidate) state {
	d := c.Deployment
	s := state{
		Pod:        schemas.PodRef{Namespace: c.Pod.Namespace, Name: c.Pod.Name, UID: c.Pod.UID},
		Node:       c.Pod.Spec.NodeName,
		Deployment: *refTo(d),
		Method:     c.Method,
		Policy:     c.Policy,
		Version:    d.ResourceVersion,
		At:         c.Now.UTC().Round(0),
		Limit:      limit(c),
		Replicas:   replicasOf(d),
	}
	if c.Method == schemas.MethodSurge {
		if len(c.Autoscalers) > 0 {
			s.Autoscaler = c.Autoscalers[0].Name
		}
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

// limit is how long the move of a candidate may take. Without one in the policy it is the progress deadline for each
// pod that is replaced, with a moment for the controller to say itself that it is over.
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

// encode makes what the caller remembers.
func (s state) encode() move.State {
	text, err := json.Marshal(s)
	if err != nil { // every field has a JSON form
		return nil
	}
	return text
}

// decode reads what encode wrote.
func decode(text move.State) (state, error) {
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("state of a move: %w", err)
	}
	return s, nil
}

// began says whether the first patch of the move is on the Deployment, or was once.
func (s state) began(d *appsv1.Deployment) bool {
	return s.Begun || d.Annotations[restartedAt] == s.value()
}
