package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

const mostBytes = 64 << 10

// mode is the content mode of a request, and of its answer.
type mode int

const (
	binary mode = iota
	structured
)

func modeOf(h http.Header) (mode, error) {
	content := h.Get("Content-Type")
	media, _, err := mime.ParseMediaType(content)
	switch {
	case h.Get("Content-Encoding") != "":
		return 0, refuse(http.StatusUnsupportedMediaType, "Content-Encoding is %.100q, want none", h.Get("Content-Encoding"))
	case err == nil && media == cloudevent.StructuredJSON:
		return structured, nil
	case err == nil && media == cloudevent.JSON && h.Get(cloudevent.HeaderPrefix+"specversion") != "":
		return binary, nil
	}
	return 0, refuse(http.StatusUnsupportedMediaType, "Content-Type is %.100q; want %s, or %s with the attributes in headers "+
		"that begin with ce-", content, cloudevent.StructuredJSON, cloudevent.JSON)
}

func readEvent(w http.ResponseWriter, r *http.Request, m mode) (schemas.Event, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBytes))
	var beyond *http.MaxBytesError
	switch {
	case errors.As(err, &beyond):
		return schemas.Event{}, refuse(http.StatusRequestEntityTooLarge,
			"the request has more than %d bytes, which is the most", mostBytes)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return schemas.Event{}, refuse(http.StatusRequestTimeout, "the request did not arrive in time")
	case err != nil:
		return schemas.Event{}, refuse(http.StatusBadRequest, "the body cannot be read: %w", err)
	}
	e, err := parse(r.Header, body, m)
	if err != nil {
		return schemas.Event{}, refuse(http.StatusBadRequest, "%w", err)
	}
	return e, nil
}

func parse(h http.Header, body []byte, m mode) (schemas.Event, error) {
	if m == structured {
		return cloudevent.ReadStructured(body)
	}
	attributes, err := cloudevent.ReadAttributes(h)
	if err != nil {
		return schemas.Event{}, err
	}
	attributes["datacontenttype"] = h.Get("Content-Type") // over HTTP it has no header of its own
	return cloudevent.ReadBinary(attributes, body)
}
