// Package cloudevent reads and writes the events of Rehome as CloudEvents. It has the common part of the NATS and HTTP bindings.
//
// # Modes
//
// In structured mode one JSON object is the whole event: [WriteStructured] and [ReadStructured]. In binary mode the body is the
// data, and each attribute has a header: [WriteAttributes], [ReadAttributes], and [ReadBinary]. The header of the content type
// has another name in each binding, so the caller sets it.
//
// # Validity
//
// The CloudEvents SDK validates events when they are read and written. In addition, data must be JSON. Unknown attributes are
// dropped. Every error wraps [schemas.ErrInvalid].
package cloudevent

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/rehome-dev/rehome/schemas"
)

// The media types of CloudEvents, and of their data.
const (
	JSON           = "application/json"
	StructuredJSON = event.ApplicationCloudEventsJSON
	BatchJSON      = event.ApplicationCloudEventsBatchJSON
)

// HeaderPrefix begins the name of a header with an attribute.
const HeaderPrefix = "ce-"

// The extension attributes of Rehome.
const (
	correlationID = "correlationid"
	causationID   = "causationid"
	traceParent   = "traceparent"
	expiryTime    = "expirytime"
	installation  = "installation"
)

func toCloudEvent(e schemas.Event) event.Event {
	ce := event.New()
	ce.SetID(e.ID)
	ce.SetSource(e.Source)
	ce.SetType(e.Type)
	ce.SetDataContentType(JSON)
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
	extend(installation, e.Installation)
	if !e.Expires.IsZero() {
		extend(expiryTime, types.FormatTime(e.Expires))
	}
	return ce
}

func fromCloudEvent(ce event.Event) (schemas.Event, error) {
	if err := ce.Validate(); err != nil {
		return schemas.Event{}, errors.New(oneLine(err))
	}
	if !IsJSON(ce.DataContentType()) {
		return schemas.Event{}, fmt.Errorf("data is %s, want %s", ce.DataContentType(), JSON)
	}
	if !json.Valid(ce.Data()) {
		return schemas.Event{}, errors.New("data is not JSON")
	}
	if !utf8.Valid(ce.Data()) {
		return schemas.Event{}, errors.New("data is not UTF-8")
	}
	// The SDK trims these attributes when it writes them, but not when it reads them in structured mode.
	e := schemas.Event{
		ID: strings.TrimSpace(ce.ID()), Source: ce.Source(), Type: strings.TrimSpace(ce.Type()),
		Subject: strings.TrimSpace(ce.Subject()), Data: ce.Data(),
		CorrelationID: extension(ce, correlationID), CausationID: extension(ce, causationID),
		TraceParent: extension(ce, traceParent), Installation: extension(ce, installation),
	}
	if t := ce.Time(); !t.IsZero() {
		if e.Time = t.UTC(); !writable(e.Time) {
			return schemas.Event{}, fmt.Errorf("time: %q is not in the years 0 to 9999 of UTC", types.FormatTime(t))
		}
	}
	if text := extension(ce, expiryTime); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return schemas.Event{}, fmt.Errorf("%s: %w", expiryTime, err)
		}
		if e.Expires = t.UTC(); !writable(e.Expires) {
			return schemas.Event{}, fmt.Errorf("%s: %q is not in the years 0 to 9999 of UTC", expiryTime, text)
		}
	}
	return e, nil
}

// writable reports whether a time can be written in UTC with a year of four digits.
func writable(t time.Time) bool { return t.Year() >= 0 && t.Year() <= 9999 }

// extension returns an extension as text, or "" if it is missing.
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

// IsJSON reports whether a content type is JSON. The empty content type counts as JSON.
func IsJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == JSON || media == "text/json" || strings.HasSuffix(media, "+json"))
}

// schemaOf returns the URL of the JSON Schema of dev.rehome.NOUN.vN, or "" for any other type.
func schemaOf(eventType string) string {
	rest, ours := strings.CutPrefix(eventType, "dev.rehome.")
	noun, version, two := strings.Cut(rest, ".")
	number, versioned := strings.CutPrefix(version, "v")
	plain := strings.Trim(noun, "abcdefghijklmnopqrstuvwxyz") == "" && strings.Trim(number, "0123456789") == ""
	if !ours || !two || !versioned || noun == "" || number == "" || !plain {
		return "" // not a valid URL
	}
	return "https://rehome.dev/schemas/" + version + "/" + noun + ".schema.json"
}

// oneLine returns the text of an SDK error on one line. The SDK reports one line per wrong attribute in random order.
func oneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}
