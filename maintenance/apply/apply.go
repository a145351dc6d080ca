// Package apply executes a decision of package plan: it writes the status of the maintenance, sets its finalizer,
// cordons nodes, gives them back, and sets their conditions.
//
//	Do (apply.go) ─▶ writeStatus ─▶ setFinalizer (store.go) ─▶ node (node.go) ─▶ setFinalizer
//
// # Guarantees
//
//   - The status comes first. If the object has changed since the decision, nothing is done.
//   - The finalizer is set before the first node is touched, and removed after the last one.
//   - A node is changed only if its cordon and its mark are as they were at the decision. Both are changed by one patch,
//     which the API server refuses if the node has changed in between.
//   - The mark of a maintenance that holds the node is never replaced by another maintenance.
//   - A node that was cordoned before, or that another client has cordoned since, stays cordoned when it is given back.
//   - [Config.LeaseValid] is called right before each write to the API server.
//   - Repeating everything, from the beginning or from wherever a process was killed, leads to the same result.
//
// Maintenances are objects of the API server, or entries of a [Table] with a slash in their names. An object loses its
// finalizer where a table entry is removed.
package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Manager is the field manager of all changes.
const Manager = "rehome"

// callTimeout bounds one call to the API server.
const callTimeout = 10 * time.Second

// Config configures [Steps].
type Config struct {
	// Client needs the rights to get and patch nodes. If permitted, it also patches nodes/status.
	Client kubernetes.Interface
	// Kinds is a client from [NewClient]. It needs the rights to get and patch nodemaintenances and to patch their
	// status.
	Kinds rest.Interface
	// Table has the maintenances whose names contain a slash. nil means there are none.
	Table Table
	// LeaseValid reports whether this process still holds its lease, by its own clock. nil means always.
	LeaseValid func() bool
	// DryRun sends dryRun=All to the API server, and does not change the table.
	DryRun bool
	// Log gets one line if the conditions of nodes may not be set. nil means slog.Default().
	Log *slog.Logger
}

// Steps executes decisions. It may be used from several goroutines at once, but not for the same maintenance.
type Steps struct {
	cfg       Config
	forbidden atomic.Bool // the missing right to set conditions was logged
}

// New returns Steps. It calls no server.
func New(cfg Config) *Steps {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Steps{cfg: cfg}
}

// NewClient returns a client for the kinds of package v1alpha1, in JSON. It does not connect.
func NewClient(config *rest.Config) (rest.Interface, error) {
	kinds := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(kinds); err != nil {
		return nil, err
	}
	version := v1alpha1.GroupVersion()
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &version, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(kinds).WithoutConversion()
	return rest.RESTClientFor(config)
}

// ErrNotLeading is in the error of a write that was not made because the lease has expired.
var ErrNotLeading = errors.New("the lease has expired, and another process may lead")

// Result is the result of a decision.
type Result struct {
	// Dropped is the reason why a stale decision was not executed, or empty.
	Dropped string
	// Before is the maintenance before the decision. nil means that the status of the decision is not known to be stored.
	Before *v1alpha1.NodeMaintenance
	// Wrote means that the status was written. Otherwise it was that of the decision already, or the decision was
	// dropped.
	Wrote bool
	// Nodes are the steps on nodes that were tried, in order.
	Nodes []Done
}

// Done is the result of one step.
type Done struct {
	plan.NodeStep
	Outcome Outcome
	Message string
	// ConditionsRefused means that the right to set the missing conditions is missing.
	ConditionsRefused bool
	// Again means that the node had been cordoned for the maintenance and was uncordoned since.
	Again bool
	// Err is the reason why the step must be tried again.
	Err error
}

// Outcome is the result of a step on a node.
type Outcome string

// The outcomes.
const (
	Changed   Outcome = "changed"   // it was done
	Unchanged Outcome = "unchanged" // it was done before
	Outdated  Outcome = "outdated"  // the node has changed since the decision, or is gone
	Taken     Outcome = "taken"     // another maintenance holds the node
	Failed    Outcome = "failed"    // the API server could not be reached, or refused it
)

