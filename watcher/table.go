package watcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Maintenances is what the watcher needs of the table of maintenances that are no objects of the API server. Errors are those
// of the API server: [apierrors.IsNotFound], and [apierrors.IsConflict] for one that has changed since it was read.
type Maintenances interface {
	// Follow hands over every maintenance, calls synced, and then hands over each change, one at a time, until ctx ends. is is
	// nil for one that is not there any more.
	Follow(ctx context.Context, changed func(name string, is *v1alpha1.NodeMaintenance), synced func()) error
	Get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error)
	// Put stores m in the place of the one with its resource version, or if it has none as a new one.
	Put(ctx context.Context, m *v1alpha1.NodeMaintenance) (resourceVersion string, err error)
}

// table follows the maintenances of the table, and changes what is wanted of them. Its methods may be called from many
// goroutines.
type table struct {
	bus    Maintenances
	w      *Watcher
	synced atomic.Bool

	mu  sync.Mutex
	all map[string]*v1alpha1.NodeMaintenance
}

// run follows the table until ctx ends.
func (t *table) run(ctx context.Context) {
	err := t.bus.Follow(ctx, t.changed, func() {
		t.synced.Store(true)
		t.w.nowKnown()
	})
	if err != nil && ctx.Err() == nil {
		t.w.log.Error("maintenances of the bus cannot be followed", "error", err)
	}
}

func (t *table) changed(name string, is *v1alpha1.NodeMaintenance) {
	if _, can := schemas.InTable(name); !can {
		t.w.log.Error("a maintenance in the table has a name that none can have, and is left out", "name", name)
		return
	}
	t.mu.Lock()
	old := t.all[name]
	if t.all == nil {
		t.all = map[string]*v1alpha1.NodeMaintenance{}
	}
	if t.all[name] = is; is == nil {
		delete(t.all, name)
	}
	t.mu.Unlock()
	t.w.maintenanceChanged(old, is, !t.synced.Load())
}

// get is a maintenance as it was shown last. nil: there is none.
func (t *table) get(name string) *v1alpha1.NodeMaintenance {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[name]
}

// list are all maintenances as they were shown last, in no order.
func (t *table) list() []*v1alpha1.NodeMaintenance {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*v1alpha1.NodeMaintenance
	for _, m := range t.all {
		list = append(list, m)
	}
	return list
}

// tableTries is how often a change is tried that others overtake, before it is tried again later.
const tableTries = 5

// read is a maintenance as it is now. nil: there is none.
func (t *table) read(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	is, err := t.bus.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return is, err
}

// change stores what want makes of a maintenance, or of nil if there is none. want is called again when somebody else was
// faster, and answers nil when nothing is to be changed. The result is what is stored then, nil if there is none. A dry run
// changes nothing: the actuator would carry it out as soon as one runs that is none.
func (t *table) change(
	ctx context.Context, name string, want func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *objection),
) (*v1alpha1.NodeMaintenance, *objection, error) {
	if t.w.config.DryRun {
		return nil, refuse(schemas.ReceiptNotAllowed,
			"the watcher runs with --dry-run, and changes no maintenance: nothing was stored; ask when it runs without"), nil
	}
	for range tableTries {
		is, err := t.read(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		next, no := want(is)
		if no != nil || next == nil {
			return is, no, nil
		}
		_, err = t.bus.Put(ctx, next)
		if err == nil {
			return next, nil, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("maintenance %s: %w", name, errOvertaken)
}

var errOvertaken = errors.New("others change it again and again")
