package policy

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Restart lets workloads make a replacement before a pod goes, instead of evicting it. It is about Deployments with one
// replica, which an eviction would stop for as long as the replacement takes to start. The zero value never does.
type Restart struct {
	// Workloads says which Deployments take part. Empty: none.
	Workloads RestartWorkloads `json:"workloads" enum:"Annotated,All" required:"true"`
	// BlockedByBudget: Deployments with more replicas take part too, as long as a PodDisruptionBudget allows no disruption.
	BlockedByBudget bool `json:"blockedByBudget"`
	// Method is how. Empty: [RolloutRestart].
	Method RestartMethod `json:"method" enum:"RolloutRestart,Surge"`
	// Annotation is the key in the Deployment's pod template that is changed. Empty: [DefaultRestartAnnotation].
	Annotation string `json:"annotation"`
	// Otherwise is for a pod whose Deployment takes part and cannot make a replacement first. Empty:
	// [OtherwiseEvict].
	Otherwise RestartOtherwise `json:"otherwise" enum:"Evict,Skip"`
	// Timeout is how long the replacement may take to become available until the move is taken back. 0: the progress
	// deadline of the Deployment.
	Timeout time.Duration `json:"timeout" above:"0" max:"24h0m0s"`
	// Cooldown is how long a Deployment is not restarted again. 0: [DefaultRestartCooldown].
	Cooldown time.Duration `json:"cooldown" min:"0" max:"24h0m0s"`
	// AgainAlone lifts the Cooldown for Deployments with one replica. No file sets it: it holds for pods that have to leave
	// their nodes in any case, since they would be stopped without a replacement, or not move at all.
	AgainAlone bool `json:"-"`
}

// RestartWorkloads says which Deployments take part in [Restart].
type RestartWorkloads string

// The Deployments that take part. [RestartMark] on a Deployment or its namespace decides, the Deployment's own first.
const (
	RestartAnnotated RestartWorkloads = "Annotated" // Deployments annotated with "true", "restart" or "surge"
	RestartAll       RestartWorkloads = "All"       // all Deployments not annotated with "false"
)

// RestartMethod is how a workload makes a replacement first.
type RestartMethod string

// The methods.
const (
	RolloutRestart RestartMethod = "RolloutRestart" // an annotation of the pod template is changed, as kubectl rollout restart does
	Surge          RestartMethod = "Surge"          // one replica more until it is available; then the pod goes
)

// RestartOtherwise is the fate of a pod whose workload cannot make a replacement first.
type RestartOtherwise string

// The two things that can be done.
const (
	OtherwiseEvict RestartOtherwise = "Evict"
	OtherwiseSkip  RestartOtherwise = "Skip"
)

const (
	// RestartMark is the annotation on a Deployment or a namespace by which it takes part: "true" by the method of the
	// policy, "restart" or "surge" by that method, "false" not at all.
	RestartMark = "rehome.dev/restart"
	// DefaultRestartAnnotation is the key of kubectl, which tools that compare templates often ignore.
	DefaultRestartAnnotation = "kubectl.kubernetes.io/restartedAt"
	// DefaultRestartCooldown is that long because each restart makes a revision, and reads configuration anew.
	DefaultRestartCooldown = 10 * time.Minute
)

// Preferred is the policy for a workload that is asked to make a replacement first: it takes part unless it is marked with
// "false", as does one with several replicas whose budget allows no disruption. Other pods are evicted.
func (r Restart) Preferred() Restart {
	r.Workloads, r.BlockedByBudget, r.Otherwise = RestartAll, true, OtherwiseEvict
	r.Method = cmp.Or(r.Method, RolloutRestart)
	r.Annotation = cmp.Or(r.Annotation, DefaultRestartAnnotation)
	r.Cooldown = cmp.Or(r.Cooldown, DefaultRestartCooldown)
	return r
}

// SetDefaults fills in the defaults of a file that has the section.
func (r *Restart) SetDefaults() {
	r.Method, r.Annotation, r.Otherwise = RolloutRestart, DefaultRestartAnnotation, OtherwiseEvict
	r.Cooldown = DefaultRestartCooldown
}

// Complete makes a cooldown of 0 the default.
func (r *Restart) Complete() { r.Cooldown = cmp.Or(r.Cooldown, DefaultRestartCooldown) }

// Validate checks the values; each error is a *[FieldError].
func (r Restart) Validate() error {
	if len(validation.IsQualifiedName(r.Annotation)) > 0 {
		return &FieldError{Field: "annotation", Value: r.Annotation, Reason: "is not a key", Right: "write NAME or PREFIX/NAME"}
	}
	return nil
}