// Applied reports whether [Steps.Do] would change nothing if m, which the decision was made from, is the newest version. If
// there is a newer one, its event leads to another decision. A table entry always needs Do, which removes it at its end.
func Applied(m *v1alpha1.NodeMaintenance, d plan.Decision) bool {
	_, inTable := schemas.InTable(d.Name)
	return !inTable && !d.Finalizer && len(d.Nodes) == 0 && !slices.Contains(m.Finalizers, schemas.MaintenanceFinalizer) &&
		hasStatus(m, d)
}

// Do executes a decision. After an error call it again; the result contains the completed steps. A failed step on a
// node does not block the others.
func (c *Steps) Do(ctx context.Context, d plan.Decision) (Result, error) {
	var r Result
	if err := c.writeStatus(ctx, d, &r); err != nil || r.Dropped != "" {
		return r, err
	}
	if d.Finalizer {
		if err := c.setFinalizer(ctx, d, true); err != nil {
			return r, err
		}
	}
	var failed []error
	for _, n := range d.Nodes {
		done := c.node(ctx, d, n)
		r.Nodes = append(r.Nodes, done)
		if done.Err != nil {
			failed = append(failed, done.Err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(failed) == 0 && !d.Finalizer {
		return r, c.setFinalizer(ctx, d, false)
	}
	return r, errors.Join(failed...)
}

// writeStatus writes the status, or stores in r why the decision is stale. If the object has the status already, an
// earlier attempt wrote it, unless its spec is newer.
func (c *Steps) writeStatus(ctx context.Context, d plan.Decision, r *Result) error {
	store := c.store(d.Name)
	live, err := store.get(ctx, d.Name)
	switch {
	case apierrors.IsNotFound(err):
		r.Dropped = "it does not exist any more"
		return nil
	case err != nil:
		return err
	case live.UID != d.UID:
		r.Dropped = "another one has its name"
		return nil
	}
	switch {
	case hasStatus(live, d):
		r.Before = live
		return nil
	case live.ResourceVersion != d.ResourceVersion:
		r.Dropped = "it has changed since that was decided"
		return nil
	}
	err = store.writeStatus(ctx, d, live)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		r.Dropped = "it has changed since that was decided"
		return nil
	}
	if err != nil {
		return err
	}
	r.Before, r.Wrote = live, true
	return nil
}

// hasStatus reports whether m has the status of the decision, and the spec that the status is about.
func hasStatus(m *v1alpha1.NodeMaintenance, d plan.Decision) bool {
	return sameStatus(m.Status, d.Status) && m.Generation == d.Status.ObservedGeneration
}

// sameStatus compares the JSON of two statuses.
func sameStatus(a, b v1alpha1.NodeMaintenanceStatus) bool {
	one, errOne := json.Marshal(a)
	other, errOther := json.Marshal(b)
	return errOne == nil && errOther == nil && bytes.Equal(one, other)
}

// setFinalizer adds or removes the finalizer of the maintenance.
func (c *Steps) setFinalizer(ctx context.Context, d plan.Decision, wanted bool) error {
	store := c.store(d.Name)
	return again(func() error {
		live, err := store.get(ctx, d.Name)
		if apierrors.IsNotFound(err) || err == nil && live.UID != d.UID {
			return nil
		}
		if err != nil {
			return err
		}
		return store.setFinalizer(ctx, d, live, wanted)
	})
}

// again calls f up to five times while the object changes between f's read and its patch.
func again(f func() error) error {
	return retry.OnError(wait.Backoff{Steps: 5}, func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsInvalid(err)
	}, f)
}

// write prepares a write to the API server: its body, and the check of the lease.
func (c *Steps) write(patch any) (body []byte, err error) {
	if body, err = json.Marshal(patch); err != nil {
		return nil, err
	}
	if c.cfg.LeaseValid != nil && !c.cfg.LeaseValid() {
		return nil, ErrNotLeading
	}
	return body, nil
}

// operation is one operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// version makes a patch fail with a conflict if the object has another version. A failing test operation would be an
// invalid patch.
func version(v string) operation { return operation{"replace", "/metadata/resourceVersion", v} }
