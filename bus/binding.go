package bus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/schemas"
)

// The extension attributes of Rehome's events.
const (
	correlationID = "correlationid"
	causationID   = "causationid"
	traceParent   = "traceparent"
	expiryTime    = "expirytime"
)

const (
	jsonType      = "application/json"
	headerPrefix  = "ce-"
	contentHeader = "Content-Type"
)

// encode writes e in the binary mode of the CloudEvents NATS binding: one header an attribute, the data as the body,
// compressed when it is large.
// It fails with an error that wraps [schemas.ErrInvalid] when e is not a valid CloudEvent with JSON data.
func encode(e schemas.Event) (*nats.Msg, error) {
	ce := toCloudEvent(e)
	if err := ce.Validate(); err != nil {
		return nil, fmt.Errorf("write event %q: %w: %s", e.ID, schemas.ErrInvalid, oneLine(err))
	}
	if !json.Valid(e.Data) {
		return nil, fmt.Errorf("write event %q: %w: data is not JSON", e.ID, schemas.ErrInvalid)
	}
	h := make(nats.Header, 13)
	set := func(name, value string) {
		if value != "" {
			h[headerPrefix+name] = []string{percentEncode(value)}
		}
	}
	set("specversion", ce.SpecVersion())
	set("id", ce.ID())
	set("source", ce.Source())
	set("type", ce.Type())
	set("subject", ce.Subject())
	set("datacontenttype", ce.DataContentType())
	set("dataschema", ce.DataSchema())
	if !e.Time.IsZero() {
		set("time", types.FormatTime(e.Time))
	}
	for name, value := range ce.Extensions() {
		text, err := types.Format(value)
		if err != nil {
			return nil, fmt.Errorf("write event %q: %w: %s: %w", e.ID, schemas.ErrInvalid, name, err)
		}
		set(name, text)
	}
	m := &nats.Msg{Subject: e.Channel, Header: h, Data: e.Data}
	if len(e.Data) > compressAbove {
		small, err := compress(e.Data)
		if err != nil {
			return nil, fmt.Errorf("write event %q: compress: %w", e.ID, err)
		}
		m.Data = small
		h[encodingHeader] = []string{gzipEncoding}
	}
	return m, nil
}

// decode reads an event in binary mode, in structured mode, or as bare structured JSON without headers, as people
// and older publishers write it. Header names may have any case, attributes that Rehome does not use are ignored.
// Channel and Sequence are left empty. Every error wraps [schemas.ErrInvalid].
func decode(h nats.Header, body []byte) (schemas.Event, error) {
	ce, err := readCloudEvent(h, body)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("read CloudEvent: %w: %w", schemas.ErrInvalid, err)
	}
	e, err := fromCloudEvent(ce)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("read CloudEvent %q: %w: %w", ce.ID(), schemas.ErrInvalid, err)
	}
	return e, nil
}

func toCloudEvent(e schemas.Event) event.Event {
	ce := event.New()
	ce.SetID(e.ID)
	ce.SetSource(e.Source)
	ce.SetType(e.Type)
	ce.SetDataContentType(jsonType)
	ce.DataEncoded = e.Data
	if e.Subject != "" {
		ce.SetSubject(e.Subject)
	}
	if schema := schemaOf(e.Type); schema != "" {
		ce.SetDataSchema(schema)
	}
	if !e.Time.IsZero() {
		ce.SetTime(e.Time)
	}
	extend := func(name, value string) {
		if value != "" {
			ce.SetExtension(name, value)
		}
	}
	extend(correlationID, e.CorrelationID)
	extend(causationID, e.CausationID)
	extend(traceParent, e.TraceParent)
	if !e.Expires.IsZero() {
		extend(expiryTime, types.FormatTime(e.Expires))
	}
	return ce
}

