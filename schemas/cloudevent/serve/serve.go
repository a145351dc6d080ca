// Package serve is the server side of the HTTP binding of CloudEvents: it reads the events of a request and writes the
// events of the response. Package post is the client side.
//
//	ModeOf ──▶ ReadBody ──▶ Read ──▶ Write      serve.go
//	Refuse ──▶ Refusal.Write                    refusal.go
//
// The text of a refusal names valid alternatives.
package serve

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

// Mode is the encoding of events in a request and its response.
type Mode int

// The modes of CloudEvents.
const (
	Binary Mode = iota
	Structured
	Batched
)

// wanted lists the supported content types.
const wanted = "want " + cloudevent.StructuredJSON + ", " + cloudevent.BatchJSON + ", or " + cloudevent.JSON +
	" with the attributes in headers that begin with ce-"

// ModeOf returns the mode of a request. Its error is a *[Refusal].
func ModeOf(h http.Header) (Mode, error) {
	content := h.Get("Content-Type")
	media, parameters, err := mime.ParseMediaType(content)
	if err != nil && content != "" {
		return 0, Refuse(http.StatusUnsupportedMediaType, "Content-Type is %.100q; %s", content, wanted)
	}
	if set := parameters["charset"]; set != "" && !strings.EqualFold(set, "utf-8") {
		return 0, Refuse(http.StatusUnsupportedMediaType, "the character set is %.100q, want utf-8", set)
	}
	switch {
	case media == cloudevent.StructuredJSON:
		return Structured, nil
	case media == cloudevent.BatchJSON:
		return Batched, nil
	case strings.HasPrefix(media, "application/cloudevents"), !cloudevent.IsJSON(content):
		return 0, Refuse(http.StatusUnsupportedMediaType, "Content-Type is %.100q; %s", content, wanted)
	case h.Get(cloudevent.HeaderPrefix+"specversion") == "":
		return 0, Refuse(http.StatusBadRequest, "no CloudEvent: there is no header ce-specversion; "+
			"an event that is JSON as a whole has the Content-Type %s", cloudevent.StructuredJSON)
	}
	return Binary, nil
}

// ReadBody returns the uncompressed body, which may have at most most bytes, also before decompression. Its error is a
// *[Refusal].
func ReadBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	var body io.Reader = http.MaxBytesReader(w, r.Body, most)
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return nil, unreadable(err, most)
		}
		body = unpacked
	default:
		return nil, Refuse(http.StatusUnsupportedMediaType, "Content-Encoding is %.100q, want gzip or none", encoding).
			With("Accept-Encoding", "gzip")
	}
	content, err := io.ReadAll(io.LimitReader(body, most+1))
	if err != nil {
		return nil, unreadable(err, most)
	}
	if int64(len(content)) > most {
		return nil, tooLarge(most)
	}
	return content, nil
}

func tooLarge(most int64) *Refusal {
	return Refuse(http.StatusRequestEntityTooLarge, "the request has more than %d bytes, which is the limit", most).
		With("Connection", "close")
}

// unreadable returns the refusal of a body that cannot be read.
func unreadable(err error, most int64) *Refusal {
	var beyond *http.MaxBytesError
	switch {
	case errors.As(err, &beyond):
		return tooLarge(most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Refuse(http.StatusRequestTimeout, "the request did not arrive in time").With("Connection", "close")
	}
	return Refuse(http.StatusBadRequest, "cannot read the body: %w", err)
}

// Read returns the event or the batch of events in a request. Its error wraps [schemas.ErrInvalid].
func Read(m Mode, h http.Header, body []byte) ([]schemas.Event, error) {
	switch m {
	case Batched:
		return readBatch(body)
	case Structured:
		e, err := cloudevent.ReadStructured(body)
		return []schemas.Event{e}, err
	}
	e, err := cloudevent.ReadHeaders(h, body)
	return []schemas.Event{e}, err
}

func readBatch(body []byte) ([]schemas.Event, error) {
	var documents []json.RawMessage
	if err := json.Unmarshal(body, &documents); err != nil {
		return nil, fmt.Errorf("the batch is not a JSON array: %w: %w", schemas.ErrInvalid, err)
	}
	if documents == nil {
		return nil, fmt.Errorf("the batch is not a JSON array: %w: it is null", schemas.ErrInvalid)
	}
	events := []schemas.Event{} // it grows, because an event is far larger than an invalid document
	for i, document := range documents {
		e, err := cloudevent.ReadStructured(document)
		if err != nil {
			return nil, fmt.Errorf("event %d of the batch: %w", i, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// Write sends a response with events in a mode. It returns an error only if it has sent nothing.
func Write(w http.ResponseWriter, status int, m Mode, events []schemas.Event) error {
	var body []byte
	var err error
	switch m {
	case Batched:
		w.Header().Set("Content-Type", cloudevent.BatchJSON)
		body, err = writeBatch(events)
	case Structured:
		w.Header().Set("Content-Type", cloudevent.StructuredJSON)
		body, err = cloudevent.WriteStructured(events[0])
	default:
		body = events[0].Data
		err = cloudevent.SetHeaders(events[0], w.Header())
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a failure means that the client is gone
	return nil
}

func writeBatch(events []schemas.Event) ([]byte, error) {
	documents := make([]json.RawMessage, len(events))
	for i, e := range events {
		var err error
		if documents[i], err = cloudevent.WriteStructured(e); err != nil {
			return nil, err
		}
	}
	return json.Marshal(documents)
}
