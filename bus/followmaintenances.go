package bus

import (
	"context"
	"sync"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Follow hands over every maintenance that is there, calls synced, and then hands over each change, one at a time and in
// order, until ctx ends. Then it returns nil. is is nil for one that is not there any more. Losses of the connection are waited
// out: what has changed meanwhile is handed over, and what has not may be handed over again. synced is called once. What cannot
// be read is logged and left out, as if it had not been stored.
func (m Maintenances) Follow(
	ctx context.Context, changed func(name string, is *v1alpha1.NodeMaintenance), synced func(),
) error {
	f := followed{bus: m.bus, changed: changed, synced: sync.OnceFunc(synced), known: map[string]bool{}}
	m.bus.forever(ctx, "maintenances", f.session)
	return nil
}

// followed is a table of maintenances that is being followed.
type followed struct {
	bus     *Bus
	changed func(name string, is *v1alpha1.NodeMaintenance)
	synced  func()
	known   map[string]bool // those that were handed over and are there, as far as is known
}

// session reads the whole table, and then what is new.
func (f *followed) session(ctx context.Context) error {
	r, err := f.bus.read(ctx, StreamMaintenances, everything())
	if err != nil {
		return err
	}
	defer r.close()
	seen := map[string]bool{}
	_, err = r.rest(ctx, 0, func(l letter) error {
		seen[f.take(l)] = true
		return nil
	})
	if err != nil { // also of silence: what was not seen would be taken for removed
		return err
	}
	for name := range f.known {
		if !seen[name] {
			f.hand(name, nil)
		}
	}
	f.synced()
	for {
		m, meta, err := r.next(ctx)
		if err != nil {
			return err
		}
		f.take(letterOf(m, meta))
	}
}

// take hands over one entry, and returns its name.
func (f *followed) take(l letter) string {
	is, err := maintenanceOf(l)
	name, ok := nameOf(l)
	if err != nil || !ok {
		f.bus.log.Error("a maintenance in the table cannot be read and is left out", "key", l.Subject, "error", err)
		return name
	}
	f.hand(name, is)
	return name
}

func (f *followed) hand(name string, is *v1alpha1.NodeMaintenance) {
	if is == nil && !f.known[name] {
		return
	}
	if f.known[name] = true; is == nil {
		delete(f.known, name)
	}
	f.changed(name, is)
}
