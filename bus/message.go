package bus

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// Installation is one installation of Rehome in one cluster. Streams belong to it, and its events have its name.
type Installation struct {
	Name string
	// Cluster is the UID of the namespace kube-system. Empty means this process has no access to the cluster.
	Cluster string
	// ClusterName is a name for users.
	ClusterName string
}

// The metadata of a stream that identify its installation.
const (
	nameKey        = "rehome.dev/installation"
	clusterKey     = "rehome.dev/cluster-uid"
	clusterNameKey = "rehome.dev/cluster"
)

func installationOf(metadata map[string]string) Installation {
	return Installation{Name: metadata[nameKey], Cluster: metadata[clusterKey], ClusterName: metadata[clusterNameKey]}
}

// adopt returns the stream metadata for this installation, or the old metadata if this installation does not know its cluster. It
// fails if the old metadata identify another installation.
func (i Installation) adopt(old map[string]string) (map[string]string, error) {
	owner := installationOf(old)
	switch known := i.Cluster != ""; {
	case owner.Name != "" && i.Name != "" && (owner.Name != i.Name || known && owner.Cluster != i.Cluster):
		return nil, fmt.Errorf("%w: %v, and this process to %v; give this one its own bus: another REHOME_STORE_DIR for the server "+
			"in the process, or REHOME_BUS_PREFIX or REHOME_NATS_URL for a shared one; if the other installation is gone, "+
			"run rehome setup --take-over", ErrOtherInstallation, owner, i)
	case owner.Name != "" || !known:
		return old, nil
	}
	return map[string]string{nameKey: i.Name, clusterKey: i.Cluster, clusterNameKey: i.ClusterName}, nil
}

// ID returns the installation attribute of events. It is empty if the cluster is unknown.
func (i Installation) ID() string {
	if i.Cluster == "" {
		return ""
	}
	return i.Cluster + "/" + i.Name
}

func (i Installation) String() string {
	if i.Cluster == "" {
		return i.Name + " in an unknown cluster"
	}
	return fmt.Sprintf("%s in cluster %s (UID of kube-system: %s)", i.Name, i.ClusterName, i.Cluster)
}

// The headers of messages, in addition to the attributes of events.
const (
	contentHeader  = "Content-Type"
	encodingHeader = "Content-Encoding"
	gzipEncoding   = "gzip"
)

// Data above compressAbove is compressed, with the header Content-Encoding: gzip. Scopes of large groups are far larger and
// shrink to about a tenth, because their pods are similar. By default, NATS accepts messages of at most 1 MiB.
const compressAbove = 256 << 10

// maxData limits uncompressed data, so a few compressed bytes cannot use up all memory. Writers respect the same limit.
// maxIntentsData limits the data of an intents message, which any function may write: 5,000 intents with the longest names and
// reasons. maxRequestData limits the data of a request, which any sender may publish and which fits into a message uncompressed.
const (
	maxData        = 64 << 20
	maxIntentsData = 16 << 20
	maxRequestData = 1 << 20
)

// encode returns e in the binary mode of the CloudEvents NATS binding: one header per attribute, and the data as the body,
// compressed if it has more than most bytes. Its error wraps [schemas.ErrInvalid] if e is not a valid CloudEvent with JSON data,
// or if the data exceeds maxData.
func encode(e schemas.Event, most int) (*nats.Msg, error) {
	if len(e.Data) > maxData {
		return nil, fmt.Errorf("write event %q: %w: its data has more than %d MiB", e.ID, schemas.ErrInvalid, maxData>>20)
	}
	h := make(nats.Header, 13)
	set := func(name, value string) { h[cloudevent.HeaderPrefix+name] = []string{value} }
	if err := cloudevent.WriteAttributes(e, set); err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: e.Channel, Header: h, Data: e.Data}
	if len(e.Data) > most {
		var err error
		if m.Data, err = compress(e.Data); err != nil {
			return nil, fmt.Errorf("write event %q: compress: %w", e.ID, err)
		}
		h[encodingHeader] = []string{gzipEncoding}
	}
	return m, nil
}

