package bus

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

const contentHeader = "Content-Type"

// encode writes e in the binary mode of the CloudEvents NATS binding: one header an attribute, the data as the body,
// compressed when it is large.
// It fails with an error that wraps [schemas.ErrInvalid] when e is not a valid CloudEvent with JSON data.
func encode(e schemas.Event) (*nats.Msg, error) {
	m, err := plain(e)
	if err == nil && len(e.Data) > compressAbove {
		err = pack(m, e)
	}
	return m, err
}

// plain is encode without compression.
func plain(e schemas.Event) (*nats.Msg, error) {
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
func decode(h nats.Header, body []byte) (schemas.Event, error) { return decodeUpTo(mostData, h, body) }

// decodeUpTo is decode for data that comes to at most so many bytes when it is unpacked.
func decodeUpTo(most int, h nats.Header, body []byte) (schemas.Event, error) {
	attributes, err := cloudevent.ReadAttributes(h)
	if err != nil {
		return schemas.Event{}, err
	}
	if body, err = decompress(strings.ToLower(header(h, encodingHeader)), body, most); err != nil {
		return schemas.Event{}, fmt.Errorf("read CloudEvent: %w: %w", schemas.ErrInvalid, err)
	}
	structured := strings.HasPrefix(strings.ToLower(header(h, contentHeader)), cloudevent.StructuredJSON)
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

// header is the value of a header, whose name may have any case. Empty: there is none.
func header(h nats.Header, name string) string {
	for key, values := range h {
		if strings.EqualFold(key, name) && len(values) > 0 && values[0] != "" {
			return values[0]
		}
	}
	return ""
}
