package maintenance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// The reasons of Kubernetes Events about maintenances.
const (
	stageBegun     = "StageBegun"
	nodeCordoned   = "NodeCordoned"
	cordonedAgain  = "CordonedAgain"
	nodeDrained    = "NodeDrained"
	nodeHeld       = "NodeDeadline"
	nodeReturned   = "NodeReturned"
	nodeTaken      = "NodeTaken"
	stepFailed     = "StepFailed"
	refusedEvent   = "Refused"
	blockedEvent   = "Blocked"
	maintainAction = "Maintained"
)

// blockedLong is after what time a pod that cannot move is told of, and blockedAgain how often at most for one node. failedAgain
// is how often a step is told of that goes on failing.
const (
	blockedLong  = 10 * time.Minute
	blockedAgain = time.Hour
	failedAgain  = time.Hour
)

// recorder writes Kubernetes Events about maintenances, in the background. Its methods may be called from many goroutines.
type recorder struct {
	c           *Controller
	broadcaster events.EventBroadcaster // nil: none are written
	events      events.EventRecorder

	mu      sync.Mutex
	blocked map[string]time.Time // when the last event about a blocked pod of a node was, by maintenance and node
	failing map[string]time.Time // when the last event about a failing step was, by maintenance, node, and action
}

// notice is a Kubernetes Event.
type notice struct {
	regarding, related *corev1.ObjectReference
	kind, reason, text string
	action             string // empty: [maintainAction]
}

func newRecorder(c *Controller) *recorder {
	return &recorder{c: c, blocked: map[string]time.Time{}, failing: map[string]time.Time{}}
}

// start begins to write. stop ends it.
func (r *recorder) start() (stop func()) {
	if r.c.cfg.DryRun || r.c.cfg.Client == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.broadcaster = events.NewBroadcaster(&events.EventSinkImpl{Interface: r.c.cfg.Client.EventsV1()})
	if err := r.broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		r.c.log.Error("Kubernetes Events are not recorded", "error", err)
	}
	r.events = r.broadcaster.NewRecorder(scheme.Scheme, "rehome")
	return func() {
		r.broadcaster.Shutdown()
		cancel()
	}
}

// maxNote is the longest note in bytes that the API server takes.
const maxNote = 1024

func (r *recorder) write(n notice) {
	if r.events == nil {
		return
	}
	var related runtime.Object // an interface that holds no pointer
	if n.related != nil {
		related = n.related
	}
	if len(n.text) > maxNote {
		n.text = strings.ToValidUTF8(n.text[:maxNote-len("…")], "") + "…"
	}
	r.events.Eventf(n.regarding, related, n.kind, n.reason, cmp.Or(n.action, maintainAction), "%s", n.text)
}

// report logs, counts, and writes as Kubernetes Events how a decision was carried out.
func (s *session) report(d plan.Decision, r apply.Result, err error) {
	log := s.log.With("maintenance", d.Name, "dryRun", s.cfg.DryRun)
	switch {
	case r.Dropped != "":
		log.Debug("maintenance has changed, deciding again", "why", r.Dropped)
	case r.Wrote:
		log.Info("maintenance", "summary", d.Status.Summary.Nodes, "message", d.Status.Summary.Message)
	}
	for _, n := range r.Nodes {
		if n.Outcome != apply.Unchanged && n.Outcome != apply.Failed {
			log.Info("maintenance step", "node", n.Name, "action", n.Action, "outcome", n.Outcome, "message", n.Message)
		}
	}
	failed := s.events.newlyFailed(d, r)
	for _, n := range failed {
		log.Warn("step of a maintenance failed, trying again", "node", n.Name, "action", n.Action, "error", n.Err)
	}
	s.metrics.observe(d, r, err)
	if r.Dropped != "" {
		return
	}
	list := append(stepEvents(d, r), failedEvents(d, failed)...)
	if r.Wrote {
		list = append(list, statusEvents(d, r)...)
	}
	for _, n := range append(list, s.events.blockedEvents(d)...) {
		s.events.write(n)
	}
}

// maintenanceReference is the maintenance, or of one that is no object of the API server its node.
func maintenanceReference(s plan.Decision) *corev1.ObjectReference {
	if node, is := schemas.InTable(s.Name); is {
		i := slices.IndexFunc(s.Status.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Name == node })
		if i < 0 {
			return nodeReference(node, "")
		}
		return nodeReference(node, s.Status.Nodes[i].UID)
	}
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: "NodeMaintenance", Name: s.Name, UID: s.UID,
	}
}

