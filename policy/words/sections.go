package words

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// brakes says what stops a loop and a storm.
func (t *text) brakes(b policy.Brakes) {
	if b.Loop.Delay > 0 {
		t.line(0, "Leaves a workload alone on a node that its pods come back to after they were moved off it: for %v after the",
			b.Loop.Delay)
		t.line(0, "first return, twice as long after each further one, at most %v.", b.Loop.MaxDelay)
	}
	if b.Storm.Nodes > 0 {
		t.line(0, "Moves nothing while %d%% or more of the nodes, at least %d, are not ready or got a taint that keeps pods away",
			b.Storm.Nodes, policy.StormLeast)
		t.line(0, "in the last %v.", policy.StormMemory)
	}
	switch pending := b.Storm.Pending; {
	case pending == 1:
		t.line(0, "Moves nothing while a replacement has not become ready for %v.", b.Storm.PendingFor)
	case pending > 1:
		t.line(0, "Moves nothing while %d or more replacements have not become ready for %v.", pending, b.Storm.PendingFor)
	}
	if b.Storm.Failures > 0 {
		t.line(0, "Moves nothing for %v when %d%% or more of the last %d evictions failed, for other reasons than a budget.",
			policy.StormPause, b.Storm.Failures, policy.StormCalls)
	}
}

// restart says which workloads make a replacement first, and how.
func (t *text) restart(r policy.Restart) {
	switch r.Workloads {
	case policy.RestartAnnotated:
		t.line(0, "A Deployment with one replica makes a replacement before its pod goes if the annotation %s on it", policy.RestartMark)
		t.line(0, `or its namespace is "true", "restart" or "surge":`)
	case policy.RestartAll:
		t.line(0, "A Deployment with one replica makes a replacement before its pod goes unless the annotation %s on it", policy.RestartMark)
		t.line(0, `or its namespace is "false":`)
	default:
		return
	}
	t.item(1, method(r))
	if r.BlockedByBudget {
		t.item(1, "one with more replicas does so, too, while a PodDisruptionBudget allows no disruption")
	}
	deadline := "the progress deadline of the Deployment"
	if r.Timeout != 0 {
		deadline = r.Timeout.String()
	}
	t.item(1, "what it changed is taken back when the replacement is not available within "+deadline)
	t.item(1, "the Deployment is not restarted again for "+cooldown(r).String())
	if r.Otherwise == policy.OtherwiseSkip {
		t.item(1, "a pod whose Deployment cannot do so stays")
	} else {
		t.item(1, "a pod whose Deployment cannot do so is evicted")
	}
}

func method(r policy.Restart) string {
	if r.Method == policy.Surge {
		return "it has one replica more until that is available, then the pod is evicted"
	}
	annotation := r.Annotation
	if annotation == "" {
		annotation = policy.DefaultRestartAnnotation
	}
	return fmt.Sprintf("the annotation %s of its pod template is changed, as kubectl rollout restart does", annotation)
}

func cooldown(r policy.Restart) time.Duration {
	if r.Cooldown == 0 {
		return policy.DefaultRestartCooldown
	}
	return r.Cooldown
}

// rate says how fast pods are moved.
func (t *text) rate(r policy.Rate) {
	t.line(0, "Moves at most %s in the long run, and %d at once after a pause.", perSecond(r.EvictionsPerSecond), r.Burst)
	if n := r.PerNamespace; n != nil {
		t.line(0, "Out of one namespace it moves at most %s in the long run, and %d at once after a pause.",
			perSecond(n.EvictionsPerSecond), n.Burst)
	}
}

func perSecond(rate float64) string {
	if rate >= 1 {
		return fmt.Sprintf("%g pods a second", rate)
	}
	return fmt.Sprintf("one pod in %v", time.Duration(float64(time.Second)/rate).Round(time.Millisecond))
}

// bound is a number of pods that is not exceeded, and which pods it counts, as in " off one node".
type bound struct {
	most *uint
	of   string
}

