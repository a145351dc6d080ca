package maintenance

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

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
