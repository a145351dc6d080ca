package api

import (
	"mime"
	"net/http"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
)

const mostBytes = 64 << 10

// modeOf returns the mode of a request, which must be neither compressed nor a batch.
func modeOf(h http.Header) (serve.Mode, error) {
	content := h.Get("Content-Type")
	media, _, err := mime.ParseMediaType(content)
	switch {
	case h.Get("Content-Encoding") != "":
		return 0, serve.Refuse(http.StatusUnsupportedMediaType, "Content-Encoding is %.100q, want none", h.Get("Content-Encoding"))
	case err == nil && media == cloudevent.StructuredJSON:
		return serve.Structured, nil
	case err == nil && media == cloudevent.JSON && h.Get(cloudevent.HeaderPrefix+"specversion") != "":
		return serve.Binary, nil
	}
	return 0, serve.Refuse(http.StatusUnsupportedMediaType, "Content-Type is %.100q; want %s, or %s with the attributes in headers "+
		"that begin with ce-", content, cloudevent.StructuredJSON, cloudevent.JSON)
}

func readEvent(w http.ResponseWriter, r *http.Request, m serve.Mode) (schemas.Event, error) {
	body, err := serve.ReadBody(w, r, mostBytes)
	if err != nil {
		return schemas.Event{}, err
	}
	events, err := serve.Read(m, r.Header, body)
	if err != nil {
		return schemas.Event{}, serve.Refuse(http.StatusBadRequest, "%w", err)
	}
	return events[0], nil
}
