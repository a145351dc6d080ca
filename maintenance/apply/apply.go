// Package maintenance carries out what a maintenance wants besides moves: its status is written, its finalizer is set, and
// nodes are cordoned, given back and told about by their conditions.
//
// # What is promised
//
//   - The status comes first. If the object is another one by now, or somebody has changed it since the answer was decided,
//     nothing is done at all.
//   - The finalizer is there before a node is touched, and goes after the last one was.
//   - A node is changed only if it is, in its cordon and its mark, as it was when that was decided. The cordon and the mark
//     are one patch, which the API server refuses if somebody else wrote in between.
//   - The mark of a maintenance that holds the node is never replaced by that of another one.
//   - A node that was cordoned before, or that somebody else has cordoned since, stays cordoned when it is given back.
//   - Right before each write to the API server, [Config.LeaseValid] is asked whether this process still holds its lease.
//   - Everything may be done again, from the beginning and from wherever a process was killed; it then ends the same.
//
// Maintenances are objects of the API server, or entries of a [Table], told apart by a slash in their names. For both the same
// holds; an entry is removed where an object loses its finalizer for good, when everything is given back.
//
// # What is not
//
// Whether a node should be cordoned is decided elsewhere. Conditions are set without a look at who else sets them.
package apply

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Manager is the field manager of everything that is changed.
const Manager = "rehome"

// callTimeout bounds one call to the API server.
const callTimeout = 10 * time.Second

// tries is how often a change of one object is tried that others overtake, before the whole is tried again later.
const tries = 5

// Config is what [Steps] are made of.
type Config struct {
	// Client needs the rights to get and patch nodes; nodes/status is patched if that is allowed.
	Client kubernetes.Interface
	// Kinds is made by [NewClient]. It needs the rights to get and patch nodemaintenances and to patch their status.
	Kinds rest.Interface
	// Table has the maintenances whose names have a slash. nil: there are none.
	Table Table
	// LeaseValid says whether this process still holds its lease, by its own clock. nil: always.
	LeaseValid func() bool
	// DryRun asks the API server with dryRun=All.
	DryRun bool
	// Now is the clock. nil: time.Now.
	Now func() time.Time
	// Log is told once when the conditions of nodes may not be set. nil: slog.Default().
	Log *slog.Logger
}

// Steps carries out the steps of maintenances. It may be used from several goroutines at once, though not for the same
// maintenance. [New] makes one.
type Steps struct {
	cfg       Config
	forbidden atomic.Bool // conditions of nodes: said
}

// New makes Steps. It asks nothing of the API server.
func New(cfg Config) *Steps {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Steps{cfg: cfg}
}

// NewClient makes a client of the kinds of package v1alpha1, in JSON. It does not connect. The error is one of the config.
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

// ErrNotLeading is in the error of a write that was not made because the lease had run out.
var ErrNotLeading = errors.New("the lease has run out, and another process may lead")

// leading returns [ErrNotLeading] if the lease has run out.
func (c *Steps) leading() error {
	if c.cfg.LeaseValid != nil && !c.cfg.LeaseValid() {
		return ErrNotLeading
	}
	return nil
}

// Result is what was done.
type Result struct {
	// Dropped says why nothing was done, or nothing more: the answer is outdated. Empty: it is not.
	Dropped string
	// Before is the maintenance as it was found. nil: it was not.
	Before *v1alpha1.NodeMaintenance
	// Wrote: its status was written. If not, it was that of the answer already, or Dropped says why not.
	Wrote bool
	// Nodes are the steps on nodes, in their order, as far as it came. There is none before the status and the finalizer are as
	// they are to be.
	Nodes []Done
}

// Done is what became of one step.
type Done struct {
	plan.NodeStep
	Outcome Outcome
	// Message says it in words, for people.
	Message string
	// Again: the node had been cordoned for the maintenance, and somebody has uncordoned it.
	Again bool
	// Err is why it is to be tried again. nil: it is not.
	Err error
}

// Outcome is what became of a step on a node.
type Outcome string

// The outcomes.
const (
	Changed   Outcome = "changed"   // it was done
	Unchanged Outcome = "unchanged" // it was as it is to be already
	Outdated  Outcome = "outdated"  // the node is not as it was when the step was decided, or not there any more
	Taken     Outcome = "taken"     // another maintenance holds the node
	Early     Outcome = "early"     // it was cordoned less than a minute ago, and is not cordoned again yet
	Failed    Outcome = "failed"    // the API server could not be asked, or refused it
)
