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

// markerAge is how long the stream keeps the marker of a deleted entry, far longer than a watcher can be behind.
const markerAge = time.Hour

// bucket is an open key-value bucket, with the epoch of its revisions.
type bucket struct {
	jetstream.KeyValue
	epoch uint64
}

// entries returns the newest message of each key of a bucket, oldest first. It omits deleted keys.
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

// isDeletion reports whether a message of a bucket is the marker of a deleted key.
func (l letter) isDeletion() bool {
	return l.Header.Get("KV-Operation") != "" || l.Header.Get(jetstream.MarkerReasonHeader) != ""
}

// key returns the key of a bucket entry.
func (l letter) key() string { return strings.TrimPrefix(l.Subject, subject(l.Stream, "")) }

// Ledger is the key-value bucket of the actuator. Keys consist of letters, digits, and - _ = . /. It is safe for concurrent use.
// If a key is changed several times at once, the change that is stored last wins.
type Ledger struct{ bus *Bus }

// Ledger returns the bucket, which [Bus.Setup] creates.
func (b *Bus) Ledger() Ledger { return Ledger{b} }

// Entries returns all entries of the bucket. Its errors include [ErrNotSetUp] and [ErrNotConnected].
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

// Put stores a value under a key and replaces the old value. Its errors are the errors of [Bus.Publish]. It also fails if the
// bucket is full.
func (l Ledger) Put(ctx context.Context, key string, value []byte) error {
	// The bucket of the client library would send two requests first.
	if _, err := l.bus.publish(ctx, &nats.Msg{Subject: subject(StreamLedger, key), Data: value}); err != nil {
		return fmt.Errorf("ledger: put %s: %w", key, err)
	}
	return nil
}

// Delete removes a key. It returns nil if the key does not exist.
func (l Ledger) Delete(ctx context.Context, key string) error {
	return l.bus.do("ledger: delete "+key, func() error {
		ctx, cancel := context.WithTimeout(ctx, ackWithin)
		defer cancel()
		s, err := l.bus.stream(ctx, StreamLedger)
		if err != nil {
			return err
		}
		// This is not the marker that the bucket would write, because a full bucket refuses markers.
		return s.Purge(ctx, jetstream.WithPurgeSubject(l.bus.js.prefix.subject(subject(StreamLedger, key))))
	})
}

// subject returns the subject of a key.
func subject(stream, key string) string {
	return "$KV." + strings.TrimPrefix(stream, "KV_") + "." + key
}

// Follow calls handle with the key and the value of each later Put whose key has the prefix, which ends in a dot. It returns nil
// when ctx ends. It waits while the connection is lost, and can miss keys that are stored meanwhile.
func (l Ledger) Follow(ctx context.Context, prefix string, handle func(key string, value []byte)) error {
	l.bus.follow(ctx, source{stream: StreamLedger, channels: []string{subject(StreamLedger, prefix+">")}},
		func(_ context.Context, e letter) error {
			handle(e.key(), e.Data)
			return nil
		})
	return nil
}

// Maintenances is the key-value bucket of the maintenances that have no object in the API server, by name. A change never
// overwrites another one: it requires the resource version that was read, which is the revision of the entry and is never used
// twice. It is safe for concurrent use.
//
// Errors have the kinds of the API server: [apierrors.IsNotFound] if the maintenance does not exist, and [apierrors.IsConflict]
// if it has changed.
type Maintenances struct{ bus *Bus }

// Maintenances returns the bucket, which [Bus.Setup] creates.
func (b *Bus) Maintenances() Maintenances { return Maintenances{b} }

// Get reads one maintenance. Its errors also include [ErrNotSetUp] and [ErrNotConnected].
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

// Put creates a maintenance, or if it has a resource version, replaces that version. It returns the new resource version. If the
// server does not answer, the maintenance may be stored nevertheless; another Put is a conflict then.
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

// revision returns the revision of the entry from which a maintenance was read.
func (b bucket) revision(is *v1alpha1.NodeMaintenance) (uint64, error) {
	version, err := strconv.ParseUint(is.ResourceVersion, 10, 64)
	if err != nil || version <= b.epoch { // the entry is from a bucket that was lost
		return 0, fmt.Errorf("%w: resource version %q", jetstream.ErrKeyRevisionMismatch, is.ResourceVersion)
	}
	return version - b.epoch, nil
}

// call reads or changes one entry, and converts its error.
func (m Maintenances) call(
	ctx context.Context, verb, name string, call func(context.Context, bucket) error,
) error {
	err := m.bus.do(verb+" maintenance "+name, func() error {
		ctx, cancel := context.WithTimeout(ctx, ackWithin)
		defer cancel()
		s, err := m.bus.open(ctx, StreamMaintenances)
		if err != nil {
			return err
		}
		kv, err := m.bus.js.KeyValue(ctx, strings.TrimPrefix(StreamMaintenances, "KV_"))
		if err != nil {
			return notSetUp("stream "+StreamMaintenances, err)
		}
		return call(ctx, bucket{kv, epoch(s.CachedInfo())})
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

// maintenanceOf decodes an entry.
func maintenanceOf(key string, value []byte, version uint64) (*v1alpha1.NodeMaintenance, error) {
	var is v1alpha1.NodeMaintenance
	if err := json.Unmarshal(value, &is); err != nil {
		return nil, fmt.Errorf("%w: %w", schemas.ErrInvalid, err)
	}
	if name, ok := schemas.FromToken(key); !ok || name != is.Name {
		return nil, fmt.Errorf("%w: its key is %s, and its name is %q", schemas.ErrInvalid, key, is.Name)
	}
	is.ResourceVersion = strconv.FormatUint(version, 10)
	return &is, nil
}

// List returns all maintenances, in the order of their last changes. It omits unreadable entries. Its errors include
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

// Follow calls changed with every existing maintenance, calls synced once, and then calls changed with each change, one at a time
// and in order. A nil maintenance means that it was deleted. Follow returns nil when ctx ends. After a loss of the connection it
// delivers the changes of that time, and may repeat unchanged maintenances. It logs and omits unreadable entries.
func (m Maintenances) Follow(
	ctx context.Context, changed func(name string, is *v1alpha1.NodeMaintenance), synced func(),
) error {
	synced = sync.OnceFunc(synced)
	known := map[string]bool{} // the delivered names that still exist
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
			m.bus.log.Error("cannot read a maintenance in the table; omitting it", "key", l.key(), "error", err)
		}
	}
	m.bus.forever(ctx, "maintenances", func(ctx context.Context) error {
		s, err := m.bus.open(ctx, StreamMaintenances)
		if err != nil {
			return err
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
		return takeAll(ctx, r, take)
	})
	return nil
}

// takeAll calls take with each message of a reader until the reader fails, and closes the reader.
func takeAll(ctx context.Context, r reader, take func(letter)) error {
	defer r.close()
	for {
		l, err := r.next(ctx)
		if err != nil {
			return err
		}
		take(l)
	}
}
