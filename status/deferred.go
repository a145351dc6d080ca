package status

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// deferredWithin is how long a deferred pod is listed after its last verdict: twice the default time between two resyncs. A pod
	// that is still deferred gets another verdict after each resync.
	deferredWithin = time.Hour
	// mostDeferred limits the deferred pods in memory, of which a state of the API has all. More are too many to read.
	mostDeferred = 10_000
	// longestMessage limits the message of a deferred pod, in bytes, like the note of a Kubernetes Event. mostBlockers limits its
	// blockers, and longestName each of its names, like the API server.
	longestMessage, mostBlockers, longestName = 1024, 20, 253
)

// DeferredPod is a pod whose last verdict defers its move.
type DeferredPod struct {
	Pod      schemas.PodRef     `json:"pod"`
	Node     string             `json:"node"`
	Profile  string             `json:"profile"`
	Strategy string             `json:"strategy"`
	Reason   schemas.ReasonCode `json:"reason"`
	Message  string             `json:"message"`
	// Blockers are the objects that the last verdict names as the reason, such as PodDisruptionBudgets.
	Blockers []schemas.ObjectRef `json:"blockers,omitempty"`
	// Since and Last are the times of the first and the last verdict in a row that defers the pod. Times counts them.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Times int       `json:"times"`
	// Again is the earliest time of the next try. Zero means not known.
	Again time.Time `json:"again,omitzero"`
}

// intentKey identifies the intents of a strategy about a pod.
type intentKey struct {
	pod               types.UID
	profile, strategy string
}

// Deferrals collects the pods that are deferred: at most 10,000. If there are more, it ignores new ones, because the list begins
// with the longest deferred ones. It shortens long messages and lists of blockers, and ignores verdicts with impossible names.
type Deferrals map[intentKey]DeferredPod

// Verdict adds a verdict. Call it in the order of the verdicts.
func (d Deferrals) Verdict(v schemas.Verdict, at time.Time) {
	key := intentKey{v.Intent.Pod.UID, v.Profile, v.Strategy}
	switch {
	case v.Outcome == schemas.Deferred:
		p, before := d[key]
		if !before && len(d) >= mostDeferred {
			d.Forget(at)
		}
		if !before && len(d) >= mostDeferred || tooLong(v.Profile, v.Strategy, string(v.Reason), v.Intent.Node,
			v.Intent.Pod.Namespace, v.Intent.Pod.Name, string(v.Intent.Pod.UID)) {
			return
		}
		if !before {
			p.Since = at
		}
		p.Pod, p.Node, p.Profile, p.Strategy = v.Intent.Pod, v.Intent.Node, v.Profile, v.Strategy
		p.Reason, p.Message, p.Last, p.Again, p.Blockers = v.Reason, shortened(v.Message), at, v.Again, blockers(v.Blockers)
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

func tooLong(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return len(name) > longestName })
}

func shortened(message string) string {
	if len(message) <= longestMessage {
		return message
	}
	return strings.ToValidUTF8(message[:longestMessage-len("…")], "") + "…"
}

// blockers returns a copy, which does not keep a long list in memory.
func blockers(all []schemas.ObjectRef) []schemas.ObjectRef {
	all = slices.Clone(all[:min(len(all), mostBlockers)])
	return slices.DeleteFunc(all, func(o schemas.ObjectRef) bool {
		return tooLong(o.Kind, o.Namespace, o.Name, string(o.UID))
	})
}

// Forget removes the pods whose last verdict is too old.
func (d Deferrals) Forget(now time.Time) {
	maps.DeleteFunc(d, func(_ intentKey, p DeferredPod) bool { return now.Sub(p.Last) > deferredWithin })
}

// List returns all deferred pods, the longest deferred first.
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

// Deferred reads the deferred pods from the verdicts of the last hour.
func Deferred(ctx context.Context, b *bus.Bus, now time.Time) ([]DeferredPod, error) {
	d, _, err := ReadDeferrals(ctx, b, now)
	return d.List(), err
}

// ReadDeferrals is like [Deferred], and also returns the sequence of the last verdict.
func ReadDeferrals(ctx context.Context, b *bus.Bus, now time.Time) (d Deferrals, last uint64, err error) {
	d = Deferrals{}
	query := bus.Query{Channels: []string{bus.VerdictChannels}, Since: now.Add(-deferredWithin)}
	err = b.Events(ctx, query, func(e schemas.Event) error {
		last = e.Sequence
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			d.Verdict(v, e.Time)
		}
		return nil
	})
	return d, last, err
}
