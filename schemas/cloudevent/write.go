package cloudevent

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/rehome-dev/rehome/schemas"
)

// WriteAttributes calls set with the name and the header value of each attribute of e, including the content type of the data as
// datacontenttype. Send the data unchanged. Its error wraps [schemas.ErrInvalid] if e is not a valid CloudEvent with JSON data.
func WriteAttributes(e schemas.Event, set func(name, value string)) error {
	ce := toCloudEvent(e)
	if err := ce.Validate(); err != nil {
		return fmt.Errorf("write event %q: %w: %s", e.ID, schemas.ErrInvalid, oneLine(err))
	}
	if !json.Valid(e.Data) {
		return fmt.Errorf("write event %q: %w: data is not JSON", e.ID, schemas.ErrInvalid)
	}
	given := func(name, value string) {
		if value != "" {
			set(name, HeaderValue(value))
		}
	}
	given("specversion", ce.SpecVersion())
	given("id", ce.ID())
	given("source", ce.Source())
	given("type", ce.Type())
	given("subject", ce.Subject())
	given("datacontenttype", ce.DataContentType())
	given("dataschema", ce.DataSchema())
	if !e.Time.IsZero() {
		given("time", types.FormatTime(e.Time))
	}
	for name, value := range ce.Extensions() {
		text, err := types.Format(value)
		if err != nil {
			return fmt.Errorf("write event %q: %w: %s: %w", e.ID, schemas.ErrInvalid, name, err)
		}
		given(name, text)
	}
	return nil
}

// SetHeaders sets the headers of e in binary mode over HTTP. The body is e.Data. Its error is as for [WriteAttributes].
func SetHeaders(e schemas.Event, header http.Header) error {
	header.Set("Content-Type", JSON)
	return WriteAttributes(e, func(name, value string) {
		if name != "datacontenttype" { // which is the Content-Type over HTTP
			header.Set(HeaderPrefix+name, value)
		}
	})
}

// WriteStructured encodes e in structured mode as JSON on one line. Its error wraps [schemas.ErrInvalid] if e is not a valid
// CloudEvent with JSON data.
func WriteStructured(e schemas.Event) ([]byte, error) {
	ce := toCloudEvent(e)
	if err := ce.Validate(); err != nil {
		return nil, fmt.Errorf("write event %q: %w: %s", e.ID, schemas.ErrInvalid, oneLine(err))
	}
	line, err := json.Marshal(ce)
	if err != nil {
		return nil, fmt.Errorf("write event %q: %w: %w", e.ID, schemas.ErrInvalid, err)
	}
	return line, nil
}
