package maintenance

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// published is the content of the last events about a maintenance: the nodes, and everything else without changes.
type published struct {
	head  schemas.Maintenance
	nodes []v1alpha1.NodeStatus
}

// newEvents returns the next events about a maintenance whose status is stored, in order. last is nil if none was
// published yet. It is pure.
func newEvents(
	last *published, d plan.Decision, spec v1alpha1.NodeMaintenanceSpec, changes []schemas.NodeChange, dryRun bool,
) ([]schemas.Maintenance, published) {
	next := published{head: headOf(d, spec, dryRun), nodes: d.Status.Nodes}
	whole := last == nil || last.head.UID != d.UID
	if whole {
		last = &published{}
	}
	changed, forgotten := changedNodes(last.nodes, next.nodes)
	if !whole && len(changed)+len(forgotten)+len(changes) == 0 && equality.Semantic.DeepEqual(last.head, next.head) {
		return nil, next
	}
	var list []schemas.Maintenance
	for part := range slices.Chunk(changed, schemas.MaxMaintenanceNodes) {
		m := next.head
		changed = changed[len(part):]
		m.Nodes, m.More = part, len(changed)
		list = append(list, m)
	}
	if len(list) == 0 {
		list = append(list, next.head)
	}
	list[0].Whole, list[0].Forgotten = whole, forgotten
	list[len(list)-1].Changes = changes
	return list, next
}

func headOf(d plan.Decision, spec v1alpha1.NodeMaintenanceSpec, dryRun bool) schemas.Maintenance {
	m := schemas.Maintenance{
		Name: d.Name, UID: d.UID, Generation: d.Status.ObservedGeneration, Stage: spec.Stage, Reason: spec.Reason,
		Stages: d.Status.Stages, Summary: d.Status.Summary, Conditions: d.Status.Conditions, DryRun: dryRun,
	}
	if m.Stage == "" {
		m.Stage = v1alpha1.Idle
	}
	for _, c := range d.Status.Conditions {
		if c.Type != v1alpha1.Accepted {
			continue
		}
		if m.Accepted = c.Status == metav1.ConditionTrue; !m.Accepted {
			m.Refusal = &schemas.Refusal{Reason: c.Reason, Message: c.Message}
		}
	}
	return m
}

// changedNodes returns the nodes that have changed, and the names of nodes that are gone.
func changedNodes(was, is []v1alpha1.NodeStatus) (changed []v1alpha1.NodeStatus, forgotten []string) {
	before := make(map[string]v1alpha1.NodeStatus, len(was))
	for _, n := range was {
		before[n.Name] = n
	}
	for _, n := range is {
		if old, known := before[n.Name]; !known || !equality.Semantic.DeepEqual(old, n) {
			changed = append(changed, n)
		}
		delete(before, n.Name)
	}
	for _, n := range was {
		if _, left := before[n.Name]; left {
			forgotten = append(forgotten, n.Name)
		}
	}
	return changed, forgotten
}

// changesOf returns the changes of nodes that the status does not show.
func changesOf(nodes []apply.Done) (list []schemas.NodeChange) {
	for _, n := range nodes {
		c := schemas.NodeChange{Name: n.Name, UID: n.UID, Action: n.Action, Message: n.Message}
		switch {
		case n.Outcome != apply.Changed:
		case n.Again:
			c.Message = "it was uncordoned during its maintenance, and is cordoned again"
			list = append(list, c)
		case n.Action == schemas.NodeReturn && n.Message != "" && !n.Mark.CordonedBefore:
			list = append(list, c)
		}
	}
	return list
}

// eventID returns the ID of one of several events about a decision. It is the same in every process, so the bus stores
// the event once.
func eventID(d plan.Decision, list []schemas.Maintenance, i int) (string, error) {
	part := ""
	if len(list) > 1 {
		part = fmt.Sprint(i, len(list), list[0].Whole)
	}
	text, err := json.Marshal([]any{d.UID, d.ResourceVersion, d.Status, list[i].Changes, part})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:26]), nil
}

// announce publishes the changes of a maintenance, after its decision was executed as far as possible.
func (s *session) announce(ctx context.Context, d plan.Decision, r apply.Result) error {
	x := s.drains.of(d.Name)
	x.changes = append(x.changes, changesOf(r.Nodes)...)
	list, next := newEvents(x.published, d, r.Before.Spec, x.changes, s.cfg.DryRun)
	if s.cfg.DryRun { // an unchanged object keeps its version
		d.ResourceVersion += " " + s.now().UTC().Format(time.RFC3339Nano)
	}
	for i := range list {
		id, err := eventID(d, list, i)
		var e schemas.Event
		if err == nil {
			e, err = schemas.NewEvent(s.cfg.Source, list[i], s.now(), schemas.Event{})
		}
		if err == nil {
			e.ID, e.CorrelationID = id, id
			_, err = s.cfg.Bus.Publish(ctx, e)
		}
		if errors.Is(err, schemas.ErrInvalid) {
			s.log.Error("dropped an event of a maintenance", "maintenance", d.Name, "error", err)
		} else if err != nil {
			return fmt.Errorf("publish the event of maintenance %s: %w", d.Name, err)
		}
	}
	x.published, x.changes = &next, nil
	return nil
}