// limits says how many pods may be moved.
func (t *text) limits(l policy.Limits) {
	within := []bound{{l.PerNode, " off one node"}, {l.PerNamespace, " out of one namespace"}, {l.Total, ""}}
	f := l.InFlight
	atOnce := []bound{
		{f.PerNode, " off one node"}, {f.PerNamespace, " out of one namespace"}, {f.PerWorkload, " of one workload"}, {f.Total, ""},
	}
	for _, b := range append(within, atOnce...) {
		if b.most != nil && *b.most == 0 {
			t.line(0, "Moves no pod at all: a limit is 0.")
			return
		}
	}
	t.bounds(within, fmt.Sprintf("in any %v", l.Over()))
	t.bounds(atOnce, "at a time, each until its replacement is ready")
	t.unavailable(l)
	if l.Pause != 0 {
		t.line(0, "Waits at least %v between two pods of one workload.", l.Pause)
	}
}

func (t *text) bounds(bounds []bound, when string) {
	for _, b := range bounds {
		switch {
		case b.most == nil:
		case *b.most == 1:
			t.line(0, "Moves at most one pod%s %s; others wait.", b.of, when)
		default:
			t.line(0, "Moves at most %d pods%s %s; others wait.", *b.most, b.of, when)
		}
	}
}

// unavailable says how many pods of a workload without a budget may be missing.
func (t *text) unavailable(l policy.Limits) {
	const no = "of a workload without a PodDisruptionBudget"
	share := policy.DefaultUnavailable()
	if l.Unavailable != nil {
		share = *l.Unavailable
	}
	switch {
	case share == intstr.FromInt32(0), share == intstr.FromString("0%"):
		t.line(0, "Moves no pod %s.", no)
	case share == intstr.FromInt32(1):
		t.line(0, "At most one pod %s may be unavailable at once.", no)
	case share.Type == intstr.Int:
		t.line(0, "At most %d pods %s may be unavailable at once.", share.IntVal, no)
	default:
		t.line(0, "At most %s of the pods %s, and always one, may be unavailable at once.", share.StrVal, no)
	}
}

// maintenance says what a maintenance of nodes does otherwise than the profiles do. Nothing: nothing was written about it.
func (t *text) maintenance(m policy.Maintenance) {
	if !m.RestartAsUsual() && len(m.Protect) == 0 && len(m.Start) == 0 {
		return
	}
	t.line(0, "When nodes are maintained,")
	if m.RestartAsUsual() {
		t.item(1, "replacements come first only where they do otherwise")
	}
	if len(m.Protect) > 0 {
		t.item(1, "pods stay that are protected by "+listed(m.Protect))
	}
	for _, s := range m.Start {
		t.item(1, "another program begins it by the "+s.String()+" of a node")
	}
}

// asking says who may ask for what.
func (t *text) asking(r *policy.Requests) {
	switch {
	case r == nil:
		return
	case len(r.Senders) == 0:
		t.line(0, "Nobody may ask for pods to be moved.")
		return
	}
	t.line(0, "Asked for at most %d pods at once, moves pods for", r.MaxPods)
	for _, s := range r.Senders {
		t.item(1, sender(s))
	}
}

func sender(s policy.Sender) string {
	words := []string{s.Name}
	if len(s.Actions) > 0 {
		words = append(words, "only to "+joined(s.Actions))
	}
	if len(s.Namespaces) > 0 {
		words = append(words, "of the namespaces "+joined(s.Namespaces))
	}
	if s.Nodes {
		words = append(words, "whole nodes too")
	}
	if len(s.Override) > 0 {
		words = append(words, "overriding "+strings.ReplaceAll(joined(s.Override), policy.AnyRule, "every rule"))
	}
	return strings.Join(append(words, fmt.Sprintf("%d requests a minute and %d open at once", s.PerMinute, s.Open)), ", ")
}

func joined[T string | schemas.RequestAction](list []T) string {
	var words []string
	for _, w := range list {
		words = append(words, string(w))
	}
	return strings.Join(words, " and ")
}
