package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Table is where maintenances are kept that are no objects of the API server, by names with a slash. Its errors are those of the
// API server: [apierrors.IsNotFound], and [apierrors.IsConflict] for one that has changed since it was read.
type Table interface {
	Get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error)
	// Put stores m in the place of the one with its resource version.
	Put(ctx context.Context, m *v1alpha1.NodeMaintenance) (resourceVersion string, err error)
	// Delete removes the one with the resource version of m.
	Delete(ctx context.Context, m *v1alpha1.NodeMaintenance) error
}

// objects is where a maintenance is kept. What rests on a look at it fails with [apierrors.IsConflict] if it has changed since.
type objects interface {
	get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error)
	status(ctx context.Context, s plan.Decision, live *v1alpha1.NodeMaintenance) error
	// finalizer sees to it that it has the finalizer, or has it no more.
	finalizer(ctx context.Context, s plan.Decision, live *v1alpha1.NodeMaintenance, wanted bool) error
}

// objects are those that the maintenance of the name belongs to.
func (c *Steps) objects(name string) objects {
	_, is := schemas.InTable(name)
	switch {
	case is && c.cfg.Table != nil:
		return tabled{c.cfg.Table, c.cfg.DryRun}
	case len(validation.IsDNS1123Subdomain(name)) > 0: // somebody has made it up, perhaps in the mark of a node
		return nowhere{}
	}
	return served{c}
}

// served are the objects of the API server.
type served struct{ *Steps }

func (c served) get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var m v1alpha1.NodeMaintenance
	err := c.cfg.Kinds.Get().Resource(v1alpha1.NodeMaintenances).Name(name).Do(ctx).Into(&m)
	if err != nil {
		return nil, fmt.Errorf("look at maintenance %s: %w", name, err)
	}
	return &m, nil
}

func (c served) status(ctx context.Context, s plan.Decision, _ *v1alpha1.NodeMaintenance) error {
	return c.patch(ctx, s.Name, []operation{
		{"test", "/metadata/uid", s.UID}, version(s.ResourceVersion), {"add", "/status", s.Status},
	}, "status")
}

// finalizer leaves one that is being deleted as it is if it has none: it cannot get it. In a dry run that sets it, the object
// stays without.
func (c served) finalizer(ctx context.Context, s plan.Decision, live *v1alpha1.NodeMaintenance, wanted bool) error {
	at := slices.Index(live.Finalizers, schemas.MaintenanceFinalizer)
	if wanted == (at >= 0) || wanted && live.DeletionTimestamp != nil {
		return nil
	}
	change := operation{"remove", fmt.Sprintf("/metadata/finalizers/%d", at), nil}
	switch {
	case wanted && len(live.Finalizers) == 0:
		change = operation{"add", "/metadata/finalizers", []string{schemas.MaintenanceFinalizer}}
	case wanted:
		change = operation{"add", "/metadata/finalizers/-", schemas.MaintenanceFinalizer}
	}
	return c.patch(ctx, s.Name, []operation{version(live.ResourceVersion), change})
}

func (c served) patch(ctx context.Context, name string, patch []operation, subresource ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(patch)
	if err == nil {
		err = c.leading()
	}
	if err != nil {
		return fmt.Errorf("change maintenance %s: %w", name, err)
	}
	r := c.cfg.Kinds.Patch(types.JSONPatchType).Resource(v1alpha1.NodeMaintenances).Name(name).SubResource(subresource...).
		Param("fieldManager", Manager).Body(body)
	if c.cfg.DryRun {
		r = r.Param("dryRun", "All")
	}
	if err := r.Do(ctx).Error(); err != nil {
		return fmt.Errorf("change maintenance %s: %w", name, err)
	}
	return nil
}

// tabled are the entries of a table. In a dry run they are not changed.
type tabled struct {
	table  Table
	dryRun bool
}

func (t tabled) get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	m, err := t.table.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look at maintenance %s: %w", name, err)
	}
	return m, nil
}

func (t tabled) put(ctx context.Context, m *v1alpha1.NodeMaintenance) error {
	if t.dryRun {
		return nil
	}
	if _, err := t.table.Put(ctx, m); err != nil {
		return fmt.Errorf("change maintenance %s: %w", m.Name, err)
	}
	return nil
}

func (t tabled) status(ctx context.Context, s plan.Decision, live *v1alpha1.NodeMaintenance) error {
	m := live.DeepCopy()
	m.ResourceVersion, m.Status = s.ResourceVersion, s.Status
	return t.put(ctx, m)
}

// finalizer removes one that is complete, of which nothing is left on the node. Nobody else removes it, and nobody ever deletes
// it: so the finalizer says as elsewhere that a node may be touched.
func (t tabled) finalizer(ctx context.Context, s plan.Decision, live *v1alpha1.NodeMaintenance, wanted bool) error {
	has := slices.Contains(live.Finalizers, schemas.MaintenanceFinalizer)
	m := live.DeepCopy()
	switch {
	case !wanted && live.Spec.Stage == v1alpha1.Complete:
		if t.dryRun || live.Generation != s.Status.ObservedGeneration {
			return nil
		}
		if err := t.table.Delete(ctx, m); err != nil {
			return fmt.Errorf("remove maintenance %s: %w", m.Name, err)
		}
		return nil
	case wanted == has:
		return nil
	case wanted:
		m.Finalizers = append(m.Finalizers, schemas.MaintenanceFinalizer)
	default:
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == schemas.MaintenanceFinalizer })
	}
	return t.put(ctx, m)
}

// nowhere has no maintenances.
type nowhere struct{}

func (nowhere) get(_ context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	return nil, apierrors.NewNotFound(v1alpha1.GroupVersion().WithResource(v1alpha1.NodeMaintenances).GroupResource(), name)
}

var errNowhere = errors.New("no maintenance can have that name")

func (nowhere) status(context.Context, plan.Decision, *v1alpha1.NodeMaintenance) error {
	return errNowhere
}

func (nowhere) finalizer(context.Context, plan.Decision, *v1alpha1.NodeMaintenance, bool) error {
	return errNowhere
}
