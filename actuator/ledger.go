package actuator

import (
	"cmp"
	"context"
	"encoding/base64"
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
	"k8s.io/client-go/util/workqueue"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// Ledger is a key-value store that outlives the process. It contains the moves that are in flight or count against a
// limit, and the state of the circuit breakers.
type Ledger interface {
	// Entries returns all keys and values.
	Entries(ctx context.Context) (map[string][]byte, error)
	// Put returns when the value is stored.
	Put(ctx context.Context, key string, value []byte) error
	// Delete returns when the key does not exist. A missing key is no error.
	Delete(ctx context.Context, key string) error
	// Follow calls handle for the keys with that prefix that other clients put from now on, with their values, until
	// ctx ends.
	Follow(ctx context.Context, prefix string, handle func(key string, value []byte)) error
}

// The prefixes of the keys of the ledger.
const (
	keyMove  = "move."  // and the pod's UID: a record
	keyBegun = "begun"  // alone: the records of moves that have begun and have no key of their own yet, by pod UID
	keyLoop  = "loop."  // and the UID of the workload with a hash of the rest of its key: a WorkloadBreaker
	keyClear = "clear." // and the UID of a workload or everyWorkload: a request to close its circuit breakers
	keyStorm = "storm"  // alone: a stormRecord, while the cluster breaker is open

	everyWorkload = "all"
)

// record is the in-flight record of a move. It exists from before the first change until the move is neither in flight
// nor counted.
type record struct {
	Intent   Intent             `json:"intent"`
	Method   schemas.Method     `json:"method"`
	Workload *schemas.ObjectRef `json:"workload,omitempty"`
	Instead  *schemas.Instead   `json:"instead,omitempty"`
	Begun    time.Time          `json:"begun"`
	// Newest is the creation time of the newest known pod of the workload at that time, by the API server's clock.
	Newest time.Time `json:"newest,omitzero"`
	// Moved is the time of acceptance, or zero if unknown.
	Moved time.Time `json:"moved,omitzero"`
	// Left is the time when the pod was found to be leaving, if its method has more steps. It is zero before that, and in
	// records of older versions.
	Left time.Time `json:"left,omitzero"`
	// Released is the time when the method released the move, from which on the pod is evicted instead, or zero.
	Released time.Time `json:"released,omitzero"`
	// Settled means that the move is no longer in flight.
	Settled bool `json:"settled,omitempty"`
	// Replacement is the pod that completed the move. It completes no other move.
	Replacement types.UID `json:"replacement,omitempty"`
	// Pending means that the move settled before its replacement was ready, which counts for the circuit breaker.
	Pending bool `json:"pending,omitempty"`
	// Canceled means that the method undoes the move: its cause is gone, or its steps failed with the error Failure.
	Canceled bool   `json:"canceled,omitempty"`
	Failure  string `json:"failure,omitempty"`
	// State is the input of the method's next step. It is nil for an eviction, which has none.
	State move.State `json:"state,omitempty"`
	// Cause is the event of the verdict that began the move, without data.
	Cause schemas.Event `json:"cause"`

	begun bool // it was read from the key begun
}

func (r record) key() string { return keyMove + string(r.Intent.Pod.UID) }

// leftAt returns the time when a move began to wait for its replacement.
func (r record) leftAt() time.Time {
	if r.Left.IsZero() {
		return r.Moved // an eviction, whose pod leaves when it is accepted
	}
	return r.Left
}

// older orders moves by their begin.
func (r record) older(o record) int {
	return cmp.Or(r.Begun.Compare(o.Begun), cmp.Compare(r.Intent.ID, o.Intent.ID))
}

// check returns the error in a record that was stored under the key, or nil.
func (r record) check(key string) error {
	i := r.Intent
	switch {
	case r.key() != key:
		return fmt.Errorf("it is about the pod with UID %q", i.Pod.UID)
	case i.ID == "" || i.Node == "" || i.Profile == "" || i.Strategy == "":
		return errors.New("its intent lacks id, node, profile, or strategy")
	case len(validation.IsDNS1123Label(i.Pod.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(i.Pod.Name)) > 0:
		return fmt.Errorf("its pod is named %q", i.Pod)
	case r.Begun.IsZero():
		return errors.New("it does not say when the move began")
	}
	return nil
}

// waitsFor returns the next event that the move needs, or "" if it is settled.
func (r record) waitsFor() string {
	switch {
	case r.Settled:
		return ""
	case r.State != nil && (r.Method == schemas.MethodRestart || r.Method == schemas.MethodSurge):
		return "the replacement that comes first"
	case r.State != nil && r.Method == schemas.MethodBackground:
		return "the webhook that took over the eviction"
	case r.State != nil:
		return "an answer to the EvictionRequest"
	case r.Moved.IsZero():
		return "the API server"
	case r.Workload == nil:
		return "the pod to be gone"
	}
	return "a replacement that is ready"
}

// WorkloadBreaker is the record of a workload circuit breaker: the strategy may not move the pods of the workload off the
// node before Until.
type WorkloadBreaker = limit.BreakerEntry

// StormCondition is a reason why all moves have stopped.
type StormCondition = limit.Condition

// stormRecord is the state of the cluster breaker.
type stormRecord struct {
	Conditions []StormCondition `json:"conditions"`
}

func loopKey(k limit.BreakerKey) string {
	return keyLoop + string(k.Workload) + "." + base64.RawURLEncoding.EncodeToString([]byte(k.Strategy+"\x00"+k.Node))
}

// ClearKey returns the [Ledger] key of a request to close the circuit breakers of a workload, or of all workloads for the
// empty UID. The value is the time as [ClearValue]. The leading actuator deletes the key when it has closed them. An
// actuator that begins to lead ignores a request that is older than clearFor, and deletes it.
func ClearKey(workload types.UID) string { return keyClear + cmp.Or(string(workload), everyWorkload) }

// ClearValue returns the value for a [ClearKey]. The actuator ignores any other value.
func ClearValue(now time.Time) []byte { return []byte(now.UTC().Format(time.RFC3339)) }

// clearFor is how long a request to close circuit breakers waits for an actuator that leads.
const clearFor = time.Minute

// readClear returns the time of a [ClearValue].
func readClear(value []byte) (time.Time, error) { return time.Parse(time.RFC3339, string(value)) }

func readRecord(key string, text []byte) (r record, err error) {
	if err = json.Unmarshal(text, &r); err == nil {
		err = r.check(key)
	}
	return r, err
}

// readLedger reads the entries of a ledger. It omits invalid records and returns an error for each.
func readLedger(entries map[string][]byte) (moves []record, loops []WorkloadBreaker, storm stormRecord, invalid []error) {
	var again map[string]bool // keyBegun comes before these keys
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		value := entries[key]
		var err error
		switch {
		case strings.HasPrefix(key, keyMove):
			var r record
			if r, err = readRecord(key, value); err == nil && !again[key] {
				moves = append(moves, r)
			}
		case strings.HasPrefix(key, keyLoop):
			var b WorkloadBreaker
			if err = json.Unmarshal(value, &b); err == nil && (b.Workload == "" || loopKey(b.BreakerKey) != key) {
				err = errors.New("it is not about the workload, strategy and node of its key")
			}
			if err == nil {
				loops = append(loops, b)
			}
		case key == keyStorm:
			err = json.Unmarshal(value, &storm)
		case key == keyBegun:
			var bad []error
			moves, again, bad = readBegun(entries)
			invalid = append(invalid, bad...)
		case strings.HasPrefix(key, keyClear): // not a record
		default:
			err = errors.New("the key is unknown")
		}
		if err != nil {
			invalid = append(invalid, fmt.Errorf("ledger record %s is set aside: %w", key, err))
		}
	}
	slices.SortFunc(moves, record.older)
	slices.SortFunc(loops, WorkloadBreaker.Compare)
	return moves, loops, storm, invalid
}

// readBegun reads the moves of keyBegun, except moves with a newer record of their own. again has the keys of older moves of
// the same pods. It omits invalid records and returns an error for each.
func readBegun(entries map[string][]byte) (moves []record, again map[string]bool, invalid []error) {
	var begun map[string]json.RawMessage
	if err := json.Unmarshal(entries[keyBegun], &begun); err != nil {
		return nil, nil, []error{fmt.Errorf("ledger record %s is set aside: %w", keyBegun, err)}
	}
	again = map[string]bool{}
	for uid, text := range begun {
		key := keyMove + uid
		r, err := readRecord(key, text)
		if value, has := entries[key]; has {
			own, ownErr := readRecord(key, value)
			if err != nil || ownErr != nil || !own.Begun.Before(r.Begun) {
				continue // it is newer
			}
			again[key] = true
		}
		if r.begun = true; err == nil {
			moves = append(moves, r)
		} else {
			invalid = append(invalid, fmt.Errorf("ledger record %s of %s is set aside: %w", key, keyBegun, err))
		}
	}
	return moves, again, invalid
}

// Remembered is the content of a [Ledger] for users. It can change while it is read, so each part is consistent only in
// itself.
type Remembered struct {
	// Moves are the moves in flight and the settled moves that matter to a limit or a cooldown, by begin.
	Moves []Move
	// Loops are the circuit breakers of workloads that are open or were open a short time ago, by workload, strategy,
	// and node.
	Loops []WorkloadBreaker
	// Storm has the open conditions of the cluster breaker. It is empty if the breaker is closed or there is no leader.
	Storm []StormCondition
}

// Move is a move that was begun.
type Move struct {
	Pod      schemas.PodRef     `json:"pod"`
	Node     string             `json:"node"` // the node that it leaves
	Workload *schemas.ObjectRef `json:"workload,omitempty"`
	Profile  string             `json:"profile"`
	Strategy string             `json:"strategy"`
	Intent   string             `json:"intent"` // its ID
	Method   schemas.Method     `json:"method"`
	Begun    time.Time          `json:"begun"`
	// Moved is the time of acceptance, from which the limits over windows count. It is zero before the acceptance.
	Moved time.Time `json:"moved,omitzero"`
	// WaitsFor is the next event that the move needs, or "" if it is settled.
	WaitsFor string `json:"waitsFor,omitempty"`
}

func (r record) move() Move {
	i := r.Intent
	return Move{
		Pod: i.Pod, Node: i.Node, Workload: r.Workload, Profile: i.Profile, Strategy: i.Strategy, Intent: i.ID,
		Method: r.Method, Begun: r.Begun, Moved: r.Moved, WaitsFor: r.waitsFor(),
	}
}

// InFlight reports whether the move is not settled.
func (m Move) InFlight() bool { return m.WaitsFor != "" }

// ReadLedger reads the result of [Ledger.Entries]. It omits invalid records and returns an error for each.
func ReadLedger(entries map[string][]byte) (Remembered, []error) {
	moves, loops, storm, invalid := readLedger(entries)
	out := Remembered{Storm: storm.Conditions}
	for _, r := range moves {
		out.Moves = append(out.Moves, r.move())
	}
	for _, l := range loops {
		if l.Returns > 0 { // else pods were moved off the node and none returned
			out.Loops = append(out.Loops, l)
		}
	}
	return out, invalid
}

// ledgerWriter writes changes of a ledger in the background. Of several waiting changes of one key it writes only the
// newest.
type ledgerWriter struct {
	write func(key string, value any) error // returns when the change is made or never will be
	queue workqueue.TypedInterface[string]

	mu   sync.Mutex
	next map[string]*ledgerChange // waiting changes
}

// ledgerChange is a new value of a key. nil deletes it, see [session.storeBegun] for keyBegun.
type ledgerChange struct {
	value any
	done  chan struct{}
	err   error // set before done is closed
}

func newLedgerWriter(write func(string, any) error) *ledgerWriter {
	return &ledgerWriter{write: write, queue: workqueue.NewTyped[string](), next: map[string]*ledgerChange{}}
}

// set queues a change.
func (w *ledgerWriter) set(key string, value any) *ledgerChange {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.next[key]
	if c == nil {
		c = &ledgerChange{done: make(chan struct{})}
		w.next[key] = c
	}
	c.value = value
	w.queue.Add(key)
	return c
}

// run writes changes until the queue is shut down and empty. Several goroutines may run it.
func (w *ledgerWriter) run() {
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		w.mu.Lock()
		c := w.next[key]
		delete(w.next, key)
		w.mu.Unlock()
		if c != nil {
			c.err = w.write(key, c.value)
			close(c.done)
		}
		w.queue.Done(key)
	}
}

