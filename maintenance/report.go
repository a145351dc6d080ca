package maintenance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// blockedLong is how long a pod cannot move before there is an Event about it.
	blockedLong = 10 * time.Minute
	// repeatAfter is how often there is an Event about the same blocked node or failing step.
	repeatAfter = time.Hour
	// maxNote is the longest note in bytes that the API server takes.
	maxNote = 1024
)

// recorder writes Kubernetes Events about maintenances, in the background. Methods may be called from many goroutines.
type recorder struct {
	c      *Controller
	events events.EventRecorder // nil: none are written

	mu       sync.Mutex
	reported map[string]time.Time // the last Event about a blocked node or a failing step
}

// notice is a Kubernetes Event. An empty action is "Maintained".
type notice struct {
	regarding, related         *corev1.ObjectReference
	kind, reason, text, action string
}

func newRecorder(c *Controller) *recorder { return &recorder{c: c, reported: map[string]time.Time{}} }

// start begins to write. stop ends it.
func (r *recorder) start() (stop func()) {
	if r.c.cfg.DryRun || r.c.cfg.Client == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: r.c.cfg.Client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		r.c.log.Error("Kubernetes Events are not recorded", "error", err)
	}
	r.events = broadcaster.NewRecorder(scheme.Scheme, "rehome")
	return func() {
		broadcaster.Shutdown()
		cancel()
	}
}

func (r *recorder) write(n notice) {
	if r.events == nil {
		return
	}
	var related runtime.Object // no interface with a nil pointer
	if n.related != nil {
		related = n.related
	}
	if len(n.text) > maxNote {
		n.text = strings.ToValidUTF8(n.text[:maxNote-len("…")], "") + "…"
	}
	r.events.Eventf(n.regarding, related, n.kind, n.reason, cmp.Or(n.action, "Maintained"), "%s", n.text)
}

// due says whether an Event has to be repeated, and notes that it is.
func (r *recorder) due(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.c.now()
	for k, last := range r.reported {
		if now.Sub(last) >= repeatAfter {
			delete(r.reported, k)
		}
	}
	_, reported := r.reported[key]
	if !reported {
		r.reported[key] = now
	}
	return !reported
}

func (r *recorder) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reported, key)
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

// maintenanceReference is the maintenance, or the node of an entry of the table.
func maintenanceReference(d plan.Decision) *corev1.ObjectReference {
	if name, is := schemas.InTable(d.Name); is {
		ref := nodeReference(name, "")
		for _, n := range d.Status.Nodes {
			if n.Name == name {
				ref.UID = n.UID
			}
		}
		return ref
	}
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: "NodeMaintenance", Name: d.Name, UID: d.UID,
	}
}

func nodeReference(name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

// onBoth is an Event about a node on it and, if that is an object, on its maintenance.
func onBoth(d plan.Decision, name string, uid types.UID, kind, reason, text string) []notice {
	node, maintenance := nodeReference(name, uid), maintenanceReference(d)
	list := []notice{{
		regarding: node, related: maintenance, kind: kind, reason: reason, text: text + " (maintenance " + d.Name + ")",
	}}
	if _, inTable := schemas.InTable(d.Name); !inTable {
		list = append(list, notice{
			regarding: maintenance, related: node, kind: kind, reason: reason, text: "node " + name + ": " + text,
		})
	}
	return list
}

// join joins the parts that are not empty.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ")
}

// stepEvents are about nodes that were changed, and nodes that another maintenance holds.
func stepEvents(d plan.Decision, r apply.Result) (list []notice) {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	for _, n := range r.Nodes {
		switch {
		case n.Outcome == apply.Taken:
			list = append(list, notice{regarding: maintenanceReference(d), related: nodeReference(n.Name, n.UID), kind: warning,
				reason: "NodeTaken", text: "node " + n.Name + " is not cordoned: " + n.Message})
		case n.Outcome != apply.Changed:
		case n.Again:
			list = append(list, onBoth(d, n.Name, n.UID, warning, "CordonedAgain",
				"the node was uncordoned during its maintenance, and is cordoned again: "+r.Before.Spec.Reason)...)
		case n.Action == schemas.NodeCordon:
			list = append(list, onBoth(d, n.Name, n.UID, normal, "NodeCordoned", join("cordoned: "+r.Before.Spec.Reason, n.Message))...)
		case n.Action == schemas.NodeReturn:
			list = append(list, onBoth(d, n.Name, n.UID, normal, "NodeReturned", join("given back", n.Message))...)
		}
	}
	return list
}

