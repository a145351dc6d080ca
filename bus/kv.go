package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// markerAge is how long it is known that an entry was there: far longer than a watcher is behind.
const markerAge = time.Hour

// bucket is an open key-value bucket, with the epoch of its revisions.
type bucket struct {
	jetstream.KeyValue
	epoch uint64
}

// bucket opens the bucket of a stream.
func (b *Bus) bucket(ctx context.Context, stream string) (bucket, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return bucket{}, notSetUp("stream "+stream, err)
	}
	kv, err := b.js.KeyValue(ctx, strings.TrimPrefix(stream, "KV_"))
	if err != nil {
		return bucket{}, notSetUp("stream "+stream, err)
	}
	return bucket{kv, epoch(s.CachedInfo())}, nil
}

// entries returns the newest message of each key of a bucket, the oldest first. A key that was deleted has none.
func (b *Bus) entries(ctx context.Context, stream string) ([]letter, error) {
	var all []letter
	err := b.list(ctx, source{stream: stream}, func(l letter) error {
		all = append(all, l)
		return nil
	})
	newest := map[string]uint64{}
	for _, l := range all {
		newest[l.Subject] = l.Sequence
	}
	return slices.DeleteFunc(all, func(l letter) bool {
		return l.isDeletion() || newest[l.Subject] > l.Sequence
	}), err
}

// isDeletion returns whether a message of a bucket says that its key was deleted.
func (l letter) isDeletion() bool {
	return l.Header.Get("KV-Operation") != "" || l.Header.Get(jetstream.MarkerReasonHeader) != ""
}

// key returns the key of an entry of a bucket.
func (l letter) key() string { return strings.TrimPrefix(l.Subject, subject(l.Stream, "")) }

// Ledger is the key-value bucket of the actuator. Keys consist of letters, digits and - _ = . /. It is safe for
// concurrent use; of changes of one key at the same time the one that is stored last holds.
type Ledger struct{ bus *Bus }

// Ledger returns the bucket, which [Bus.Setup] makes.
func (b *Bus) Ledger() Ledger { return Ledger{b} }

