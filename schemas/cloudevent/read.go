package cloudevent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/rehome-dev/rehome/schemas"
)

// ReadStructured reads an event in structured mode. It does not set Channel and Sequence. Its error wraps [schemas.ErrInvalid].
func ReadStructured(document []byte) (schemas.Event, error) {
	ce, err := parseStructured(document)
	if err != nil {
		return schemas.Event{}, unreadable(err)
	}
	return convert(ce)
}

// ReadBinary reads an event in binary mode from the attributes of [ReadAttributes], with the content type as datacontenttype, and
// the data. It does not set Channel and Sequence. Its error wraps [schemas.ErrInvalid].
func ReadBinary(attributes map[string]string, data []byte) (schemas.Event, error) {
	ce, err := parseBinary(attributes, data)
	if err != nil {
		return schemas.Event{}, unreadable(err)
	}
	return convert(ce)
}

// ReadAttributes returns the attributes in headers by their lower-case names, or nil if there are none. Header names are not case
// sensitive, and empty values count as missing. Its error wraps [schemas.ErrInvalid].
func ReadAttributes(headers map[string][]string) (attributes map[string]string, err error) {
	for key, values := range headers {
		name, isAttribute := strings.CutPrefix(strings.ToLower(key), HeaderPrefix)
		if !isAttribute || len(values) == 0 || values[0] == "" {
			continue
		}
		if _, twice := attributes[name]; twice || len(values) > 1 {
			return nil, unreadable(fmt.Errorf("attribute %s occurs more than once", name))
		}
		value, err := percentDecode(values[0])
		if err != nil {
			return nil, unreadable(fmt.Errorf("attribute %s: %w", name, err))
		}
		if attributes == nil {
			attributes = make(map[string]string, len(headers))
		}
		attributes[name] = value
	}
	return attributes, nil
}

// ReadHeaders reads an event in binary mode over HTTP. It does not set Channel and Sequence. Its error wraps
// [schemas.ErrInvalid].
func ReadHeaders(h http.Header, data []byte) (schemas.Event, error) {
	attributes, err := ReadAttributes(h)
	if err != nil {
		return schemas.Event{}, err
	}
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes["datacontenttype"] = h.Get("Content-Type")
	return ReadBinary(attributes, data)
}

func unreadable(err error) error {
	return fmt.Errorf("read CloudEvent: %w: %w", schemas.ErrInvalid, err)
}

func convert(ce event.Event) (schemas.Event, error) {
	e, err := fromCloudEvent(ce)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("read CloudEvent %q: %w: %w", ce.ID(), schemas.ErrInvalid, err)
	}
	return e, nil
}

func parseStructured(body []byte) (event.Event, error) {
	var ce event.Event
	// The decoder of the SDK also accepts some invalid JSON.
	if !json.Valid(body) {
		return ce, errors.New("body is not JSON")
	}
	if !utf8.Valid(body) {
		return ce, errors.New("body is not UTF-8")
	}
	if err := json.Unmarshal(body, &ce); err != nil {
		return ce, fmt.Errorf("body is not a CloudEvent: %s", oneLine(err))
	}
	if ce.SpecVersion() != event.CloudEventsVersionV1 {
		return ce, fmt.Errorf("specversion is %q, want %q", ce.SpecVersion(), event.CloudEventsVersionV1)
	}
	return ce, nil
}

func parseBinary(attributes map[string]string, body []byte) (event.Event, error) {
	if v := attributes["specversion"]; v != event.CloudEventsVersionV1 {
		return event.Event{}, fmt.Errorf("specversion is %q, want %q", v, event.CloudEventsVersionV1)
	}
	ce := event.New()
	ce.DataEncoded = body
	for name, value := range attributes {
		switch name {
		case "id":
			ce.SetID(value)
		case "source":
			ce.SetSource(value)
		case "type":
			ce.SetType(value)
		case "subject":
			ce.SetSubject(value)
		case "datacontenttype":
			ce.SetDataContentType(value)
		case "time":
			t, err := types.ParseTime(value)
			if err != nil {
				return ce, fmt.Errorf("time: %w", err)
			}
			ce.SetTime(t)
		case correlationID, causationID, traceParent, expiryTime, installation:
			ce.SetExtension(name, value)
		}
	}
	return ce, nil
}
