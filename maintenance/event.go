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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// news is what the events of maintenances have said. Its methods may be called from many goroutines.
type news struct {
	mu   sync.Mutex
	last map[string]*lastNews // by the name of the maintenance
	// changes wait for the next event.
	changes map[string][]schemas.NodeChange
}

// lastNews is the content of the last events about a maintenance.
type lastNews struct {
	// head is everything but the nodes and their changes.
	head  schemas.Maintenance
	nodes []v1alpha1.NodeStatus
}

func newNews() *news {
	return &news{last: map[string]*lastNews{}, changes: map[string][]schemas.NodeChange{}}
}

func (n *news) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.last, name)
	delete(n.changes, name)
}

// newsOf are the next events about a maintenance whose status is stored, in order. last is nil if none was published yet. It is a
// pure function.
func newsOf(
	last *lastNews, s plan.Decision, spec v1alpha1.NodeMaintenanceSpec, changes []schemas.NodeChange, dryRun bool,
) ([]schemas.Maintenance, lastNews) {
	next := lastNews{head: headOf(s, spec, dryRun), nodes: s.Status.Nodes}
	whole := last == nil || last.head.UID != s.UID
	if whole {
		last = &lastNews{}
	}
	changed, forgotten := changedNodes(last.nodes, next.nodes)
	if !whole && len(changed)+len(forgotten)+len(changes) == 0 && equality.Semantic.DeepEqual(last.head, next.head) {
		return nil, next
	}
	list := []schemas.Maintenance{next.head}
	for part := range slices.Chunk(changed, schemas.MaxMaintenanceNodes) {
		m := &list[len(list)-1]
		if len(m.Nodes) > 0 {
			list = append(list, next.head)
			m = &list[len(list)-1]
		}
		changed = changed[len(part):]
		m.Nodes, m.More = part, len(changed)
	}
	list[0].Whole, list[0].Forgotten = whole, forgotten
	list[len(list)-1].Changes = changes
	return list, next
}

func headOf(s plan.Decision, spec v1alpha1.NodeMaintenanceSpec, dryRun bool) schemas.Maintenance {
	m := schemas.Maintenance{
		Name: s.Name, UID: s.UID, Generation: s.Status.ObservedGeneration, Stage: spec.Stage, Reason: spec.Reason,
		Stages: s.Status.Stages, Summary: s.Status.Summary, Conditions: s.Status.Conditions, DryRun: dryRun,
	}
	if m.Stage == "" {
		m.Stage = v1alpha1.Idle
	}
	for _, c := range s.Status.Conditions {
		switch {
		case c.Type != v1alpha1.Accepted:
		case c.Status == metav1.ConditionTrue:
			m.Accepted = true
		default:
			m.Refusal = &schemas.Refusal{Reason: c.Reason, Message: c.Message}
		}
	}
	return m
}

// changedNodes are the nodes that are not as they were, and the names of those that are not there any more.
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

// changesOf are the changes of nodes that no status tells.
func changesOf(nodes []apply.Done) []schemas.NodeChange {
	var list []schemas.NodeChange
	for _, n := range nodes {
		c := schemas.NodeChange{Name: n.Name, UID: n.UID, Action: n.Action, Message: n.Message}
		switch {
		case n.Outcome != apply.Changed:
			continue
		case n.Again:
			c.Message = "somebody has uncordoned it while it is maintained; it is cordoned again"
		case n.Action != schemas.NodeReturn || n.Message == "" || n.Mark.CordonedBefore:
			continue
		}
		list = append(list, c)
	}
	return list
}

// newsID is the ID of one of several events about a decision. It is the same in every process, so that the bus stores the event
// once.
func newsID(s plan.Decision, list []schemas.Maintenance, i int) (string, error) {
	part := ""
	if len(list) > 1 {
		part = fmt.Sprint(i, len(list), list[0].Whole)
	}
	text, err := json.Marshal([]any{s.UID, s.ResourceVersion, s.Status, list[i].Changes, part})
	if err != nil {
		return "", fmt.Errorf("maintenance %s: %w", s.Name, err)
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:26]), nil
}

// announce publishes what is new about a maintenance after its decision was carried out, as far as it could be.
func (s *session) announce(ctx context.Context, d plan.Decision, r apply.Result) error {
	s.news.mu.Lock()
	changes := append(s.news.changes[d.Name], changesOf(r.Nodes)...)
	s.news.changes[d.Name] = changes
	last := s.news.last[d.Name]
	s.news.mu.Unlock()
	list, next := newsOf(last, d, r.Before.Spec, changes, s.cfg.DryRun)
	for i := range list {
		err := s.publishNews(ctx, d, list, i)
		if errors.Is(err, schemas.ErrInvalid) {
			s.log.Error("an event of a maintenance is lost", "maintenance", d.Name, "error", err)
		} else if err != nil {
			return err
		}
	}
	s.news.mu.Lock()
	defer s.news.mu.Unlock()
	s.news.last[d.Name] = &next
	delete(s.news.changes, d.Name)
	return nil
}

// publishNews publishes one of the events about a decision.
func (s *session) publishNews(ctx context.Context, d plan.Decision, list []schemas.Maintenance, i int) error {
	if s.cfg.DryRun { // the version of an object that is not changed tells nothing
		d.ResourceVersion += " " + s.now().UTC().Format(time.RFC3339Nano)
	}
	id, err := newsID(d, list, i)
	if err != nil {
		return err
	}
	e, err := schemas.NewEvent(s.cfg.Source, list[i], s.now(), schemas.Event{})
	if err != nil {
		return err
	}
	e.ID, e.CorrelationID = id, id
	if _, err := s.cfg.Bus.Publish(ctx, e); err != nil {
		return fmt.Errorf("publish the event of maintenance %s: %w", d.Name, err)
	}
	return nil
}