// decode reads an event in binary mode, in structured mode, or as structured JSON without headers, which people and older
// publishers write. Header names may have any case, and attributes that Rehome does not use are ignored. It does not set Channel
// and Sequence. Every error wraps [schemas.ErrInvalid].
//
// most limits the uncompressed data, in bytes.
func decode(h nats.Header, body []byte, most int) (schemas.Event, error) {
	attributes, err := cloudevent.ReadAttributes(h)
	if err != nil {
		return schemas.Event{}, err
	}
	values, err := headers(h, encodingHeader, contentHeader)
	if err == nil {
		body, err = decompress(strings.ToLower(values[0]), body, most)
	}
	if err != nil {
		return schemas.Event{}, fmt.Errorf("read CloudEvent: %w: %w", schemas.ErrInvalid, err)
	}
	structured := strings.HasPrefix(strings.ToLower(values[1]), cloudevent.StructuredJSON)
	_, binary := attributes["specversion"]
	switch {
	case structured, !binary && bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")):
		return cloudevent.ReadStructured(body)
	case binary:
		return cloudevent.ReadBinary(attributes, body)
	}
	err = errors.New("no CloudEvent: neither a header ce-specversion nor a JSON object")
	return schemas.Event{}, fmt.Errorf("read CloudEvent: %w: %w", schemas.ErrInvalid, err)
}

// headers returns the value of each header, with names in any case. A missing header has the value "". It fails if a header
// occurs more than once.
func headers(h nats.Header, names ...string) (values []string, err error) {
	values = make([]string, len(names))
	for key, given := range h {
		for i, name := range names {
			if !strings.EqualFold(key, name) || len(given) == 0 || given[0] == "" {
				continue
			}
			if values[i] != "" || len(given) > 1 {
				return nil, fmt.Errorf("header %s occurs more than once", name)
			}
			values[i] = given[0]
		}
	}
	return values, nil
}

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// decompress decodes data with the given encoding, at most most bytes of it. An empty encoding means that the data is plain.
func decompress(encoding string, data []byte, most int) ([]byte, error) {
	switch encoding {
	case "", "identity":
		return data, nil
	case gzipEncoding:
	default:
		return nil, fmt.Errorf("content encoding %q is unknown, want %s", encoding, gzipEncoding)
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("data is not compressed with %s: %w", gzipEncoding, err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("data is not compressed with %s: %w", gzipEncoding, err)
	}
	if len(plain) > most {
		return nil, fmt.Errorf("compressed data has more than %d MiB", most>>20)
	}
	return plain, nil
}

// letter is a message of a stream. It may be unreadable.
type letter struct {
	Stream   string
	Subject  string
	Sequence uint64 // in its stream
	epoch    uint64 // of its stream
	Stored   time.Time
	Header   nats.Header
	Data     []byte
}

func (p Prefix) letterOf(m jetstream.Msg, meta *jetstream.MsgMetadata, epoch uint64) letter {
	return letter{
		Stream: p.cut(meta.Stream), Subject: p.cut(m.Subject()), Sequence: meta.Sequence.Stream, epoch: epoch, Stored: meta.Timestamp,
		Header: m.Headers(), Data: m.Data(),
	}
}

// number returns the sequence of the letter with the epoch, for readers.
func (l letter) number() uint64 { return l.Sequence + l.epoch }

// event decodes the letter.
func (l letter) event() (schemas.Event, error) {
	e, err := decodeOn(l.Subject, l.Header, l.Data)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("%s at %d of %s: %w", l.Subject, l.number(), l.Stream, err)
	}
	e.Sequence = l.number()
	return e, nil
}

// decodeOn decodes an event from a channel. Keys limit who may publish on a channel, so readers must not get an event whose type
// belongs on another one: it is invalid.
func decodeOn(channel string, h nats.Header, body []byte) (schemas.Event, error) {
	n, _, _ := nounOf(channel)
	most := maxData
	switch n.Type {
	case schemas.IntentsType:
		most = maxIntentsData
	case schemas.RequestType:
		most = maxRequestData
	}
	e, err := decode(h, body, most)
	if err != nil {
		return schemas.Event{}, err
	}
	if n.Type != "" && e.Type != n.Type {
		return schemas.Event{}, fmt.Errorf("event %.200s: type is %.200q, want %q: %w", e.ID, e.Type, n.Type, schemas.ErrInvalid)
	}
	e.Channel = channel
	return e, nil
}

// epoch returns the number that is added to the sequences of a table. It makes the number of a later message higher even if the
// stream was lost and created again, because running processes remember old numbers. It is the creation time of the stream in
// microseconds, which exceeds every earlier number as long as fewer than a million messages per second are stored. The stream
// itself begins at 1: a server with a full disk lists all sequences from 1 on.
func epoch(info *jetstream.StreamInfo) uint64 {
	tables := []string{StreamScopes, StreamIntents, StreamRequests, StreamMaintenances}
	isTable := slices.ContainsFunc(tables, func(name string) bool {
		return strings.HasSuffix(info.Config.Name, strings.TrimPrefix(name, "KV_"))
	})
	if !isTable {
		return 0
	}
	return uint64(info.Created.UnixMicro())
}

