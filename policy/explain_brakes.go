package policy

import (
	"fmt"
	"time"
)

// brakes says what stops a loop and a storm.
func (t *text) brakes(b Brakes) {
	if b.Loop.Delay > 0 {
		t.line(0, "Leaves a workload alone on a node that its pods come back to after they were moved off it: for %v after the",
			b.Loop.Delay)
		t.line(0, "first return, twice as long after each further one, at most %v.", b.Loop.MaxDelay)
	}
	if b.Storm.Nodes > 0 {
		t.line(0, "Moves nothing while %d%% or more of the nodes, at least %d, are not ready or got a taint that keeps pods away",
			b.Storm.Nodes, StormLeast)
		t.line(0, "in the last %v.", StormMemory)
	}
	switch pending := b.Storm.Pending; {
	case pending == 1:
		t.line(0, "Moves nothing while a replacement has not become ready for %v.", b.Storm.PendingFor)
	case pending > 1:
		t.line(0, "Moves nothing while %d or more replacements have not become ready for %v.", pending, b.Storm.PendingFor)
	}
	if b.Storm.Failures > 0 {
		t.line(0, "Moves nothing for %v when %d%% or more of the last %d evictions failed, for other reasons than a budget.",
			StormPause, b.Storm.Failures, StormCalls)
	}
}

// restart says which workloads make a replacement first, and how.
func (t *text) restart(r Restart) {
	switch r.Workloads {
	case RestartAnnotated:
		t.line(0, "A Deployment with one replica makes a replacement before its pod goes if the annotation %s on it", RestartMark)
		t.line(0, `or its namespace is "true", "restart" or "surge":`)
	case RestartAll:
		t.line(0, "A Deployment with one replica makes a replacement before its pod goes unless the annotation %s on it", RestartMark)
		t.line(0, `or its namespace is "false":`)
	default:
		return
	}
	t.item(1, r.methodInWords())
	if r.BlockedByBudget {
		t.item(1, "one with more replicas does so, too, while a PodDisruptionBudget allows no disruption")
	}
	deadline := "the progress deadline of the Deployment"
	if r.Timeout != 0 {
		deadline = r.Timeout.String()
	}
	t.item(1, "what it changed is taken back when the replacement is not available within "+deadline)
	t.item(1, "the Deployment is not restarted again for "+r.cooldown().String())
	if r.Otherwise == OtherwiseSkip {
		t.item(1, "a pod whose Deployment cannot do so stays")
	} else {
		t.item(1, "a pod whose Deployment cannot do so is evicted")
	}
}

func (r Restart) methodInWords() string {
	if r.Method == Surge {
		return "it has one replica more until that is available, then the pod is evicted"
	}
	annotation := r.Annotation
	if annotation == "" {
		annotation = DefaultRestartAnnotation
	}
	return fmt.Sprintf("the annotation %s of its pod template is changed, as kubectl rollout restart does", annotation)
}

func (r Restart) cooldown() time.Duration {
	if r.Cooldown == 0 {
		return DefaultRestartCooldown
	}
	return r.Cooldown
}
