package actuator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// Ledger remembers, by key, what has to outlive the process: the moves that count against a limit or are in flight, and
// what the loop breaker knows. It holds nothing that grows without end: what is over is deleted.
type Ledger interface {
	// Entries returns everything that is remembered.
	Entries(ctx context.Context) (map[string][]byte, error)
	// Put returns when the value is stored.
	Put(ctx context.Context, key string, value []byte) error
	// Delete returns when there is no such key. nil, too, when there was none.
	Delete(ctx context.Context, key string) error
	// Follow hands over the keys with that prefix that others put from now on, until ctx ends.
	Follow(ctx context.Context, prefix string, handle func(key string)) error
}

// The keys of the ledger begin with what they are about.
const (
	keyMove  = "move."  // and the pod's UID: a record
	keyLoop  = "loop."  // and a token of its key: a loopRecord
	keyClear = "clear." // and the UID of a workload, or a word: somebody wants its loop breakers cleared
	keyStorm = "storm"  // alone: a stormRecord, while the storm brake is open
)

// record is what is remembered of a move, from before anything is changed until it neither is in flight nor counts.
type record struct {
	Open     Open               `json:"open"`
	Method   schemas.Method     `json:"method"`
	Workload *schemas.ObjectRef `json:"workload,omitempty"`
	Instead  *schemas.Instead   `json:"instead,omitempty"`
	Begun    time.Time          `json:"begun"`
	// Newest is when the newest pod of the workload was made that was known at that time, by the API server's clock.
	Newest time.Time `json:"newest,omitzero"`
	// Moved is when the move was accepted. Zero: that is not known.
	Moved time.Time `json:"moved,omitzero"`
	// Settled: it is not in flight any more.
	Settled bool `json:"settled,omitempty"`
	// Replacement is the pod that ended the move, and ends no other one.
	Replacement types.UID `json:"replacement,omitempty"`
	// Pending: it is settled, and its replacement is not ready, which counts for the circuit breaker.
	Pending bool `json:"pending,omitempty"`
	// Canceled: its cause is gone, and its method undoes it.
	Canceled bool `json:"canceled,omitempty"`
	// State is what its method is told at the next step. nil: an eviction, which needs none.
	State move.State `json:"state,omitempty"`
	// Cause is the event of the verdict that began it, without data.
	Cause schemas.Event `json:"cause"`
}

func (r record) key() string { return keyMove + string(r.Open.Intent.Pod.UID) }

// stormRecord is what the ledger has of the storm brake.
type stormRecord struct {
	Conditions []StormCondition `json:"conditions"`
}

// readLedger reads what is remembered. What is not a record that this program wrote is named in bad, and left out.
func readLedger(entries map[string][]byte) (moves []record, loops []loopRecord, storm stormRecord, bad []error) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		value := entries[key]
		var err error
		switch {
		case strings.HasPrefix(key, keyMove):
			var r record
			if err = json.Unmarshal(value, &r); err == nil {
				err = r.check(key)
			}
			if err == nil {
				moves = append(moves, r)
			}
		case strings.HasPrefix(key, keyLoop):
			var r loopRecord
			if err = json.Unmarshal(value, &r); err == nil && (r.Workload == "" || loopKey(r.BreakerKey) != key) {
				err = errors.New("it is not about the workload, strategy and node of its key")
			}
			if err == nil {
				loops = append(loops, r)
			}
		case key == keyStorm:
			err = json.Unmarshal(value, &storm)
		case !strings.HasPrefix(key, keyClear):
			err = errors.New("the key is unknown")
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("ledger record %s is set aside: %w", key, err))
		}
	}
	return moves, loops, storm, bad
}

// check says what is wrong with a record that was stored under the key.
func (r record) check(key string) error {
	i := r.Open.Intent
	switch {
	case r.key() != key:
		return fmt.Errorf("it is about the pod with UID %q", i.Pod.UID)
	case i.ID == "" || i.Node == "" || r.Open.Profile == "" || r.Open.Strategy == "":
		return errors.New("it names no intent")
	case len(validation.IsDNS1123Label(i.Pod.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(i.Pod.Name)) > 0:
		return fmt.Errorf("its pod is named %q", i.Pod)
	case r.Begun.IsZero():
		return errors.New("it does not say when the move began")
	}
	return nil
}

// setBadRecords names the records that were set aside, in the log, in a metric, and in [Actuator.Ready].
func (a *Actuator) setBadRecords(bad []error) {
	for _, err := range bad {
		a.cfg.Log.Error("ledger record is set aside; delete it from the bucket", "error", err)
	}
	a.metrics.bad.Set(float64(len(bad)))
	a.bad.Store(&bad)
}

// shortLedger is a [Ledger] that lasts as long as its process. It is safe for concurrent use.
type shortLedger struct {
	mu      sync.Mutex
	entries map[string][]byte
}

func newShortLedger() *shortLedger { return &shortLedger{entries: map[string][]byte{}} }

func (l *shortLedger) Entries(context.Context) (map[string][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.entries), nil
}

func (l *shortLedger) Put(_ context.Context, key string, value []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[key] = value
	return nil
}

func (l *shortLedger) Delete(_ context.Context, key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, key)
	return nil
}

// Follow waits for the end of ctx: nobody else reaches this ledger.
func (l *shortLedger) Follow(ctx context.Context, _ string, _ func(string)) error {
	<-ctx.Done()
	return nil
}
