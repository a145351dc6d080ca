package watcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	longestNodeName   = 253
	longestProviderID = 1024
)

// checkMaintenance looks for what is wrong with what is wanted of a node.
func checkMaintenance(r schemas.Request) *objection {
	m := r.Maintenance
	switch {
	case r.Action != schemas.ActionMaintain && m == nil:
		return nil
	case r.Action != schemas.ActionMaintain:
		return malformed("maintenance: it goes with %s alone", schemas.ActionMaintain)
	case m == nil:
		return malformed("maintenance: want the node that is meant and its stage, got none")
	case r.Profile != "":
		return malformed("profile: it does not go with %s", schemas.ActionMaintain)
	case (m.Node == "") == (m.ProviderID == ""):
		return malformed("maintenance: want either node or providerID")
	case m.Node != "" && !isNode(m.Node):
		return malformed("maintenance.node: want the name of a node, got %.*q", longestNodeName, m.Node)
	case len(m.ProviderID) > longestProviderID:
		return malformed("maintenance.providerID: want at most %d characters, got %d", longestProviderID, len(m.ProviderID))
	case !slices.Contains(maintenanceStages(), m.Stage):
		return malformed("maintenance.stage: want one of %v, got %q", maintenanceStages(), m.Stage)
	}
	if no := checkDeadline(*m); no != nil {
		return no
	}
	return checkForce(*m)
}

func checkDeadline(m schemas.NodeRequest) *objection {
	if m.Deadline != nil && (m.Deadline.Duration <= 0 || m.Stage != v1alpha1.Drain) {
		return malformed("maintenance.deadline: want one that is longer than 0, with the stage %s alone", v1alpha1.Drain)
	}
	known := []v1alpha1.OnDeadline{v1alpha1.Continue, v1alpha1.Hold, v1alpha1.Release}
	if m.OnDeadline != "" && (m.Deadline == nil || !slices.Contains(known, m.OnDeadline)) {
		return malformed("maintenance.onDeadline: want one of %v, and a deadline with it, got %q", known, m.OnDeadline)
	}
	return nil
}

func checkForce(m schemas.NodeRequest) *objection {
	if len(m.Force) > 0 && m.Stage == v1alpha1.Complete {
		return malformed("maintenance.force: it does not go with the stage %s, which no guard refuses", v1alpha1.Complete)
	}
	guards := []v1alpha1.Guard{v1alpha1.AllNodes, v1alpha1.ControlPlane, v1alpha1.SingleNode}
	for i, guard := range m.Force {
		if !slices.Contains(guards, guard) || slices.Contains(m.Force[:i], guard) {
			return malformed("maintenance.force[%d]: want one of %v, each once, got %q", i, guards, guard)
		}
	}
	return nil
}

func isNode(name string) bool {
	_, is := schemas.InTable(schemas.RequestedMaintenance(name))
	return is
}

