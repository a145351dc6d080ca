package actuator

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// lastNews is what was told of a maintenance last.
type lastNews struct {
	// head is all but the nodes, and what was done to them.
	head  schemas.Maintenance
	nodes []v1alpha1.NodeStatus
	at    time.Time
}

// toldFor is how long it is known what was told of a maintenance: longer than twice the time in which each is evaluated, so
// that one that waits is not told of again as a whole. One that was deleted is forgotten.
const toldFor = 2 * time.Hour

// stands says whether the status of an answer is known to be stored.
func stands(r maintenance.Result, err error) bool {
	return r.Before != nil && r.Dropped == "" && (r.Wrote || err == nil || len(r.Nodes) > 0)
}

// news is what there is to say of a maintenance whose status is stored, in order, to who knows what was told last. nil is told
// of nobody, and of a maintenance that had the name before. It is a pure function.
func news(last *lastNews, s schemas.MaintenanceSteps, r maintenance.Result, dryRun bool) ([]schemas.Maintenance, lastNews) {
	next := lastNews{head: headOf(s, r.Before.Spec, dryRun), nodes: s.Status.Nodes}
	whole := last == nil || last.head.UID != s.UID
	if whole {
		last = &lastNews{}
	}
	changed, forgotten := changedNodes(last.nodes, next.nodes)
	changes := changesOf(r.Nodes)
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

func headOf(s schemas.MaintenanceSteps, spec v1alpha1.NodeMaintenanceSpec, dryRun bool) schemas.Maintenance {
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
func changesOf(nodes []maintenance.Done) []schemas.NodeChange {
	var list []schemas.NodeChange
	for _, n := range nodes {
		c := schemas.NodeChange{Name: n.Name, UID: n.UID, Action: n.Action, Message: n.Message}
		switch {
		case n.Outcome != maintenance.Changed:
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

// newsID is the ID of one of several events that tell of an answer. It is the same in every process, so that the bus stores it
// once. An event that is one of several is so only if they are divided in the same way.
func newsID(a schemas.Intents, list []schemas.Maintenance, i int) (string, error) {
	s, part := *a.Maintenance, ""
	if len(list) > 1 {
		part = fmt.Sprint(i, len(list), list[0].Whole)
	}
	text, err := json.Marshal([]any{s.UID, s.ResourceVersion, a.Scope.Event, s.Status, list[i].Changes, part})
	if err != nil {
		return "", fmt.Errorf("maintenance %s: %w", s.Name, err)
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:26]), nil
}

// announce publishes what is new of a maintenance when its answer was carried out, as far as it could be, trying again until
// that is stored. It returns false when the term has ended before, so that the next leader has to say it.
func (t *session) announce(e taskMessage, r maintenance.Result, err error) bool {
	if !stands(r, err) {
		return true
	}
	k := keyOf(e.answer)
	t.mu.Lock()
	last := t.told[k]
	t.mu.Unlock()
	list, next := news(last, *e.answer.Maintenance, r, t.cfg.DryRun)
	for i := range list {
		if !t.publishNews(e, list, i) {
			return false
		}
	}
	next.at = t.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for other, x := range t.told {
		if next.at.Sub(x.at) >= toldFor {
			delete(t.told, other)
		}
	}
	t.told[k] = &next
	return true
}

// publishNews publishes one of the events that tell of an answer. What the bus calls invalid is lost.
func (t *session) publishNews(cause taskMessage, list []schemas.Maintenance, i int) bool {
	if t.lost() {
		return false
	}
	m := list[i]
	id, err := newsID(cause.answer, list, i)
	var e schemas.Event
	if err == nil {
		e, err = schemas.NewEvent(t.cfg.Source, m, t.cfg.Now(), cause.event)
	}
	if err == nil {
		e.ID = id
		err = t.store(e, "maintenances", "maintenance", m.Name)
	}
	switch {
	case err == nil:
		return true
	case t.saving.Err() != nil && !isInvalid(err):
		return false
	}
	t.cfg.Log.Error("event of a maintenance lost", "maintenance", m.Name, "error", err)
	return true
}