// newlyFailed are the failed steps that succeeded at the attempt before, or were last reported an hour ago.
func (r *recorder) newlyFailed(d plan.Decision, result apply.Result) (list []apply.Done) {
	for _, n := range result.Nodes {
		key := fmt.Sprintf("%s/%s/%s", d.UID, n.Name, n.Action)
		if n.Err == nil {
			r.forget(key)
		} else if r.due(key) {
			list = append(list, n)
		}
	}
	return list
}

func failedEvents(d plan.Decision, failed []apply.Done) (list []notice) {
	for _, n := range failed {
		text := fmt.Sprintf("%s failed, and is tried again: %v", n.Action, n.Err)
		list = append(list, onBoth(d, n.Name, n.UID, corev1.EventTypeWarning, "StepFailed", text)...)
	}
	return list
}

// statusEvents are about what is new in a status.
func statusEvents(d plan.Decision, r apply.Result) (list []notice) {
	was, why := r.Before.Status, r.Before.Spec.Reason
	for _, stage := range d.Status.Stages {
		if !slices.ContainsFunc(was.Stages, func(x v1alpha1.StageTime) bool { return x.Stage == stage.Stage }) {
			// Events that differ in nothing but their text become one: the action tells the stages apart.
			list = append(list, notice{regarding: maintenanceReference(d), kind: corev1.EventTypeNormal, reason: "StageBegun",
				action: string(stage.Stage), text: fmt.Sprintf("%s begins: %s", stage.Stage, why)})
		}
	}
	if text := refusal(d.Status); text != "" && text != refusal(was) {
		list = append(list, notice{regarding: maintenanceReference(d), kind: corev1.EventTypeWarning, reason: "Refused", text: text})
	}
	before := map[string]v1alpha1.NodeStage{}
	for _, n := range was.Nodes {
		before[n.Name] = n.Stage
	}
	for _, n := range d.Status.Nodes {
		switch {
		case before[n.Name] == n.Stage:
		case n.Stage == v1alpha1.IsDrained:
			list = append(list, onBoth(d, n.Name, n.UID, corev1.EventTypeNormal, "NodeDrained", "drained: "+why)...)
		case n.Stage == v1alpha1.Held:
			text := join("its deadline has passed", n.Message)
			list = append(list, onBoth(d, n.Name, n.UID, corev1.EventTypeWarning, "NodeDeadline", text)...)
		}
	}
	return list
}

// refusal is why a maintenance is not accepted. Empty: it is.
func refusal(s v1alpha1.NodeMaintenanceStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.Accepted); c != nil && c.Status == "False" {
		return c.Reason + ": " + c.Message
	}
	return ""
}

// blockedEvents are about nodes with a pod that could not move for long, each at most once an hour.
func (r *recorder) blockedEvents(d plan.Decision) (list []notice) {
	for _, n := range d.Status.Nodes {
		i := slices.IndexFunc(n.Blocked, func(b v1alpha1.BlockedPod) bool {
			return b.Since != nil && r.c.now().Sub(b.Since.Time) >= blockedLong
		})
		if i < 0 || !r.due(string(d.UID)+"/"+n.Name) {
			continue
		}
		b := n.Blocked[i]
		text := fmt.Sprintf("pod %s/%s cannot move since %s: %s", b.Namespace, b.Name, b.Since.UTC().Format(time.RFC3339), b.Reason)
		list = append(list, notice{regarding: maintenanceReference(d), related: nodeReference(n.Name, n.UID),
			kind: corev1.EventTypeWarning, reason: "Blocked", text: "node " + n.Name + ": " + join(text, b.By, b.Message)})
	}
	return list
}
