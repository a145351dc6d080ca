package httpfunction

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

// response is an answer that is ready to be sent.
type response struct {
	header http.Header
	body   []byte
}

// newResponse writes events in a mode: one, or any number of them in a batch.
func newResponse(m mode, events []schemas.Event) (response, error) {
	switch m {
	case batched:
		body, err := writeBatch(events)
		return response{header: contentType(cloudevent.BatchJSON), body: body}, err
	case structured:
		body, err := cloudevent.WriteStructured(events[0])
		return response{header: contentType(cloudevent.StructuredJSON), body: body}, err
	}
	header := contentType(cloudevent.JSON)
	err := cloudevent.WriteAttributes(events[0], func(name, value string) {
		if name != "datacontenttype" { // over HTTP it is the Content-Type
			header.Set(cloudevent.HeaderPrefix+name, value)
		}
	})
	return response{header: header, body: events[0].Data}, err
}

func contentType(media string) http.Header { return http.Header{"Content-Type": {media}} }

func writeBatch(events []schemas.Event) ([]byte, error) {
	documents := make([][]byte, len(events))
	for i, e := range events {
		var err error
		if documents[i], err = cloudevent.WriteStructured(e); err != nil {
			return nil, err
		}
	}
	batch := append([]byte("["), bytes.Join(documents, []byte(","))...)
	return append(batch, ']'), nil
}

// write sends the response, and returns the status.
func (r response) write(w http.ResponseWriter) int {
	maps.Copy(w.Header(), r.header)
	w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(r.body) // a client that is gone cannot be told so
	return http.StatusOK
}
