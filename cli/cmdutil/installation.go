package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/api/client"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Installation is a running Rehome. Use [Flags.Open] to reach one.
type Installation interface {
	// Status returns the current status of Rehome.
	Status(ctx context.Context, q StatusQuery) (client.State, error)
	// Events calls handle with events, one at a time, until ctx ends or handle fails, or without Follow until there are no more.
	Events(ctx context.Context, q EventQuery, handle func(schemas.Event) error) error
	// ExplainPod, ExplainNode, and ExplainWorkload explain what happened, and why. The zero time means all of the history.
	ExplainPod(ctx context.Context, pod types.NamespacedName, since time.Time) (explain.Explanation, error)
	ExplainNode(ctx context.Context, node string) (explain.NodeExplanation, error)
	ExplainWorkload(ctx context.Context, kind string, workload types.NamespacedName) (explain.WorkloadExplanation, error)
	// Send sends a request, again if first is its event. The returned event is of the request, or its receipt: both have the same
	// correlation. It is the zero Event if there is no receipt yet.
	Send(ctx context.Context, r schemas.Request, first schemas.Event) (schemas.Event, error)
	// Sender returns the sender of all requests, or "" if the request has it.
	Sender() string
	Close()
}

// StatusQuery selects parts of the status.
type StatusQuery struct {
	// Part is the only necessary part. Empty means all parts.
	Part Part
	// Limits are the limits of a policy, whose window is the period of the counted moves. nil means that moves are counted by age.
	// The API uses its own policy.
	Limits *policy.Limits
}

// Part is a part of the status that can be read alone.
type Part string

// The parts.
const (
	PartLedger       Part = "ledger" // moves and circuit breakers
	PartDeferred     Part = "deferred"
	PartRequests     Part = "requests"
	PartMaintenances Part = "maintenances"
)

// EventQuery selects events.
type EventQuery struct {
	filter.Filter
	// Since is the time of the first event. Zero means everything or, with Follow, only new events.
	Since  time.Time
	Follow bool
	// Request is an own request: only events that can follow from it are needed. Begin sends it. Begin is called when later events
	// are received for sure, and again after events may have been missed.
	Request *schemas.Request
	Begin   func(context.Context) error
}

// localWithin limits the connection attempt to a Rehome on this machine.
const localWithin = time.Second

// Open connects to the running Rehome, at the first of these places that is configured or exists:
//
//	--server                            its API at a URL
//	--nats-url, --store-dir, ...        its bus
//	the socket of a local `rehome run`  its bus
//	the kubeconfig                      its API, in the pod
//
// If --context or --kubeconfig was typed, only a flag or a variable chooses a bus: the socket may be of another cluster.
func (f *Flags) Open(ctx context.Context, p bus.Participant) (Installation, error) {
	s := f.Settings
	if s.Server != "" {
		return f.openAPI(client.Config{Server: s.Server, TokenFile: s.ServerTokenFile, CAFile: s.ServerCAFile}, func() {})
	}
	local, err := f.hasBus()
	switch {
	case err != nil:
		return nil, err
	case local:
		return openBus(s, p)
	}
	dialer, err := PodDialer(s)
	if err != nil {
		return nil, fmt.Errorf("no running Rehome: this machine has no bus, and %w; "+
			"want --server, --nats-url, or a cluster in the kubeconfig", err)
	}
	return f.openAPI(client.Config{Server: InPod(), Dial: dialer.Dial}, func() { _ = dialer.Close() })
}

// InPod returns the URL of the API inside its pod.
func InPod() string { return fmt.Sprintf("http://localhost:%d", client.LocalPort) }

// PodDialer connects to the API in its pod.
func PodDialer(s settings.Settings) (*client.PodDialer, error) {
	config, err := settings.ClusterConfig(s)
	if err != nil {
		return nil, err
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	search := client.Search{Namespace: s.Namespace, Leases: s.LeaseNamespace}
	return &client.PodDialer{Config: config, Port: client.LocalPort, Find: func(ctx context.Context) (types.NamespacedName, error) {
		return client.FindPod(ctx, c, search)
	}}, nil
}

// hasBus reports whether the settings name a bus, or this machine has one.
func (f *Flags) hasBus() (bool, error) {
	s := f.Settings
	if s.NATSURL != "" || s.StoreDir != "" {
		return true, nil
	}
	o, err := settings.BusOptions(s, "")
	if err != nil {
		return false, nil //nolint:nilerr // no local bus without a cache directory
	}
	conn, err := net.DialTimeout("unix", o.Socket, localWithin)
	switch {
	case errors.Is(err, os.ErrPermission):
		return false, fmt.Errorf("the bus on this machine: %w", err)
	case err != nil:
		return false, nil //nolint:nilerr // no local bus
	}
	_ = conn.Close()
	for _, flag := range []string{"context", "kubeconfig"} {
		if f.c.Flags().Changed(flag) {
			return false, fmt.Errorf("--%s: it does not choose the installation, because a rehome runs on this machine; "+
				"for the local one, add --store-dir %s; for another one, add --server with the address that `rehome ui` prints",
				flag, filepath.Dir(o.Socket))
		}
	}
	return true, nil
}
