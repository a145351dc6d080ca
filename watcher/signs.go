package watcher

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// signsEvery is how often all nodes are looked at that a maintenance of the table is about.
	signsEvery = time.Minute
	// left is how long a node has to be away before the maintenance that requests have asked for is over: far longer than one that
	// registers anew takes.
	left = 10 * time.Minute
)

// signs makes maintenances of nodes with a sign by which the policy begins a drain, and completes those whose sign is gone and
// those whose node is gone, while a watcher leads. The mark on a node outlives a table that is lost with the bus. Its methods
// may be called from many goroutines. Make one with newSigns.
type signs struct {
	l      *lead
	kicked chan struct{} // capacity 1: some of dirty are to be looked at

	mu    sync.Mutex
	dirty map[string]bool      // nodes
	away  map[string]time.Time // since when a node of a maintenance is not there; only run uses it
}

func newSigns(l *lead) *signs {
	return &signs{l: l, kicked: make(chan struct{}, 1), dirty: map[string]bool{}, away: map[string]time.Time{}}
}

// startedBy is the sign on a node. Empty: there is none. What Rehome has said itself is no sign.
func (p *plan) startedBy(n *corev1.Node) string {
	if n == nil || len(p.signs.Start) == 0 {
		return ""
	}
	said := func(c corev1.NodeCondition) bool { return maintenance.Said(c, "") }
	if slices.ContainsFunc(n.Status.Conditions, said) {
		n = n.DeepCopy()
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, said)
	}
	return p.signs.Started(n)
}

// nodeChanged has a node looked at whose sign has changed, or that has come or gone.
func (s *signs) nodeChanged(old, new *corev1.Node) {
	if s.l.w.table == nil {
		return
	}
	p := s.l.scopes.plan
	if old == nil || new == nil || p.startedBy(old) != p.startedBy(new) {
		s.look(newest(old, new).Name)
	}
}

// look has nodes looked at.
func (s *signs) look(nodes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range nodes {
		s.dirty[n] = true
	}
	select {
	case s.kicked <- struct{}{}:
	default:
	}
}

// run looks at nodes until ctx ends, and once a minute at all with a sign, the mark of one, or a maintenance of the table.
func (s *signs) run(ctx context.Context) {
	if s.l.w.table == nil {
		return
	}
	ticker := time.NewTicker(signsEvery)
	defer ticker.Stop()
	s.lookAtAll()
	for {
		if s.l.w.maintained.known.Load() {
			for _, node := range s.taken() {
				if err := s.at(ctx, node); err != nil && ctx.Err() == nil {
					s.l.w.log.Warn("the maintenance of a node could not be changed, trying again", "node", node, "error", err)
					time.AfterFunc(firstRetry, func() { s.look(node) })
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.kicked:
		case <-ticker.C:
			s.lookAtAll()
		}
	}
}

// taken are the nodes that are to be looked at, sorted.
func (s *signs) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := keysOf(s.dirty)
	clear(s.dirty)
	slices.Sort(list)
	return list
}

func (s *signs) lookAtAll() {
	if s.l.w.table == nil {
		return
	}
	for _, n := range s.l.w.cluster.AllNodes(labels.Everything()) {
		if s.l.scopes.plan.startedBy(n) != "" || leftOn(n, schemas.SignMaintenance(n.Name)) != "" {
			s.look(n.Name)
		}
	}
	for _, m := range s.l.w.table.list() {
		if node, is := schemas.InTable(m.Name); is {
			s.look(node)
		}
	}
}

// at does what is to be done about one node.
func (s *signs) at(ctx context.Context, node string) error {
	var err error
	n := s.l.w.cluster.Node(node)
	name := schemas.SignMaintenance(node)
	sign, is, mark := s.l.scopes.plan.startedBy(n), s.l.w.table.get(name), leftOn(n, name)
	switch {
	case sign != "" && is == nil:
		err = s.want(ctx, wish{
			name: name, node: node, reason: sign + " on the node", uid: mark,
			NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Drain},
		})
	case sign == "" && is != nil:
		err = s.complete(ctx, name)
	case is == nil && mark != "":
		err = s.giveBack(ctx, wish{
			name: name, node: node, reason: "the sign is gone from the node", uid: mark,
			NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Complete},
		})
	default:
		err = nil
	}
	if n != nil {
		delete(s.away, node)
		return err
	}
	if err != nil {
		return err
	}
	return s.gone(ctx, node)
}

// gone completes what requests have asked for of a node that has been away for long.
func (s *signs) gone(ctx context.Context, node string) error {
	name, now := schemas.RequestedMaintenance(node), s.l.w.now()
	if s.l.w.table.get(name) == nil {
		delete(s.away, node)
		return nil
	}
	if s.away[node].IsZero() {
		s.away[node] = now
	}
	if now.Sub(s.away[node]) < left {
		return nil
	}
	return s.complete(ctx, name)
}

// complete has a maintenance completed, if there is one.
func (s *signs) complete(ctx context.Context, name string) error {
	_, _, err := s.l.w.table.change(ctx, name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *objection) {
		if is == nil {
			return nil, nil
		}
		return wish{reason: is.Spec.Reason, NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Complete}}.of(is, s.l.w.now())
	})
	return err
}

// want makes a maintenance. One that is to be completed is left alone: when it is gone the node is looked at again.
func (s *signs) want(ctx context.Context, w wish) error {
	_, no, err := s.l.w.table.change(ctx, w.name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *objection) {
		return w.of(is, s.l.w.now())
	})
	if err == nil && no == nil {
		s.l.w.log.Info("a sign on a node begins a maintenance", "node", w.node, "sign", w.reason)
	}
	return err
}

// giveBack makes a maintenance that takes back what one has left on the node that the table has lost. One that is there does it.
func (s *signs) giveBack(ctx context.Context, w wish) error {
	_, _, err := s.l.w.table.change(ctx, w.name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *objection) {
		if is != nil {
			return nil, nil
		}
		return w.first(s.l.w.now()), nil
	})
	return err
}