// The headers of a function that has no answer. [HeaderError] has the reason, for users.
const (
	// HeaderRetryAfter has a number of seconds. It is set if a retry after that time can succeed.
	HeaderRetryAfter = "Retry-After"
	// headerServiceError is the error header of the NATS services framework. It has no delay.
	headerServiceError = "Nats-Service-Error"
)

// mostSaid limits the quotation from a response without an answer, in bytes.
const mostSaid = 200

// attributesRoom is the space in a message that is reserved for the headers of an event.
const attributesRoom = 8 << 10

// Ask sends e to the function that listens on a subject, in the binary mode of the CloudEvents NATS binding, and returns the
// event in its response, which can have any mode. has is false if the response is empty. A body that does not fit into a message
// is compressed, with the header Content-Encoding: gzip. ctx limits the wait; without a deadline Ask waits until the connection
// is lost.
//
// Errors are the errors of package delivery: delivery.ErrUnreachable if no function listens on the subject or answers before the
// deadline of ctx; delivery.ErrUnauthorized if the server does not let this client publish there; a *delivery.Later if the
// response has the headers Rehome-Error and Retry-After; and an error that wraps [schemas.ErrInvalid] if it has only the first
// header or is not an event, or if e is invalid or too large. Ask returns [ErrNotConnected] without a connection, and the error
// of ctx after a cancellation.
func (b *Bus) Ask(ctx context.Context, subject string, e schemas.Event) (reply schemas.Event, has bool, err error) {
	if !b.nc.IsConnected() {
		return schemas.Event{}, false, b.health.disconnected()
	}
	if subject == "" || strings.ContainsAny(subject, " \t\r\n*>") {
		return schemas.Event{}, false, fmt.Errorf("ask: %w: subject %q", schemas.ErrInvalid, subject)
	}
	e.Channel = subject
	m, err := encode(e, int(b.nc.MaxPayload())-attributesRoom)
	if err != nil {
		return schemas.Event{}, false, err
	}
	began := time.Now()
	answer, err := b.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return schemas.Event{}, false, b.unanswered(ctx, began, subject, err)
	}
	if reply, has, err = readReply(answer, time.Now()); err != nil {
		return schemas.Event{}, false, fmt.Errorf("answer on %s: %w", subject, err)
	}
	return reply, has, nil
}

// unanswered returns the reason for a missing answer, from the error of the NATS client.
func (b *Bus) unanswered(ctx context.Context, began time.Time, subject string, err error) error {
	switch {
	case b.health.deniedSince(began) != nil:
		return fmt.Errorf("ask on %s: %w: %w", subject, delivery.ErrUnauthorized, b.health.deniedSince(began))
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no function listens on %s", delivery.ErrUnreachable, subject)
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject):
		return fmt.Errorf("ask on %s: %w: %w", subject, schemas.ErrInvalid, err)
	case errors.Is(err, context.DeadlineExceeded) && b.nc.IsConnected():
		return fmt.Errorf("%w: no function answers on %s in time", delivery.ErrUnreachable, subject)
	case ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask on %s: %w", subject, ctx.Err())
	}
	return b.explain(began, fmt.Errorf("ask on %s: %w", subject, err))
}

// readReply reads a response that arrived at the time now.
func readReply(m *nats.Msg, now time.Time) (e schemas.Event, has bool, err error) {
	v, err := headers(m.Header,
		HeaderError, HeaderRetryAfter, headerServiceError, cloudevent.HeaderPrefix+"specversion", contentHeader)
	if err != nil {
		return e, false, fmt.Errorf("%w: %w", schemas.ErrInvalid, err)
	}
	why, after, service, version, content := v[0], v[1], v[2], v[3], v[4]
	if why == "" && service != "" {
		why, after = service, "0"
	}
	switch {
	case why != "" && after != "":
		return e, false, &delivery.Later{After: delivery.ReadAfter(after, now), Err: errors.New(line(why, mostSaid))}
	case why != "":
		return e, false, fmt.Errorf("%w: %s", schemas.ErrInvalid, line(why, mostSaid))
	case len(m.Data) == 0 && version == "" && content == "":
		return e, false, nil
	}
	e, err = decode(m.Header, m.Data, maxIntentsData)
	return e, err == nil, err
}
