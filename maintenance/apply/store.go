package apply

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Table stores maintenances that are not objects of the API server, by names with a slash. Its errors are API server
// errors: [apierrors.IsNotFound], and [apierrors.IsConflict] if a maintenance has changed since it was read.
type Table interface {
	Get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error)
	// Put stores m and replaces the version that m was read as.
	Put(ctx context.Context, m *v1alpha1.NodeMaintenance) (resourceVersion string, err error)
	// Delete removes the maintenance with the resource version of m.
	Delete(ctx context.Context, m *v1alpha1.NodeMaintenance) error
}

// store stores maintenances. Its writes fail with [apierrors.IsConflict] if the object has changed.
type store interface {
	get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error)
	writeStatus(ctx context.Context, d plan.Decision, live *v1alpha1.NodeMaintenance) error
	setFinalizer(ctx context.Context, d plan.Decision, live *v1alpha1.NodeMaintenance, wanted bool) error
}

// store returns the store for the name.
func (c *Steps) store(name string) store {
	if _, is := schemas.InTable(name); is && c.cfg.Table != nil {
		return tableStore{c.cfg.Table, c.cfg.DryRun}
	}
	return apiStore{c}
}

// apiStore stores objects of the API server. It writes patches, because a Go type would write the spec back in another
// form.
type apiStore struct{ *Steps }

func (c apiStore) get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 { // it comes from the mark on a node, which its kubelet can write
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion().WithResource(v1alpha1.NodeMaintenances).GroupResource(), name)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var m v1alpha1.NodeMaintenance
	if err := c.cfg.Kinds.Get().Resource(v1alpha1.NodeMaintenances).Name(name).Do(ctx).Into(&m); err != nil {
		return nil, fmt.Errorf("get maintenance %s: %w", name, err)
	}
	return &m, nil
}

func (c apiStore) writeStatus(ctx context.Context, d plan.Decision, _ *v1alpha1.NodeMaintenance) error {
	return c.patch(ctx, d.Name, []operation{
		{"test", "/metadata/uid", d.UID}, version(d.ResourceVersion), {"add", "/status", d.Status},
	}, "status")
}

// setFinalizer does not add a finalizer to a terminating object, which the API server would refuse.
func (c apiStore) setFinalizer(ctx context.Context, d plan.Decision, live *v1alpha1.NodeMaintenance, wanted bool) error {
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
	return c.patch(ctx, d.Name, []operation{version(live.ResourceVersion), change})
}

func (c apiStore) patch(ctx context.Context, name string, patch []operation, subresource ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := c.write(patch)
	if err == nil {
		r := c.cfg.Kinds.Patch(types.JSONPatchType).Resource(v1alpha1.NodeMaintenances).Name(name).SubResource(subresource...).
			Param("fieldManager", Manager).Body(body)
		if c.cfg.DryRun {
			r = r.Param("dryRun", "All")
		}
		err = r.Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("patch maintenance %s: %w", name, err)
	}
	return nil
}

// tableStore stores the entries of a table. A dry run does not change them.
type tableStore struct {
	table  Table
	dryRun bool
}

func (t tableStore) get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	m, err := t.table.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("get maintenance %s: %w", name, err)
	}
	return m, nil
}

func (t tableStore) put(ctx context.Context, m *v1alpha1.NodeMaintenance) error {
	if t.dryRun {
		return nil
	}
	if _, err := t.table.Put(ctx, m); err != nil {
		return fmt.Errorf("store maintenance %s: %w", m.Name, err)
	}
	return nil
}

func (t tableStore) writeStatus(ctx context.Context, d plan.Decision, live *v1alpha1.NodeMaintenance) error {
	m := live.DeepCopy()
	m.ResourceVersion, m.Status = d.ResourceVersion, d.Status
	return t.put(ctx, m)
}

// setFinalizer removes a completed entry that needs no finalizer anymore, because nothing else deletes entries.
func (t tableStore) setFinalizer(ctx context.Context, d plan.Decision, live *v1alpha1.NodeMaintenance, wanted bool) error {
	if !wanted && live.Spec.Stage == v1alpha1.Complete {
		if t.dryRun || live.Generation != d.Status.ObservedGeneration {
			return nil
		}
		if err := t.table.Delete(ctx, live.DeepCopy()); err != nil {
			return fmt.Errorf("remove maintenance %s: %w", live.Name, err)
		}
		return nil
	}
	if wanted == slices.Contains(live.Finalizers, schemas.MaintenanceFinalizer) {
		return nil
	}
	m := live.DeepCopy()
	if m.Finalizers = nil; wanted {
		m.Finalizers = []string{schemas.MaintenanceFinalizer}
	}
	return t.put(ctx, m)
}
