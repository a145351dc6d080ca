package maintenance

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// absentFor is how long a node has to be absent before the maintenance that requests asked for is completed: far longer than a
// node takes to register again.
const absentFor = 10 * time.Minute

// triggers make maintenances of nodes that show a drain trigger of the policy, and complete those whose trigger or node is gone. The
// mark on a node outlives a table that is lost with the bus.
type triggers struct {
	*session

	mu     sync.Mutex
	absent map[string]time.Time // since when a node is absent
}

func newTriggers(s *session) *triggers { return &triggers{session: s, absent: map[string]time.Time{}} }

// triggerOn is the drain trigger on a node. Empty: there is none. Conditions that maintenances set are none.
func triggerOn(n *corev1.Node, m policy.Maintenance) string {
	if n == nil || len(m.Start) == 0 {
		return ""
	}
	return m.Started(withoutOwnConditions(n))
}

// enqueueAll enqueues all nodes with a trigger or with the mark of one, and those of all maintenances of the table.
func (t *triggers) enqueueAll() {
	m := t.policy.Load().Maintenance
	for _, n := range t.cfg.View.AllNodes(labels.Everything()) {
		if triggerOn(n, m) != "" || markOf(n, schemas.SignMaintenance(n.Name)) != "" {
			t.enqueue(triggerKey, n.Name)
		}
	}
	for _, name := range t.index.names() {
		if node, is := schemas.InTable(name); is {
			t.enqueue(triggerKey, node)
		}
	}
}

// reconcile starts or completes the maintenance of a node.
func (t *triggers) reconcile(ctx context.Context, node string) error {
	n := t.cfg.View.Node(node)
	name := schemas.SignMaintenance(node)
	trigger, is, mark := triggerOn(n, t.policy.Load().Maintenance), t.index.get(name), markOf(n, name)
	var err error
	switch {
	case trigger != "" && is == nil:
		err = t.begin(ctx, desired{
			name: name, node: node, reason: trigger + " on the node", uid: mark,
			NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Drain},
		})
	case trigger == "" && is != nil:
		err = t.complete(ctx, name)
	case is == nil && mark != "":
		err = t.giveBack(ctx, desired{
			name: name, node: node, reason: "the drain trigger is gone from the node", uid: mark,
			NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Complete},
		})
	}
	if err != nil {
		return err
	}
	return t.completeAbsent(ctx, node, n != nil)
}

// completeAbsent completes the maintenance that requests asked for of a node that has been absent for long.
func (t *triggers) completeAbsent(ctx context.Context, node string, exists bool) error {
	name, now := schemas.RequestedMaintenance(node), t.now()
	t.mu.Lock()
	if exists || t.index.get(name) == nil {
		delete(t.absent, node)
		t.mu.Unlock()
		return nil
	}
	if t.absent[node].IsZero() {
		t.absent[node] = now
	}
	since := t.absent[node]
	t.mu.Unlock()
	if now.Sub(since) < absentFor {
		return nil
	}
	return t.complete(ctx, name)
}

// complete completes a maintenance, if there is one.
func (t *triggers) complete(ctx context.Context, name string) error {
	_, _, err := t.change(ctx, name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.Rejection) {
		if is == nil {
			return nil, nil
		}
		return desired{reason: is.Spec.Reason, NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Complete}}.of(is, t.now())
	})
	return err
}

// begin makes a maintenance. One that is being completed is left alone: when it is gone, the node is reconciled again.
func (t *triggers) begin(ctx context.Context, d desired) error {
	_, no, err := t.change(ctx, d.name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.Rejection) {
		return d.of(is, t.now())
	})
	if err == nil && no == nil {
		t.log.Info("a drain trigger on a node begins a maintenance", "node", d.node, "trigger", d.reason)
	}
	return err
}

// giveBack makes a maintenance that takes back what a lost one has left on the node. One that exists does it itself.
func (t *triggers) giveBack(ctx context.Context, d desired) error {
	_, _, err := t.change(ctx, d.name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.Rejection) {
		if is != nil {
			return nil, nil
		}
		return d.first(t.now()), nil
	})
	return err
}

// desired is the desired state of a node, which a request or a drain trigger asks for.
type desired struct {
	name   string // of the maintenance
	node   string
	reason string
	schemas.NodeRequest
	// uid is the one that a new maintenance gets. Empty: any.
	uid types.UID
}