// meant is the node that a request means; nil if it names one that is not there.
func meant(c *cluster.Cache, r schemas.NodeRequest) (*corev1.Node, *objection) {
	if r.ProviderID == "" {
		return c.Node(r.Node), nil
	}
	var found []*corev1.Node
	for _, n := range c.AllNodes(labels.Everything()) {
		id := n.Spec.ProviderID
		if id != "" && (id == r.ProviderID || id[strings.LastIndex(id, "/")+1:] == r.ProviderID) {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return nil, refuse(schemas.ReceiptUnknownTarget, "no node has the provider ID %s", r.ProviderID)
	case 1:
		return found[0], nil
	}
	return nil, refuse(schemas.ReceiptUnknownTarget, "%d nodes have the provider ID %s: name the node", len(found), r.ProviderID)
}

// maintain stores what is wanted of a node, and then says that the request is accepted: who takes over in between stores the
// same, which changes nothing.
func (r *requests) maintain(
	ctx context.Context, e schemas.Event, answer schemas.Receipt, request schemas.Request, stored time.Time,
) error {
	s, _ := r.l.scopes.plan.requests.Sender(request.Sender)
	if r.openOf(s.Name) >= s.Open {
		return r.reject(ctx, e, answer, refuse(schemas.ReceiptTooManyRequests, "%d requests of this sender are open", s.Open))
	}
	if r.l.w.table == nil {
		return r.reject(ctx, e, answer, refuse(schemas.ReceiptNotAllowed, "maintenances cannot be asked for here"))
	}
	wanted := *request.Maintenance
	node, no := meant(r.l.w.cluster, wanted)
	if no != nil {
		return r.reject(ctx, e, answer, no)
	}
	if node != nil {
		wanted.Node = node.Name
	}
	answer.Maintenance = &wanted
	is, no, err := r.wish(ctx, request, wanted, node)
	switch {
	case err != nil:
		return err
	case no != nil:
		return r.reject(ctx, e, answer, no)
	case is == nil:
		answer.State = schemas.RequestFinished
		answer.Reason, answer.Message = notOurs(wanted.Node, heldByAnother(r.l.w.cluster, wanted.Node))
		return r.close(ctx, e, answer)
	}
	answer.State, answer.Reason, answer.Deadline = schemas.RequestAccepted, schemas.ReceiptAccepted, deadlineOf(request, stored)
	answer.Message = fmt.Sprintf("node %s is to be %s", wanted.Node, done(wanted.Stage))
	if err := r.answer(ctx, e, answer); err != nil {
		return err
	}
	r.begin(e, request, answer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.open[answer.Sender+"/"+answer.Name]; a != nil {
		a.uid = is.UID
	}
	return nil
}

// wish has the table say what is wanted of the node, which is nil if it is not there. The result is nil if there is nothing to
// complete. A mark of a maintenance that is not in the table any more, since the bus was lost, is what it begins with again.
func (r *requests) wish(
	ctx context.Context, request schemas.Request, wanted schemas.NodeRequest, node *corev1.Node,
) (*v1alpha1.NodeMaintenance, *objection, error) {
	name := schemas.RequestedMaintenance(wanted.Node)
	w := wish{name: name, node: wanted.Node, reason: reasonOf(request), NodeRequest: wanted, uid: leftOn(node, name)}
	return r.l.w.table.change(ctx, name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *objection) {
		switch {
		case is == nil && wanted.Stage == v1alpha1.Complete && w.uid == "":
			return nil, nil
		case is == nil && node == nil:
			return nil, refuse(schemas.ReceiptUnknownTarget, "there is no node %s", wanted.Node)
		}
		return w.of(is, r.l.w.now())
	})
}

// leftOn is the UID in the mark that a maintenance of that name has left on the node. Empty: none.
func leftOn(node *corev1.Node, name string) types.UID {
	if node == nil {
		return ""
	}
	if mark := markOn(node); mark != nil && mark.Name == name {
		return mark.UID
	}
	return ""
}

// heldByAnother is the maintenance that has cordoned a node, if it is not the one that requests have asked for. Empty: none has.
func heldByAnother(c *cluster.Cache, node string) string {
	n := c.Node(node)
	if n == nil {
		return "" // it is not there
	}
	if mark := markOn(n); mark != nil && mark.Name != schemas.RequestedMaintenance(node) {
		return mark.Name
	}
	return ""
}

// done is what a node is when it has come to a stage.
func done(stage v1alpha1.Stage) string {
	switch stage {
	case v1alpha1.Cordon:
		return "cordoned"
	case v1alpha1.Drain:
		return "drained"
	case v1alpha1.Complete, v1alpha1.Idle:
	}
	return "given back"
}

// maintenanceChanged has the open requests looked at that are about a maintenance.
func (r *requests) maintenanceChanged(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, a := range r.open {
		if a.maintain != nil && schemas.RequestedMaintenance(a.maintain.Node) == name {
			r.kick(key)
		}
	}
}

// maintained finds out whether the request of a maintenance is over, by what the table says now. One that was refused, of which
// nothing was begun, is given up: it would begin as soon as the guard does not refuse it any more, when nobody thinks of it.
func (r *requests) maintained(ctx context.Context, a *asking) error {
	r.mu.Lock()
	over, want, uid := a.end != "", *a.maintain, a.uid
	r.mu.Unlock()
	if over {
		return nil
	}
	name := schemas.RequestedMaintenance(want.Node)
	is, err := r.l.w.table.read(ctx, name)
	if err != nil {
		return err
	}
	end, why := judge(want, uid, is, heldByAnother(r.l.w.cluster, want.Node))
	if end == "" && !r.l.w.now().Before(a.deadline) {
		end, why = schemas.ReceiptDeadlineExceeded, late(want, is)
	}
	var no *objection
	if end == schemas.ReceiptRefused && !begun(is) {
		_, no, err = r.l.w.table.change(ctx, name, func(now *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *objection) {
			if now == nil || now.UID != is.UID || now.Generation != is.Generation {
				return nil, nil
			}
			give := wish{reason: now.Spec.Reason, NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Complete}}
			return give.of(now, r.l.w.now())
		})
	}
	if err == nil && no == nil && end != "" { // what a dry run cannot give up stays open
		r.mu.Lock()
		a.end, a.why = end, why
		r.mu.Unlock()
	}
	return err
}
