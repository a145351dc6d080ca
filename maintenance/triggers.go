package maintenance

import (
	"context"
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
	"k8s.io/client-go/util/retry"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// absentFor is how long a node must be absent before its maintenance for requests is completed: far longer than a node
// needs to register again.
const absentFor = 10 * time.Minute

// triggers create maintenances for nodes with a drain trigger of the policy, and complete them when the trigger or the
// node is gone. The mark on a node survives a table that is lost with the bus.
type triggers struct {
	*session

	mu     sync.Mutex
	absent map[string]time.Time // since when a node is absent
}

// triggerOn returns the drain trigger on a node, or "". Conditions that maintenances set do not count.
func triggerOn(n *corev1.Node, m policy.Maintenance) string {
	if n == nil || len(m.Start) == 0 {
		return ""
	}
	return m.Started(withoutOwnConditions(n))
}

// enqueueAll enqueues all nodes with a trigger, the mark of one, or a maintenance in the table.
func (t *triggers) enqueueAll() {
	m := t.policy.Load().Maintenance
	for _, n := range t.cfg.View.AllNodes(labels.Everything()) {
		if triggerOn(n, m) != "" || markOf(n, schemas.SignMaintenance(n.Name)) != "" {
			t.enqueue(triggerKey, n.Name)
		}
	}
	for _, name := range t.objects.names() {
		if node, is := schemas.InTable(name); is {
			t.enqueue(triggerKey, node)
		}
	}
}

// reconcile starts or completes the maintenance of a node.
func (t *triggers) reconcile(ctx context.Context, node string) error {
	n := t.cfg.View.Node(node)
	name := schemas.SignMaintenance(node)
	trigger, mark := triggerOn(n, t.policy.Load().Maintenance), markOf(n, name)
	d := desired{name: name, node: node, reason: trigger + " on the node", uid: mark, now: t.now()}
	var err error
	switch exists := t.objects.get(name) != nil; {
	case trigger != "" && !exists: // it fails while the old one is being completed; when that is gone, the node is reconciled again
		d.Stage = v1alpha1.Drain
		var no *request.End
		if _, no, err = t.change(ctx, name, d.of); err == nil && no == nil {
			t.log.Info("a drain trigger on a node begins a maintenance", "node", node, "trigger", d.reason)
		}
	case trigger == "" && exists:
		err = t.complete(ctx, name)
	case !exists && mark != "": // the table was lost: a new maintenance gives the node back
		d.Stage, d.reason = v1alpha1.Complete, "the drain trigger is gone from the node"
		_, _, err = t.change(ctx, name, d.of)
	}
	if err != nil || !t.absentLong(node, n != nil) {
		return err
	}
	return t.complete(ctx, schemas.RequestedMaintenance(node))
}

// absentLong reports whether a node with a maintenance for requests has been absent for long.
func (t *triggers) absentLong(node string, exists bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if exists || t.objects.get(schemas.RequestedMaintenance(node)) == nil {
		delete(t.absent, node)
		return false
	}
	if t.absent[node].IsZero() {
		t.absent[node] = t.now()
	}
	return t.now().Sub(t.absent[node]) >= absentFor
}

// complete completes a maintenance, if there is one.
func (s *session) complete(ctx context.Context, name string) error {
	_, _, err := s.change(ctx, name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.End) {
		if is == nil {
			return nil, nil
		}
		return completed(is)
	})
	return err
}

// desired is the desired state of a node, from a request or a drain trigger.
type desired struct {
	name, node, reason string // the name of the maintenance
	schemas.NodeRequest
	uid types.UID // of a new maintenance; empty means any
	now time.Time
}

// completed returns the maintenance with the last stage, or nil if it has that already.
func completed(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.End) {
	return desired{reason: is.Spec.Reason, NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Complete}}.of(is)
}

// of returns the changed maintenance, or the reason why it cannot change. Both are nil if nothing changes. A deadline
// replaces the previous one, and a lifted guard stays lifted. A new maintenance replaces one that has returned the node.
func (d desired) of(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.End) {
	if is == nil {
		return d.first(), nil
	}
	if d.Stage != v1alpha1.Complete && isReturned(is, d.node) { // it never begins again
		next := d.first()
		if next.UID == is.UID {
			next.UID = uuid.NewUUID()
		}
		next.ResourceVersion = is.ResourceVersion
		return next, nil
	}
	if stages := request.NodeStages(); slices.Index(stages, is.Spec.Stage) > slices.Index(stages, d.Stage) {
		return nil, request.NewEnd(schemas.ReceiptConflict,
			"the stage cannot go back from %s to %s; retry when the node is given back",
			is.Spec.Stage, d.Stage)
	}
	next := is.DeepCopy()
	if next.Spec.Stage != d.Stage {
		next.Spec.Stage, next.Spec.Reason = d.Stage, d.reason
	}
	if d.Deadline != nil {
		next.Spec.Deadline, next.Spec.OnDeadline = d.Deadline, d.OnDeadline
	}
	for _, guard := range d.Force {
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

// isReturned reports whether a maintenance has given back the node.
func isReturned(is *v1alpha1.NodeMaintenance, node string) bool {
	return slices.ContainsFunc(is.Status.Nodes, func(n v1alpha1.NodeStatus) bool {
		return n.Name == node && n.Stage == v1alpha1.Returned
	})
}

// first returns a new maintenance.
func (d desired) first() *v1alpha1.NodeMaintenance {
	if d.uid == "" {
		d.uid = uuid.NewUUID()
	}
	return &v1alpha1.NodeMaintenance{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "NodeMaintenance"},
		ObjectMeta: metav1.ObjectMeta{
			Name: d.name, UID: d.uid, Generation: 1, CreationTimestamp: metav1.NewTime(d.now.UTC().Truncate(time.Second)),
		},
		Spec: v1alpha1.NodeMaintenanceSpec{
			Nodes: v1alpha1.NodeSet{Names: []string{d.node}}, Stage: d.Stage, Reason: d.reason, Deadline: d.Deadline,
			OnDeadline: d.OnDeadline, Force: d.Force,
		},
	}
}

// reasonOf returns the reason of a request with its requester, cut to the maximum length.
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

// change stores the result of want in the table. want gets the stored maintenance or nil, returns nil to change
// nothing, and is called again after a conflict. The result is the maintenance after that. A dry run changes nothing,
// because another process would execute the change.
func (s *session) change(
	ctx context.Context, name string,
	want func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.End),
) (result *v1alpha1.NodeMaintenance, no *request.End, err error) {
	if s.cfg.DryRun {
		return nil, request.NewEnd(schemas.ReceiptNotAllowed,
			"the maintenance role runs with --dry-run, so nothing was stored; restart it without --dry-run to make changes"), nil
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var next *v1alpha1.NodeMaintenance
		if result, err = s.stored(ctx, name); err != nil {
			return err
		}
		if next, no = want(result); no != nil || next == nil {
			return nil
		}
		result = next
		_, err := s.cfg.Table.Put(ctx, next)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("change maintenance %s: %w", name, err)
	}
	return result, no, nil
}

// stored reads a maintenance from the table, or returns nil if there is none.
func (s *session) stored(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	is, err := s.cfg.Table.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return is, err
}

// markOf returns the UID in the mark that a maintenance of that name has left on the node, or "".
func markOf(node *corev1.Node, name string) types.UID {
	if node == nil {
		return ""
	}
	if mark := schemas.MarkOn(node); mark != nil && mark.Name == name {
		return mark.UID
	}
	return ""
}