// further says whether a stage comes after another one.
func further(a, b v1alpha1.Stage) bool {
	return slices.Index(request.NodeStages(), a) > slices.Index(request.NodeStages(), b)
}

// of is the changed maintenance, or why it cannot change. Both nil: nothing changes. A deadline replaces the one before, and a
// guard that was lifted stays lifted.
func (w desired) of(is *v1alpha1.NodeMaintenance, now time.Time) (*v1alpha1.NodeMaintenance, *request.Rejection) {
	if is == nil {
		return w.first(now), nil
	}
	if further(is.Spec.Stage, w.Stage) {
		return nil, request.Refuse(schemas.ReceiptConflict,
			"the stage cannot go from %s to %s, only forwards; when the node is given back, it can be asked for anew",
			is.Spec.Stage, w.Stage)
	}
	next := is.DeepCopy()
	if next.Spec.Stage != w.Stage {
		next.Spec.Stage, next.Spec.Reason = w.Stage, w.reason
	}
	if w.Deadline != nil {
		next.Spec.Deadline, next.Spec.OnDeadline = w.Deadline, w.OnDeadline
	}
	for _, guard := range w.Force {
		if !slices.Contains(next.Spec.Force, guard) {
			next.Spec.Force = append(next.Spec.Force, guard)
		}
	}
	if reflect.DeepEqual(next.Spec, is.Spec) {
		return nil, nil
	}
	next.Generation++
	return next, nil
}

// first is a new maintenance.
func (w desired) first(now time.Time) *v1alpha1.NodeMaintenance {
	uid := w.uid
	if uid == "" {
		uid = uuid.NewUUID()
	}
	return &v1alpha1.NodeMaintenance{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "NodeMaintenance"},
		ObjectMeta: metav1.ObjectMeta{
			Name: w.name, UID: uid, Generation: 1, CreationTimestamp: metav1.NewTime(now.UTC().Truncate(time.Second)),
		},
		Spec: v1alpha1.NodeMaintenanceSpec{
			Nodes: v1alpha1.NodeSet{Names: []string{w.node}}, Stage: w.Stage, Reason: w.reason, Deadline: w.Deadline,
			OnDeadline: w.OnDeadline, Force: w.Force,
		},
	}
}

// reasonOf is why a node is maintained, with who asked, in as many characters as a maintenance may have.
func reasonOf(r schemas.Request) string {
	text := r.Reason
	if r.Requester != "" {
		text += " (asked for by " + r.Requester + ")"
	}
	if runes := []rune(text); len(runes) > schemas.MaxRequestReason {
		return string(runes[:schemas.MaxRequestReason-1]) + "…"
	}
	return text
}

// tableTries is how often a change of the table is tried again after a conflict.
const tableTries = 5

// change stores the result of want, which gets the maintenance as it is, or nil if there is none. want is called again after a
// conflict, and returns nil to change nothing. The result is the maintenance as it is then; nil: there is none. A dry run changes
// nothing: a process that is no dry run would carry the change out.
func (s *session) change(
	ctx context.Context, name string,
	want func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.Rejection),
) (*v1alpha1.NodeMaintenance, *request.Rejection, error) {
	if s.cfg.DryRun {
		return nil, request.Refuse(schemas.ReceiptNotAllowed,
			"the maintenance role runs with --dry-run, and changes no maintenance: nothing was stored; ask when it runs without"), nil
	}
	for range tableTries {
		is, err := s.read(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		next, no := want(is)
		if no != nil || next == nil {
			return is, no, nil
		}
		_, err = s.cfg.Table.Put(ctx, next)
		if err == nil {
			return next, nil, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("maintenance %s: %w", name, errConflicts)
}

var errConflicts = errors.New("it changes again and again")

// read reads a maintenance of the table. nil: there is none.
func (s *session) read(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	is, err := s.cfg.Table.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return is, err
}

// markOf is the UID in the mark that a maintenance of that name has left on the node. Empty: there is none.
func markOf(node *corev1.Node, name string) types.UID {
	if node == nil {
		return ""
	}
	if mark := schemas.MarkOn(node); mark != nil && mark.Name == name {
		return mark.UID
	}
	return ""
}
