package post

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// mostText is the longest quotation of a response, in bytes.
const mostText = 200

// answer is a response.
type answer struct {
	status int
	header http.Header
	body   []byte
	beyond int64 // bytes that were read of a body beyond the limit; 0 for a complete body
}

// verdict returns the meaning of a response, or nil if the server accepted the event. failed is the error of an incomplete
// response. The table is in the package comment.
func verdict(a answer, failed error, now time.Time) error {
	switch {
	case failed != nil:
		return fmt.Errorf("%w: %w", delivery.ErrUnreachable, failed)
	case a.status >= 200 && a.status < 300:
		return nil
	}
	said := errors.New(a.say())
	after := delivery.ReadAfter(a.header.Get("Retry-After"), now)
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", delivery.ErrUnauthorized, said)
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return &delivery.Later{After: after, Err: said}
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		said = fmt.Errorf("%w: %w", delivery.ErrUnreachable, said)
		return &delivery.Later{After: after, Err: said}
	}
	if a.status >= 500 {
		return &delivery.Later{After: after, Err: said}
	}
	return fmt.Errorf("%w: %w", schemas.ErrInvalid, said)
}

// say returns the status with the first words of the body.
func (a answer) say() string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(a.body[:min(len(a.body), 4*mostText)]), "")), " ")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	status := strings.TrimSpace(fmt.Sprintf("status %d %s", a.status, http.StatusText(a.status)))
	if text == "" {
		return status
	}
	return status + ": " + text
}

// event reads the event in a response. has is false if the body is empty. Its error wraps [schemas.ErrInvalid].
func (a answer) event() (e schemas.Event, has bool, err error) {
	if a.beyond > 0 {
		return schemas.Event{}, false, fmt.Errorf("%w: it has more than %d bytes, which is the limit", schemas.ErrInvalid, a.beyond)
	}
	content := a.header.Get("Content-Type")
	media, _, _ := mime.ParseMediaType(content) // a malformed type does not match below
	switch {
	case media == cloudevent.StructuredJSON:
		e, err = cloudevent.ReadStructured(a.body)
	case strings.HasPrefix(media, "application/cloudevents"):
		err = fmt.Errorf("%w: Content-Type is %.100q, want %s or %s", schemas.ErrInvalid, content, cloudevent.StructuredJSON,
			cloudevent.JSON)
	case a.header.Get(cloudevent.HeaderPrefix+"specversion") != "":
		e, err = cloudevent.ReadHeaders(a.header, a.body)
	case len(bytes.TrimSpace(a.body)) == 0:
		return schemas.Event{}, false, nil
	default:
		err = fmt.Errorf("%w: no CloudEvent: there is neither a header ce-specversion nor the Content-Type %s",
			schemas.ErrInvalid, cloudevent.StructuredJSON)
	}
	return e, err == nil, err
}
