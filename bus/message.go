package bus

import (
	"bytes"
	"compress/gzip"
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
)

// Installation is one installation of Rehome in one cluster. Streams belong to it, and its events name it.
type Installation struct {
	Name string
	// Cluster is the UID of the namespace kube-system. Empty means this process has no access to the cluster.
	Cluster string
	// ClusterName is for people.
	ClusterName string
}

// The metadata of a stream that name its installation.
const (
	nameKey        = "rehome.dev/installation"
	clusterKey     = "rehome.dev/cluster-uid"
	clusterNameKey = "rehome.dev/cluster"
)

func installationOf(metadata map[string]string) Installation {
	return Installation{Name: metadata[nameKey], Cluster: metadata[clusterKey], ClusterName: metadata[clusterNameKey]}
}

// adopt returns the metadata of a stream of this installation: the old ones if it knows no cluster to name. It fails if they name
// another one.
func (i Installation) adopt(old map[string]string) (map[string]string, error) {
	owner := installationOf(old)
	switch known := i.Cluster != ""; {
	case owner.Name != "" && i.Name != "" && (owner.Name != i.Name || known && owner.Cluster != i.Cluster):
		return nil, fmt.Errorf("%w: %v, and this process to %v; set REHOME_BUS_PREFIX, or REHOME_NATS_URL, or REHOME_STORE_DIR for a server "+
			"in the process, so that each has its own bus; if the other one is gone, run rehome setup --take-over", ErrOtherInstallation, owner, i)
	case owner.Name != "" || !known:
		return old, nil
	}
	return map[string]string{nameKey: i.Name, clusterKey: i.Cluster, clusterNameKey: i.ClusterName}, nil
}

// ID returns the attribute of events. Empty means the cluster is not known.
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

// Data above compressAbove is sent compressed, with the header Content-Encoding: gzip. Scopes of large groups are far
// above it and shrink to about a tenth, since pods are alike; NATS takes messages of at most 1 MiB by default.
const compressAbove = 256 << 10

// maxData limits uncompressed data that is read, so that a few bytes cannot use up all memory, and therefore also
// written data. maxRequestData limits the data of a request, which any sender may publish and which fits into the
// message uncompressed.
const (
	maxData        = 64 << 20
	maxRequestData = 1 << 20
)

// encode writes e in the binary mode of the CloudEvents NATS binding: one header an attribute, the data as the body,
// compressed when it is large. It fails with an error that wraps [schemas.ErrInvalid] when e is not a valid CloudEvent with JSON
// data, and when the data is larger than maxData.
func encode(e schemas.Event) (*nats.Msg, error) {
	m, err := plain(e)
	if err == nil && len(e.Data) > compressAbove {
		err = pack(m, e)
	}
	return m, err
}

// plain is encode without compression.
func plain(e schemas.Event) (*nats.Msg, error) {
	if len(e.Data) > maxData {
		return nil, fmt.Errorf("write event %q: %w: its data comes to more than %d MiB", e.ID, schemas.ErrInvalid, maxData>>20)
	}
	h := make(nats.Header, 13)
	set := func(name, value string) { h[cloudevent.HeaderPrefix+name] = []string{value} }
	if err := cloudevent.WriteAttributes(e, set); err != nil {
		return nil, err
	}
	return &nats.Msg{Subject: e.Channel, Header: h, Data: e.Data}, nil
}

// pack compresses the body of m, which carries e.
func pack(m *nats.Msg, e schemas.Event) error {
	small, err := compress(e.Data)
	if err != nil {
		return fmt.Errorf("write event %q: compress: %w", e.ID, err)
	}
	m.Data = small
	m.Header[encodingHeader] = []string{gzipEncoding}
	return nil
}

// decode reads an event in binary mode, in structured mode, or as bare structured JSON without headers, as people
// and older publishers write it. Header names may have any case, attributes that Rehome does not use are ignored.
// Channel and Sequence are left empty. Every error wraps [schemas.ErrInvalid].
//
// Uncompressed data has at most so many bytes.
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

// headers returns the values of headers, whose names may have any case. Empty means there is none. It fails if one is
// given more than once.
func headers(h nats.Header, names ...string) (values []string, err error) {
	values = make([]string, len(names))
	for key, given := range h {
		for i, name := range names {
			if !strings.EqualFold(key, name) || len(given) == 0 || given[0] == "" {
				continue
			}
			if values[i] != "" || len(given) > 1 {
				return nil, fmt.Errorf("header %s is given more than once", name)
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
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// decompress reads data of at most so many bytes that was sent with an encoding. Empty means it is not encoded.
func decompress(encoding string, data []byte, most int) ([]byte, error) {
	switch encoding {
	case "", "identity":
		return data, nil
	case gzipEncoding:
	default:
		return nil, fmt.Errorf("content encoding %q is not known, want %s", encoding, gzipEncoding)
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
		return nil, fmt.Errorf("compressed data comes to more than %d MiB", most>>20)
	}
	return plain, nil
}

// letter is a message of a stream, readable or not.
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

// number returns the sequence of the letter for readers.
func (l letter) number() uint64 { return l.Sequence + l.epoch }

// event reads the letter. Uncompressed data has at most so many bytes.
func (l letter) event(most int) (schemas.Event, error) {
	e, err := decode(l.Header, l.Data, most)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("%s at %d of %s: %w", l.Subject, l.number(), l.Stream, err)
	}
	e.Channel, e.Sequence = l.Subject, l.number()
	return e, nil
}

// epoch returns the number that is added to the sequences of a table, so that a later message has a higher number also
// after the stream was lost and made again: roles that lived on know the old numbers. It is the time at which the
// stream was made, in microseconds: above every number given before, as long as fewer than a million messages a second
// are stored. The stream itself begins at 1: a server whose disk is full lists all sequences from 1 on.
func epoch(info *jetstream.StreamInfo) uint64 {
	isTable := slices.ContainsFunc([]string{StreamScopes, StreamIntents, StreamRequests, StreamMaintenances}, func(name string) bool {
		return strings.HasSuffix(info.Config.Name, strings.TrimPrefix(name, "KV_"))
	})
	if !isTable || info.Config.FirstSeq > 1 { // made by an older version, with the epoch in it
		return 0
	}
	return uint64(info.Created.UnixMicro())
}
