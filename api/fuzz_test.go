package api

import (
	"bytes"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// FuzzRequest checks that any body is either rejected as an error of the client, or becomes a valid request of the sender http
// and that user, which can be published and read again unchanged.
func FuzzRequest(f *testing.F) {
	for _, e := range schematest.Examples(f) {
		f.Add(cloudevent.StructuredJSON, "", "", "robin", e.Document)
		f.Add(cloudevent.JSON, e.Event.Type, e.Event.ID, "system:serviceaccount:shop:ci", []byte(e.Event.Data))
	}
	f.Add(cloudevent.JSON+"; charset=utf-8", schemas.RequestType, "%00", "\xff", []byte(`{"sender":"admin","name":"A b","override":["*"]}`))
	f.Add("text/plain", schemas.RequestType, "1", "", []byte(`{}`))
	f.Add(cloudevent.JSON, schemas.RequestType, "1", "x", bytes.Repeat([]byte(" "), mostBytes+1))
	f.Fuzz(func(t *testing.T, content, eventType, id, user string, body []byte) {
		header := http.Header{}
		for name, value := range map[string]string{
			"Content-Type": content, "Ce-Type": eventType, "Ce-Id": id, "Ce-Source": "/fuzz", "Ce-Specversion": "1.0",
		} {
			header.Set(name, value)
		}
		request, err := received(header, body, user)
		if err != nil {
			if p, is := errors.AsType[*serve.Refusal](err); !is || p.Status < 400 || p.Status >= 500 {
				t.Errorf("got %v, want a problem of the client", err)
			}
			return
		}
		if request.Sender != policy.HTTPSender || !schemas.IsRequestWord(request.Name) || len([]rune(request.Requester)) > schemas.MaxRequester {
			t.Errorf("it is %+v", request)
		}
		e, err := schemas.NewEvent("/fuzz", request, time.Time{}, schemas.Event{})
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", request, err)
		}
		document, err := cloudevent.WriteStructured(e)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", request, err)
		}
		read, err := cloudevent.ReadStructured(document)
		if err != nil {
			t.Fatalf("%s cannot be read: %v", document, err)
		}
		again, err := schemas.Decode[schemas.Request](read)
		if request.Requester = string([]rune(request.Requester)); err != nil || !reflect.DeepEqual(plain(again), plain(request)) {
			t.Errorf("written %+v, read %+v, %v", request, again, err)
		}
	})
}

// received returns the request that the handler reads.
func received(h http.Header, body []byte, name string) (schemas.Request, error) {
	m, err := modeOf(h)
	if err != nil {
		return schemas.Request{}, err
	}
	events, err := serve.Read(m, h, body)
	if err != nil {
		return schemas.Request{}, serve.Refuse(http.StatusBadRequest, "%w", err)
	}
	return requestOf(events[0], user{UserInfo: authenticationv1.UserInfo{Username: name}})
}

// plain removes differences that JSON does not keep: nil and empty lists, and time zones.
func plain(r schemas.Request) schemas.Request {
	r.Deadline = r.Deadline.UTC()
	if len(r.Override) == 0 {
		r.Override = nil
	}
	if r.Target != nil && len(r.Target.Pods) == 0 {
		target := *r.Target
		target.Pods, r.Target = nil, &target
	}
	return r
}