// wait returns when the change is written or ctx ends.
func (c *ledgerChange) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeLedger makes a change of the ledger. It retries until it succeeds or the session is over.
func (s *session) writeLedger(key string, value any) error {
	switch {
	case s.lost():
		return ErrNotLeading
	case s.ledger == nil:
		return nil
	case key == keyBegun:
		s.mu.Lock()
		value = s.begun.value()
		s.mu.Unlock()
	}
	if value == nil {
		return s.persist(deleteWrites, func() error { return s.ledger.Delete(s.saving, key) }, "key", key)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("ledger key %s: %w", key, err)
	}
	err = s.persist(recordWrites, func() error { return s.ledger.Put(s.saving, key, text) }, "key", key)
	if r, ok := value.(record); ok && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begun.remove(r)
	}
	return err
}

// followLedger closes workload breakers on request until ctx ends.
func (s *session) followLedger(ctx context.Context) {
	err := s.ledger.Follow(ctx, keyClear, func(key string, value []byte) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, err := readClear(value); err != nil {
			s.dropClear(key)
			return
		}
		s.clear(key)
	})
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("cannot follow the ledger; requests to close circuit breakers are ignored", "error", err)
	}
}

// dropClear deletes an invalid request, so that such requests cannot fill the ledger. The caller holds mu.
func (s *session) dropClear(key string) {
	s.cfg.Log.Warn("request to close circuit breakers has no time; deleting it", "key", key)
	s.change(key, nil)
}

// clear closes the workload breakers that the key of a request names, and then deletes the request. The caller holds
// mu.
func (s *session) clear(key string) {
	uid := types.UID(strings.TrimPrefix(key, keyClear))
	workload := uid
	if uid == everyWorkload {
		workload = ""
	}
	cleared := s.loop.Clear(workload)
	for _, k := range cleared {
		s.change(loopKey(k), nil)
	}
	s.change(key, nil)
	s.cfg.Log.Info("circuit breakers of workloads closed on request", "workload", uid, "breakers", len(cleared))
}
