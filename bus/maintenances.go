package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const maintenanceSubjects = "$KV." + MaintenanceBucket + "."

const (
	// operation is the header by which clients of NATS tell a key that was deleted from one that has a value.
	operation = "KV-Operation"
	deleted   = "DEL"
	// markerAge is how long it is known that a maintenance was there: far longer than a follower is behind.
	markerAge = time.Hour
)

// Maintenances is the key-value bucket of the maintenances that were asked for without an object of the API server, by their
// names. Nobody overwrites what somebody else has changed: every change rests on the resource version that was read, which is
// the number that the stream gave the entry, and never given twice. It is safe for concurrent use.
//
// Errors are those of the API server where they say the same: [apierrors.IsNotFound] for one that is not there, and
// [apierrors.IsConflict] for one that has changed.
type Maintenances struct{ bus *Bus }

// Maintenances returns the bucket, which [Bus.Setup] makes.
func (b *Bus) Maintenances() Maintenances { return Maintenances{b} }

// Get reads one. Besides those above it fails with [ErrNotSetUp] and [ErrNotConnected] among others.
func (m Maintenances) Get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	is, _, err := m.newest(ctx, name)
	if err == nil && is == nil {
		err = apierrors.NewNotFound(v1alpha1.GroupVersion().WithResource(v1alpha1.NodeMaintenances).GroupResource(), name)
	}
	return is, err
}

// newest reads one, nil if there is none, and the number of what was stored last under its name.
func (m Maintenances) newest(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, uint64, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	raw, err := m.bus.last(ctx, StreamMaintenances, maintenanceSubjects+schemas.Token(name))
	if err != nil || raw == nil {
		return nil, 0, m.bus.explain(began, wrapped("read", name, err))
	}
	is, err := maintenanceOf(letter{Subject: raw.Subject, Sequence: raw.Sequence, Header: raw.Header, Data: raw.Data})
	return is, raw.Sequence, wrapped("read", name, err)
}

// Put stores a maintenance in the place of the one with its resource version, or if it has none as a new one. The result is the
// new resource version. When nothing is heard of the server it may have been stored all the same; storing it again is then a
// conflict.
func (m Maintenances) Put(ctx context.Context, is *v1alpha1.NodeMaintenance) (resourceVersion string, err error) {
	stored := *is
	stored.ResourceVersion = ""
	data, err := json.Marshal(stored)
	if err != nil {
		return "", wrapped("write", is.Name, err)
	}
	after, err := m.revision(ctx, is)
	if err != nil {
		return "", err
	}
	sequence, err := m.store(ctx, &nats.Msg{Data: data}, is.Name, after)
	return strconv.FormatUint(sequence, 10), err
}

// Delete removes a maintenance that has not changed since it was read.
func (m Maintenances) Delete(ctx context.Context, is *v1alpha1.NodeMaintenance) error {
	after, err := m.revision(ctx, is)
	if err == nil {
		_, err = m.store(ctx, &nats.Msg{Header: nats.Header{operation: {deleted}}}, is.Name, after, jetstream.WithMsgTTL(markerAge))
	}
	return err
}

// revision is the number that has to be the last one for a change of is. A new one may follow one that was removed.
func (m Maintenances) revision(ctx context.Context, is *v1alpha1.NodeMaintenance) (uint64, error) {
	if is.ResourceVersion != "" {
		revision, err := strconv.ParseUint(is.ResourceVersion, 10, 64)
		if err != nil {
			return 0, conflict(is.Name, err)
		}
		return revision, nil
	}
	there, last, err := m.newest(ctx, is.Name)
	if err == nil && there != nil {
		err = conflict(is.Name, errors.New("it exists already"))
	}
	return last, err
}

func (m Maintenances) store(
	ctx context.Context, message *nats.Msg, name string, after uint64, o ...jetstream.PublishOpt,
) (uint64, error) {
	message.Subject = maintenanceSubjects + schemas.Token(name)
	ack, err := m.bus.publish(ctx, message, append(o, jetstream.WithExpectLastSequencePerSubject(after))...)
	var refused *jetstream.APIError
	switch {
	case err == nil:
		return ack.Sequence, nil
	case errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
		return 0, conflict(name, err)
	}
	return 0, wrapped("write", name, err)
}

func conflict(name string, err error) error {
	return apierrors.NewConflict(v1alpha1.GroupVersion().WithResource(v1alpha1.NodeMaintenances).GroupResource(), name, err)
}

func wrapped(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s maintenance %s: %w", verb, name, err)
}

// maintenanceOf reads an entry. nil: it says that there is none any more.
func maintenanceOf(l letter) (*v1alpha1.NodeMaintenance, error) {
	if l.Header.Get(operation) != "" {
		return nil, nil
	}
	var is v1alpha1.NodeMaintenance
	if err := json.Unmarshal(l.Data, &is); err != nil {
		return nil, fmt.Errorf("%w: %w", schemas.ErrInvalid, err)
	}
	if name, ok := nameOf(l); !ok || name != is.Name {
		return nil, fmt.Errorf("%w: it is stored as %s, and its name is %q", schemas.ErrInvalid, l.Subject, is.Name)
	}
	is.ResourceVersion = strconv.FormatUint(l.Sequence, 10)
	return &is, nil
}

// nameOf reads the name of an entry from its subject.
func nameOf(l letter) (string, bool) {
	return schemas.FromToken(strings.TrimPrefix(l.Subject, maintenanceSubjects))
}

// List reads all of them, in the order in which they were changed last. What cannot be read is left out. It fails with
// [ErrNotConnected] and [ErrNotSetUp] among others.
func (m Maintenances) List(ctx context.Context) ([]*v1alpha1.NodeMaintenance, error) {
	if !m.bus.nc.IsConnected() {
		return nil, fmt.Errorf("read maintenances: %w", m.bus.link.disconnected())
	}
	began := time.Now()
	var all []*v1alpha1.NodeMaintenance
	err := m.bus.readWhole(ctx, StreamMaintenances, everything(), 0, func(l letter) error {
		if is, err := maintenanceOf(l); err == nil && is != nil {
			all = append(all, is)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read maintenances: %w", m.bus.explain(began, err))
	}
	return all, nil
}
