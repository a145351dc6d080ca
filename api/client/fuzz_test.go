package client

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// FuzzAnswers checks that any answer of a server is read as valid events, as a receipt, or as an error with its status.
func FuzzAnswers(f *testing.F) {
	var sent schemas.Event
	for _, e := range schematest.Examples(f) {
		if e.Event.Type == schemas.RequestType {
			sent = e.Event
		}
		f.Add(uint16(0), "text/event-stream", []byte("id: 7\nevent: event\ndata: "+string(e.Document)+"\n\n"))
		f.Add(uint16(2), cloudevent.StructuredJSON, []byte(e.Document))
	}
	f.Add(uint16(0), "text/event-stream", []byte("event: missed\ndata: 3\n\nid: -1\ndata: {\n\n"))
	f.Add(uint16(209), "application/problem+json", []byte(`{"status":200,"title":"x","errors":[{"message":"y","location":"z"},null]}`))
	f.Add(uint16(303), "text/html;;", []byte("<p>\xff"))
	var status int
	var content string
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{content}
		w.Header().Set("Retry-After", content)
		w.WriteHeader(status)
		_, _ = w.Write(body) // some statuses have no body
	}))
	f.Cleanup(server.Close)
	c, err := New(Config{Server: server.URL})
	expect.Must(f, err)
	f.Cleanup(c.Close)
	f.Fuzz(func(t *testing.T, code uint16, media string, answer []byte) {
		status, content, body = 200+int(code)%400, media, answer
		ended := false
		for e, err := range c.Events(t.Context(), Query{}) {
			if ended {
				t.Error("something came after an error")
			}
			if ended = err != nil; !ended {
				if _, err := cloudevent.WriteStructured(e); err != nil {
					t.Errorf("%+v cannot be written: %v", e, err)
				}
			}
			if p, is := errors.AsType[*Problem](err); is != (err != nil && status > 299) || is && p.Status != status {
				t.Errorf("status %d gave %v", status, err)
			}
		}
		if status > 299 && !ended {
			t.Errorf("status %d gave no error", status)
		}
		var state State
		if err := c.State(t.Context(), &state); err == nil && status > 299 {
			t.Errorf("status %d gave the state %+v", status, state)
		}
		receipt, err := c.Send(t.Context(), sent)
		if err == nil && receipt.ID != "" {
			if _, err := cloudevent.WriteStructured(receipt); err != nil {
				t.Errorf("%+v cannot be written: %v", receipt, err)
			}
		}
	})
}