// Entries returns everything in the bucket. It fails with [ErrNotSetUp] or [ErrNotConnected] among others.
func (l Ledger) Entries(ctx context.Context) (map[string][]byte, error) {
	entries := map[string][]byte{}
	err := l.bus.do("read the ledger", func() error {
		all, err := l.bus.entries(ctx, StreamLedger)
		for _, e := range all {
			entries[e.key()] = e.Data
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// Put stores a value under a key, in the place of the old one. It fails as [Bus.Publish] does, and when the bucket is full.
func (l Ledger) Put(ctx context.Context, key string, value []byte) error {
	// Not by the bucket, which the client opens with two questions to the server.
	if _, err := l.bus.publish(ctx, &nats.Msg{Subject: subject(StreamLedger, key), Data: value}); err != nil {
		return fmt.Errorf("ledger: put %s: %w", key, err)
	}
	return nil
}

// Delete removes a key. nil, too, if there is none.
func (l Ledger) Delete(ctx context.Context, key string) error {
	return l.bus.do("ledger: delete "+key, func() error {
		ctx, cancel := context.WithTimeout(ctx, ackWithin)
		defer cancel()
		s, err := l.bus.stream(ctx, StreamLedger)
		if err != nil {
			return err
		}
		// Not a marker, as the bucket would write: a full bucket takes none.
		return s.Purge(ctx, jetstream.WithPurgeSubject(l.bus.js.prefix.subject(subject(StreamLedger, key))))
	})
}

// subject returns the subject of a key.
func subject(stream, key string) string {
	return "$KV." + strings.TrimPrefix(stream, "KV_") + "." + key
}

// Follow hands over each key with that prefix, which ends in a dot, that is put from now on, with its value, until ctx ends. Then
// it returns nil. Losses of the connection are waited out; keys that are put meanwhile may be missing.
func (l Ledger) Follow(ctx context.Context, prefix string, handle func(key string, value []byte)) error {
	l.bus.follow(ctx, source{stream: StreamLedger, channels: []string{subject(StreamLedger, prefix+">")}},
		func(_ context.Context, e letter) error {
			handle(e.key(), e.Data)
			return nil
		})
	return nil
}

// Maintenances is the key-value bucket of the maintenances that were asked for without an object of the API server, by their
// names. A change never overwrites another one: it rests on the resource version that was read, which is the revision of the
// entry and is never given twice. It is safe for concurrent use.
//
// Errors are those of the API server where they say the same: [apierrors.IsNotFound] for one that is not there, and
// [apierrors.IsConflict] for one that has changed.
type Maintenances struct{ bus *Bus }

// Maintenances returns the bucket, which [Bus.Setup] makes.
func (b *Bus) Maintenances() Maintenances { return Maintenances{b} }

// Get reads one. Besides those above it fails with [ErrNotSetUp] and [ErrNotConnected] among others.
func (m Maintenances) Get(ctx context.Context, name string) (is *v1alpha1.NodeMaintenance, err error) {
	err = m.call(ctx, "read", name, func(ctx context.Context, kv bucket) error {
		e, err := kv.Get(ctx, schemas.Token(name))
		if err == nil {
			is, err = maintenanceOf(e.Key(), e.Value(), e.Revision()+kv.epoch)
		}
		return err
	})
	return is, err
}

// Put stores a maintenance in the place of the one with its resource version, or if it has none as a new one. The result is the
// new resource version. When the server does not answer it may have been stored all the same; storing it again is then a
// conflict.
func (m Maintenances) Put(ctx context.Context, is *v1alpha1.NodeMaintenance) (resourceVersion string, err error) {
	stored := *is
	stored.ResourceVersion = ""
	err = m.call(ctx, "write", is.Name, func(ctx context.Context, kv bucket) error {
		data, err := json.Marshal(stored)
		if err != nil {
			return err
		}
		var revision uint64
		if is.ResourceVersion == "" {
			revision, err = kv.Create(ctx, schemas.Token(is.Name), data)
		} else if revision, err = kv.revision(is); err == nil {
			revision, err = kv.Update(ctx, schemas.Token(is.Name), data, revision)
		}
		resourceVersion = strconv.FormatUint(revision+kv.epoch, 10)
		return err
	})
	return resourceVersion, err
}

// Delete removes a maintenance that has not changed since it was read.
func (m Maintenances) Delete(ctx context.Context, is *v1alpha1.NodeMaintenance) error {
	return m.call(ctx, "delete", is.Name, func(ctx context.Context, kv bucket) error {
		revision, err := kv.revision(is)
		if err != nil {
			return err
		}
		return kv.Purge(ctx, schemas.Token(is.Name), jetstream.LastRevision(revision), jetstream.PurgeTTL(markerAge))
	})
}

// revision returns the revision of the entry that is was read from.
func (b bucket) revision(is *v1alpha1.NodeMaintenance) (uint64, error) {
	version, err := strconv.ParseUint(is.ResourceVersion, 10, 64)
	if err != nil || version <= b.epoch { // it is from a bucket that was lost
		return 0, fmt.Errorf("%w: resource version %q", jetstream.ErrKeyRevisionMismatch, is.ResourceVersion)
	}
	return version - b.epoch, nil
}

// call changes or reads one entry, and names the kind of its error.
func (m Maintenances) call(
	ctx context.Context, verb, name string, call func(context.Context, bucket) error,
) error {
	err := m.bus.do(verb+" maintenance "+name, func() error {
		ctx, cancel := context.WithTimeout(ctx, ackWithin)
		defer cancel()
		kv, err := m.bus.bucket(ctx, StreamMaintenances)
		if err != nil {
			return err
		}
		return call(ctx, kv)
	})
	kind := v1alpha1.GroupVersion().WithResource(v1alpha1.NodeMaintenances).GroupResource()
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return apierrors.NewNotFound(kind, name)
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return apierrors.NewConflict(kind, name, err)
	}
	return err
}

// maintenanceOf reads an entry.
func maintenanceOf(key string, value []byte, version uint64) (*v1alpha1.NodeMaintenance, error) {
	var is v1alpha1.NodeMaintenance
	if err := json.Unmarshal(value, &is); err != nil {
		return nil, fmt.Errorf("%w: %w", schemas.ErrInvalid, err)
	}
	if name, ok := schemas.FromToken(key); !ok || name != is.Name {
		return nil, fmt.Errorf("%w: it is stored as %s, and its name is %q", schemas.ErrInvalid, key, is.Name)
	}
	is.ResourceVersion = strconv.FormatUint(version, 10)
	return &is, nil
}

// List reads all of them, in the order of their last changes. It omits unreadable entries. Its errors include
// [ErrNotConnected] and [ErrNotSetUp].
func (m Maintenances) List(ctx context.Context) (all []*v1alpha1.NodeMaintenance, err error) {
	err = m.bus.do("read maintenances", func() error {
		entries, err := m.bus.entries(ctx, StreamMaintenances)
		for _, e := range entries {
			if is, err := maintenanceOf(e.key(), e.Data, e.number()); err == nil {
				all = append(all, is)
			}
		}
		return err
	})
	return all, err
}

// Follow hands over every maintenance that is there, calls synced, and then hands over each change, one at a time and
// in order, until ctx ends. Then it returns nil. is is nil for one that is not there anymore. Losses of the connection
// are waited out: changes of that time are handed over later, and unchanged ones may be handed over again. synced is
// called once. Unreadable entries are logged and left out.
func (m Maintenances) Follow(
	ctx context.Context, changed func(name string, is *v1alpha1.NodeMaintenance), synced func(),
) error {
	synced = sync.OnceFunc(synced)
	known := map[string]bool{} // the names that were handed over and are there
	hand := func(name string, is *v1alpha1.NodeMaintenance) {
		if is == nil && !known[name] {
			return
		}
		if known[name] = true; is == nil {
			delete(known, name)
		}
		changed(name, is)
	}
	take := func(l letter) {
		name, _ := schemas.FromToken(l.key())
		if l.isDeletion() {
			hand(name, nil)
		} else if is, err := maintenanceOf(l.key(), l.Data, l.number()); err == nil {
			hand(name, is)
		} else {
			m.bus.log.Error("a maintenance in the table cannot be read and is left out", "key", l.key(), "error", err)
		}
	}
	m.bus.forever(ctx, "maintenances", func(ctx context.Context) error {
		s, err := m.bus.js.Stream(ctx, StreamMaintenances)
		if err != nil {
			return notSetUp("stream "+StreamMaintenances, err)
		}
		entries, err := m.bus.entries(ctx, StreamMaintenances)
		if err != nil {
			return err
		}
		gone := maps.Clone(known)
		for _, l := range entries {
			take(l)
			name, _ := schemas.FromToken(l.key())
			delete(gone, name)
		}
		for name := range gone {
			hand(name, nil)
		}
		synced()
		r, err := m.bus.polling(source{stream: StreamMaintenances}, s.CachedInfo().State.LastSeq, s)
		if err != nil {
			return err
		}
		defer r.close()
		for {
			l, err := r.next(ctx)
			if err != nil {
				return err
			}
			take(l)
		}
	})
	return nil
}