func fromCloudEvent(ce event.Event) (schemas.Event, error) {
	if err := ce.Validate(); err != nil {
		return schemas.Event{}, errors.New(oneLine(err))
	}
	if !isJSON(ce.DataContentType()) {
		return schemas.Event{}, fmt.Errorf("data is %s, want %s", ce.DataContentType(), jsonType)
	}
	if !json.Valid(ce.Data()) {
		return schemas.Event{}, errors.New("data is not JSON")
	}
	e := schemas.Event{
		ID: ce.ID(), Source: ce.Source(), Type: ce.Type(), Subject: ce.Subject(), Data: ce.Data(),
		CorrelationID: extension(ce, correlationID), CausationID: extension(ce, causationID),
		TraceParent: extension(ce, traceParent),
	}
	if t := ce.Time(); !t.IsZero() {
		e.Time = t.UTC()
	}
	if text := extension(ce, expiryTime); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return schemas.Event{}, fmt.Errorf("%s: %w", expiryTime, err)
		}
		e.Expires = t.UTC()
	}
	return e, nil
}

// extension is the value as text, whatever type it had in structured mode. Empty: there is none.
func extension(ce event.Event, name string) string {
	value, ok := ce.Extensions()[name]
	if !ok {
		return ""
	}
	text, err := types.Format(value)
	if err != nil {
		return ""
	}
	return text
}

func readCloudEvent(h nats.Header, body []byte) (event.Event, error) {
	attributes, content, encoding, err := readHeaders(h)
	if err != nil {
		return event.Event{}, err
	}
	if body, err = decompress(encoding, body); err != nil {
		return event.Event{}, err
	}
	structured := strings.HasPrefix(strings.ToLower(content), event.ApplicationCloudEventsJSON)
	_, binary := attributes["specversion"]
	switch {
	case structured, !binary && bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")):
		return readStructured(body)
	case binary:
		return readBinary(attributes, body)
	}
	return event.Event{}, errors.New("no CloudEvent: neither a header ce-specversion nor a JSON object")
}

func readStructured(body []byte) (event.Event, error) {
	var ce event.Event
	// The decoder of the SDK is lenient, so that what it accepts is not always JSON.
	if !json.Valid(body) {
		return ce, errors.New("body is not JSON")
	}
	if err := json.Unmarshal(body, &ce); err != nil {
		return ce, fmt.Errorf("body is not a CloudEvent: %s", oneLine(err))
	}
	if ce.SpecVersion() != event.CloudEventsVersionV1 {
		return ce, fmt.Errorf("specversion is %q, want %q", ce.SpecVersion(), event.CloudEventsVersionV1)
	}
	return ce, nil
}

func readBinary(attributes map[string]string, body []byte) (event.Event, error) {
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
		case correlationID, causationID, traceParent, expiryTime:
			ce.SetExtension(name, value)
		}
	}
	return ce, nil
}

// readHeaders returns the attributes by their names in lower case, and the content type and encoding of the message. Empty
// values count as absent.
func readHeaders(h nats.Header) (attributes map[string]string, content, encoding string, err error) {
	for key, values := range h {
		key = strings.ToLower(key)
		name, isAttribute := strings.CutPrefix(key, headerPrefix)
		if len(values) == 0 || values[0] == "" {
			continue
		}
		switch key {
		case strings.ToLower(contentHeader):
			content = values[0]
		case strings.ToLower(encodingHeader):
			encoding = strings.ToLower(values[0])
		}
		if !isAttribute {
			continue
		}
		if _, twice := attributes[name]; twice || len(values) > 1 {
			return nil, "", "", fmt.Errorf("attribute %s is given more than once", name)
		}
		value, err := percentDecode(values[0])
		if err != nil {
			return nil, "", "", fmt.Errorf("attribute %s: %w", name, err)
		}
		if attributes == nil {
			attributes = make(map[string]string, len(h))
		}
		attributes[name] = value
	}
	return attributes, content, encoding, nil
}

func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == jsonType || media == "text/json" || strings.HasSuffix(media, "+json"))
}

// schemaOf is the URL of the JSON Schema of dev.rehome.NOUN.vN, and empty for any other type.
func schemaOf(eventType string) string {
	rest, ours := strings.CutPrefix(eventType, "dev.rehome.")
	noun, version, two := strings.Cut(rest, ".")
	if !ours || !two || noun == "" || strings.Contains(version, ".") {
		return ""
	}
	return "https://rehome.dev/schemas/" + version + "/" + noun + ".schema.json"
}

// oneLine is the text of an error of the SDK, which writes one line for each attribute that is wrong.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}
