package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Do carries the steps out, in their order. An error means that some could not be, since the API server was not there, was
// overtaken by others again and again, or forbids it: it is to be tried again. What is in the result was done all the same.
// A step on a node that fails does not keep the others from being tried.
func (c *Steps) Do(ctx context.Context, s plan.Decision) (Result, error) {
	var r Result
	if err := c.status(ctx, s, &r); err != nil || r.Dropped != "" {
		return r, err
	}
	if s.Finalizer {
		if err := c.finalizer(ctx, s, true); err != nil {
			return r, err
		}
	}
	var failed []error
	for _, n := range s.Nodes {
		done := c.node(ctx, s, n)
		r.Nodes = append(r.Nodes, done)
		if done.Err != nil {
			failed = append(failed, done.Err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(failed) == 0 && !s.Finalizer {
		return r, c.finalizer(ctx, s, false)
	}
	return r, errors.Join(failed...)
}

// status writes the status of the answer, or says in r why the answer does not hold any more. An object whose status is that
// of the answer already was written by a try before this one, unless its spec is newer.
func (c *Steps) status(ctx context.Context, s plan.Decision, r *Result) error {
	objects := c.objects(s.Name)
	live, err := objects.get(ctx, s.Name)
	switch {
	case apierrors.IsNotFound(err):
		r.Dropped = "it does not exist any more"
		return nil
	case err != nil:
		return err
	case live.UID != s.UID:
		r.Dropped = "another one has its name"
		return nil
	}
	r.Before = live
	same := sameStatus(live.Status, s.Status) && live.Generation == s.Status.ObservedGeneration
	switch {
	case live.ResourceVersion != s.ResourceVersion && !same:
		r.Dropped = "it has changed since that was decided"
		return nil
	case same:
		return nil
	}
	err = objects.status(ctx, s, live)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		r.Dropped = "it has changed since that was decided"
		return nil
	case apierrors.IsInvalid(err): // it would be again
		r.Dropped = "its status was refused: " + err.Error()
		return nil
	}
	r.Wrote = err == nil
	return err
}

// sameStatus compares what would be stored.
func sameStatus(a, b v1alpha1.NodeMaintenanceStatus) bool {
	one, errOne := json.Marshal(a)
	other, errOther := json.Marshal(b)
	return errOne == nil && errOther == nil && bytes.Equal(one, other)
}

// finalizer sees to it that the maintenance has the finalizer, or has it no more.
func (c *Steps) finalizer(ctx context.Context, s plan.Decision, wanted bool) error {
	objects := c.objects(s.Name)
	var err error
	for range tries {
		var live *v1alpha1.NodeMaintenance
		live, err = objects.get(ctx, s.Name)
		if apierrors.IsNotFound(err) || err == nil && live.UID != s.UID {
			return nil
		}
		if err == nil {
			err = objects.finalizer(ctx, s, live, wanted)
		}
		if !overtaken(err) {
			return err
		}
	}
	return err
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// version lets a patch fail with a conflict if the object has another version. A test of it would fail as much else does.
func version(v string) operation { return operation{"replace", "/metadata/resourceVersion", v} }

// overtaken says whether somebody else has changed an object between the look at it and the patch.
func overtaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }
