package policy

import (
	"cmp"
	"time"
)

// Restart lets workloads make a replacement before a pod goes, instead of evicting it. It is about Deployments with one
// replica, which an eviction would stop for as long as the replacement takes to start. The zero value never does. [Parse]
// fills in what is empty, but for Timeout.
type Restart struct {
	// Workloads says which Deployments take part. Empty: none.
	Workloads RestartWorkloads
	// BlockedByBudget: Deployments with more replicas take part too, as long as a PodDisruptionBudget allows no disruption.
	BlockedByBudget bool
	// Method is how. Empty: [RolloutRestart].
	Method RestartMethod
	// Annotation is the key in the Deployment's pod template that is changed. Empty: [DefaultRestartAnnotation].
	Annotation string
	// Otherwise says what becomes of a pod whose Deployment takes part and cannot make a replacement first. Empty:
	// [OtherwiseEvict].
	Otherwise RestartOtherwise
	// Timeout is how long the replacement may take to become available until the move is taken back. 0: the progress
	// deadline of the Deployment.
	Timeout time.Duration
	// Cooldown is how long a Deployment is not restarted again. 0: [DefaultRestartCooldown].
	Cooldown time.Duration
	// AgainAlone lifts the Cooldown for Deployments with one replica. No file says so: it holds for pods that have to leave their
	// nodes whatever was before, since they would be stopped without a replacement, or not move at all.
	AgainAlone bool
}

// Preferred is the policy for a workload that is asked to make a replacement first: it takes part unless it is marked with
// "false", as does one with several replicas whose budget allows no disruption, and what cannot be moved so is evicted.
func (r Restart) Preferred() Restart {
	r.Workloads, r.BlockedByBudget, r.Otherwise = RestartAll, true, OtherwiseEvict
	r.Method = cmp.Or(r.Method, RolloutRestart)
	r.Annotation = cmp.Or(r.Annotation, DefaultRestartAnnotation)
	r.Cooldown = cmp.Or(r.Cooldown, DefaultRestartCooldown)
	return r
}

// RestartWorkloads says which Deployments take part in [Restart].
type RestartWorkloads string

// Which Deployments can take part. [RestartMark] on a Deployment or its namespace says so, the Deployment's own first.
const (
	RestartAnnotated RestartWorkloads = "Annotated" // those that are annotated with "true", "restart" or "surge"
	RestartAll       RestartWorkloads = "All"       // all that are not annotated with "false"
)

// RestartMethod is how a workload makes a replacement first.
type RestartMethod string

// The methods.
const (
	RolloutRestart RestartMethod = "RolloutRestart" // an annotation of the pod template is changed, as kubectl rollout restart does
	Surge          RestartMethod = "Surge"          // one replica more until it is available; then the pod goes
)

// RestartOtherwise is what is done with a pod whose workload cannot make a replacement first.
type RestartOtherwise string

// What can be done.
const (
	OtherwiseEvict RestartOtherwise = "Evict"
	OtherwiseSkip  RestartOtherwise = "Skip"
)

const (
	// RestartMark is the annotation on a Deployment or a namespace by which it takes part: "true" by the method of the
	// policy, "restart" or "surge" by that method, "false" not at all.
	RestartMark = "rehome.dev/restart"
	// DefaultRestartAnnotation is the key that kubectl uses, which tools that compare templates are often told to ignore.
	DefaultRestartAnnotation = "kubectl.kubernetes.io/restartedAt"
	// DefaultRestartCooldown is that long because each restart makes a revision, and reads configuration anew.
	DefaultRestartCooldown = 10 * time.Minute
)