func nodeReference(name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

// onBoth is an Event about a node on it and on its maintenance, if that is an object. The text follows the name of the node on
// the second one.
func onBoth(s plan.Decision, node *corev1.ObjectReference, kind, reason, text string) []notice {
	onNode := notice{regarding: node, related: maintenanceReference(s), kind: kind, reason: reason,
		text: text + " (maintenance " + s.Name + ")"}
	if _, is := schemas.InTable(s.Name); is {
		return []notice{onNode}
	}
	return []notice{onNode, {
		regarding: maintenanceReference(s), related: node, kind: kind, reason: reason, text: "node " + node.Name + ": " + text,
	}}
}

// stepEvents tells of the nodes that were changed, and of those that another maintenance holds.
func stepEvents(s plan.Decision, r apply.Result) []notice {
	why := ""
	if r.Before != nil {
		why = r.Before.Spec.Reason
	}
	var list []notice
	for _, n := range r.Nodes {
		node := nodeReference(n.Name, n.UID)
		switch {
		case n.Outcome == apply.Taken:
			list = append(list, notice{regarding: maintenanceReference(s), related: node, kind: corev1.EventTypeWarning,
				reason: nodeTaken, text: "node " + n.Name + " is not cordoned: " + n.Message})
		case n.Outcome != apply.Changed:
		case n.Again:
			list = append(list, onBoth(s, node, corev1.EventTypeWarning, cordonedAgain,
				"somebody has uncordoned the node while it is maintained; it is cordoned again: "+why)...)
		case n.Action == schemas.NodeCordon:
			list = append(list, onBoth(s, node, corev1.EventTypeNormal, nodeCordoned, after("cordoned: "+why, n.Message))...)
		case n.Action == schemas.NodeReturn:
			list = append(list, onBoth(s, node, corev1.EventTypeNormal, nodeReturned, after("given back", n.Message))...)
		}
	}
	return list
}

// newlyFailed are the steps that have failed and did not when they were tried last, and once in failedAgain those that still do.
func (r *recorder) newlyFailed(s plan.Decision, result apply.Result) []apply.Done {
	now := r.c.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.failing, func(_ string, told time.Time) bool { return now.Sub(told) >= failedAgain })
	var list []apply.Done
	for _, n := range result.Nodes {
		k := fmt.Sprintf("%s/%s/%s", s.UID, n.Name, n.Action)
		if !hasFailed(n) {
			delete(r.failing, k)
			continue
		}
		if _, told := r.failing[k]; !told {
			r.failing[k] = now
			list = append(list, n)
		}
	}
	return list
}

func hasFailed(n apply.Done) bool { return n.Err != nil }

// failedEvents tells of steps that have failed.
func failedEvents(s plan.Decision, failed []apply.Done) []notice {
	var list []notice
	for _, n := range failed {
		text := fmt.Sprintf("%s failed, and is tried again: %v", n.Action, n.Err)
		list = append(list, onBoth(s, nodeReference(n.Name, n.UID), corev1.EventTypeWarning, stepFailed, text)...)
	}
	return list
}

func after(text, more string) string {
	if more == "" {
		return text
	}
	return text + "; " + more
}

// statusEvents tells what a new status says that the one before did not.
func statusEvents(s plan.Decision, r apply.Result) []notice {
	var list []notice
	was, why := r.Before.Status, r.Before.Spec.Reason
	for _, stage := range s.Status.Stages {
		if !slices.ContainsFunc(was.Stages, func(x v1alpha1.StageTime) bool { return x.Stage == stage.Stage }) {
			// Events that differ in nothing but their text become one: the action tells the stages apart.
			list = append(list, notice{regarding: maintenanceReference(s), kind: corev1.EventTypeNormal, reason: stageBegun,
				action: string(stage.Stage), text: fmt.Sprintf("%s begins: %s", stage.Stage, why)})
		}
	}
	if text, before := refusal(s.Status), refusal(was); text != "" && text != before {
		list = append(list, notice{regarding: maintenanceReference(s), kind: corev1.EventTypeWarning, reason: refusedEvent, text: text})
	}
	for _, n := range s.Status.Nodes {
		if i := slices.IndexFunc(was.Nodes, func(x v1alpha1.NodeStatus) bool { return x.Name == n.Name }); i >= 0 &&
			was.Nodes[i].Stage == n.Stage {
			continue
		}
		node := nodeReference(n.Name, n.UID)
		switch n.Stage {
		case v1alpha1.IsDrained:
			list = append(list, onBoth(s, node, corev1.EventTypeNormal, nodeDrained, "drained: "+why)...)
		case v1alpha1.Held:
			list = append(list, onBoth(s, node, corev1.EventTypeWarning, nodeHeld, after("its deadline has passed", n.Message))...)
		default:
		}
	}
	return list
}

// refusal is why a maintenance is not accepted. Empty: it is.
func refusal(s v1alpha1.NodeMaintenanceStatus) string {
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.Accepted && c.Status == "False" {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// blockedEvents tells of nodes with a pod that could not move for long, each once an hour at most.
func (r *recorder) blockedEvents(s plan.Decision) []notice {
	now := r.c.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, last := range r.blocked {
		if now.Sub(last) >= blockedAgain {
			delete(r.blocked, k)
		}
	}
	var list []notice
	for _, n := range s.Status.Nodes {
		i := slices.IndexFunc(n.Blocked, func(b v1alpha1.BlockedPod) bool {
			return b.Since != nil && now.Sub(b.Since.Time) >= blockedLong
		})
		k := string(s.UID) + "/" + n.Name
		if _, told := r.blocked[k]; i < 0 || told {
			continue
		}
		r.blocked[k] = now
		b := n.Blocked[i]
		text := fmt.Sprintf("pod %s/%s cannot move since %s: %s", b.Namespace, b.Name, b.Since.UTC().Format(time.RFC3339), b.Reason)
		list = append(list, notice{regarding: maintenanceReference(s), related: nodeReference(n.Name, n.UID),
			kind: corev1.EventTypeWarning, reason: blockedEvent, text: "node " + n.Name + ": " + after(after(text, b.By), b.Message)})
	}
	return list
}
