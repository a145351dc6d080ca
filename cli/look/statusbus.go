package look

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

// deferredWithin is how far back verdicts are read to find out what is deferred: twice the time in which everything is
// evaluated anew by default, when what is still to move gets another verdict.
const deferredWithin = time.Hour

// DeferredPod is a pod of which the last verdict is that it is not moved now.
type DeferredPod struct {
	Pod      schemas.PodRef     `json:"pod"`
	Node     string             `json:"node"`
	Profile  string             `json:"profile"`
	Strategy string             `json:"strategy"`
	Reason   schemas.ReasonCode `json:"reason"`
	Message  string             `json:"message"`
	// Since is the first of the verdicts in a row that say so, and Last the last one; Times is how many there are.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Times int       `json:"times"`
	// Again is when what holds it is over at the earliest. Zero: that is not known.
	Again time.Time `json:"again,omitzero"`
}

// wish is what one strategy of a profile wants of a pod.
type wish struct {
	pod               types.UID
	profile, strategy string
}

// Deferrals are the pods that are deferred, by the verdicts that it is told, oldest first.
type Deferrals map[wish]DeferredPod

// Verdict takes a verdict in.
func (d Deferrals) Verdict(v schemas.Verdict, at time.Time) {
	key := wish{v.Intent.Pod.UID, v.Profile, v.Strategy}
	switch {
	case v.Outcome == schemas.Deferred:
		p, before := d[key]
		if !before {
			p.Since = at
		}
		p.Pod, p.Node, p.Profile, p.Strategy = v.Intent.Pod, v.Intent.Node, v.Profile, v.Strategy
		p.Reason, p.Message, p.Last, p.Again = v.Reason, v.Message, at, v.Again
		p.Times++
		d[key] = p
	case v.Outcome.Moves() && !v.DryRun:
		for other := range d {
			if other.pod == key.pod {
				delete(d, other)
			}
		}
	default:
		delete(d, key)
	}
}

// List is all of them, those that have waited longest first.
func (d Deferrals) List() []DeferredPod {
	all := []DeferredPod{}
	for _, p := range d {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b DeferredPod) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Pod.String(), b.Pod.String()), cmp.Compare(a.Strategy, b.Strategy),
			cmp.Compare(a.Profile, b.Profile))
	})
	return all
}

// readDeferred reads what is deferred by the verdicts of the last hour.
func readDeferred(ctx context.Context, b *bus.Bus, now time.Time) ([]DeferredPod, error) {
	d := Deferrals{}
	query := bus.Query{Channels: []string{bus.VerdictChannels}, Since: now.Add(-deferredWithin)}
	err := b.Events(ctx, query, func(e schemas.Event) error {
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			d.Verdict(v, e.Time)
		}
		return nil
	})
	return d.List(), err
}

// OpenRequest is a request that is not finished.
type OpenRequest struct {
	schemas.Request
	Since time.Time `json:"since"` // when the bus stored it
}

func readRequests(ctx context.Context, b *bus.Bus) ([]OpenRequest, error) {
	open, err := b.OpenRequests(ctx)
	all := []OpenRequest{}
	for _, o := range open {
		if r, err := schemas.Decode[schemas.Request](o.Event); err == nil {
			all = append(all, OpenRequest{r, o.Stored.UTC()})
		}
	}
	return all, err
}

// readBus adds what the bus says to the status.
func (st *Status) readBus(ctx context.Context, b *bus.Bus) error {
	var err error
	if st.Deferred, err = readDeferred(ctx, b, st.Time); err != nil {
		return err
	}
	if st.Requests, err = readRequests(ctx, b); err != nil {
		return err
	}
	if st.Maintenances, err = readMaintenances(ctx, b); err != nil {
		return err
	}
	if st.DeadLetters, err = b.DeadCounts(ctx); err != nil {
		return err
	}
	st.Streams, err = b.Status(ctx)
	return err
}
