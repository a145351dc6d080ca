package bus_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

const function = "functions.keep-off-spot"

// listen answers questions on the subject of the function with a bare client of NATS, as programs outside of Rehome do.
func listen(t *testing.T, r rig, answer func(*nats.Msg) *nats.Msg) {
	t.Helper()
	nc := r.raw.Conn()
	s, err := nc.Subscribe(function, func(m *nats.Msg) {
		if a := answer(m); a != nil {
			a.Subject = m.Reply
			_ = nc.PublishMsg(a)
		}
	})
	expect.Must(t, err)
	expect.Must(t, nc.Flush())
	t.Cleanup(func() { _ = s.Unsubscribe() })
}

func TestAsk(t *testing.T) {
	r := newRig(t, bus.Setup{})
	question := scope(t, "worker-1", 1)
	want := schemas.Event{ID: "9", Source: "/f", Type: "t", Subject: "node/worker 1", CausationID: question.ID, Data: json.RawMessage(`{"b":2}`)}
	binary := nats.Header{
		"ce-specversion": {"1.0"}, "CE-ID": {"9"}, "Ce-Source": {"/f"}, "ce-type": {"t"}, "ce-subject": {"node/worker%201"},
		"ce-causationid": {question.ID},
	}
	document := []byte(`{"specversion":"1.0","id":"9","source":"/f","type":"t","subject":"node/worker 1","causationid":"` + question.ID + `","data":{"b":2}}`)
	for name, c := range map[string]struct {
		answer nats.Msg
		want   schemas.Event
		has    bool
	}{
		"binary":                     {nats.Msg{Header: binary, Data: want.Data}, want, true},
		"structured":                 {nats.Msg{Header: nats.Header{"content-type": {"application/cloudevents+json"}}, Data: document}, want, true},
		"structured without headers": {nats.Msg{Data: document}, want, true},
		"nothing":                    {nats.Msg{}, schemas.Event{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked *nats.Msg
			listen(t, r, func(m *nats.Msg) *nats.Msg {
				asked = m
				a := c.answer
				return &a
			})
			got, has, err := r.bus.Ask(t.Context(), function, question)
			if err != nil || has != c.has || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v, %v; want %+v, %v", got, has, err, c.want, c.has)
			}
			if id := asked.Header["ce-id"]; !reflect.DeepEqual(id, []string{question.ID}) || string(asked.Data) != string(question.Data) {
				t.Errorf("asked with ce-id %q and %s, want %s and %s", id, asked.Data, question.ID, question.Data)
			}
		})
	}
}

func TestAskCompression(t *testing.T) {
	r := newRig(t, bus.Setup{})
	var asked *nats.Msg
	listen(t, r, func(m *nats.Msg) *nats.Msg {
		asked = m
		return &nats.Msg{}
	})
	e := scope(t, "worker-1", 1)
	most := int(r.raw.Conn().MaxPayload())
	for name, c := range map[string]struct {
		size       int
		compressed bool
	}{
		"more than is compressed in a stream": {1 << 20, false},
		"more than a message takes":           {most + 1, true},
	} {
		e.Data = json.RawMessage(`{"args":"` + strings.Repeat("x", c.size) + `"}`)
		if _, _, err := r.bus.Ask(t.Context(), function, e); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body := asked.Data
		if compressed := asked.Header.Get("Content-Encoding") == "gzip"; compressed != c.compressed {
			t.Errorf("%s: compressed: %v, want %v", name, compressed, c.compressed)
		} else if compressed {
			z, err := gzip.NewReader(bytes.NewReader(body))
			expect.Must(t, err)
			if body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(body, e.Data) {
			t.Errorf("%s: %d bytes arrived, want the %d that were asked", name, len(body), len(e.Data))
		}
	}
}

func TestMissingAnswerReason(t *testing.T) {
	type meaning struct {
		invalid, unreachable bool
		later                *time.Duration
		text                 string
	}
	after := func(d time.Duration) *time.Duration { return &d }
	r := newRig(t, bus.Setup{})
	for name, c := range map[string]struct {
		answer *nats.Msg
		want   meaning
	}{
		"an error": {
			&nats.Msg{Header: nats.Header{"Rehome-Error": {"no such label"}}, Data: []byte("{}")},
			meaning{invalid: true, text: "answer on functions.keep-off-spot: invalid event: no such label"},
		},
		"an error that passes": {
			&nats.Msg{Header: nats.Header{"rehome-error": {"busy"}, "retry-after": {"7"}}},
			meaning{later: after(7 * time.Second), text: "answer on functions.keep-off-spot: try again after 7s: busy"},
		},
		"an error in two cases": {
			&nats.Msg{Header: nats.Header{"Rehome-Error": {"busy"}, "rehome-error": {"no such label"}, "Retry-After": {"7"}}},
			meaning{invalid: true, text: "answer on functions.keep-off-spot: invalid event: header Rehome-Error occurs more than once"},
		},
		"an error of the services framework": {
			&nats.Msg{Header: nats.Header{"Nats-Service-Error": {"it broke"}, "Nats-Service-Error-Code": {"500"}}},
			meaning{later: after(0), text: "answer on functions.keep-off-spot: try again: it broke"},
		},
		"no event": {
			&nats.Msg{Data: []byte("OK")},
			meaning{invalid: true, text: "answer on functions.keep-off-spot: read CloudEvent: invalid event: no CloudEvent: neither a header ce-specversion nor a JSON object"},
		},
		"an event without data": {
			&nats.Msg{Header: nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/f"}, "ce-type": {"t"}}},
			meaning{invalid: true, text: `answer on functions.keep-off-spot: read CloudEvent "1": invalid event: data is not JSON`},
		},
		"silence": {nil, meaning{unreachable: true, text: "unreachable: no function answers on functions.keep-off-spot in time"}},
	} {
		t.Run(name, func(t *testing.T) {
			listen(t, r, func(*nats.Msg) *nats.Msg { return c.answer })
			within := expect.Patience
			if c.answer == nil {
				within = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, has, err := r.bus.Ask(ctx, function, scope(t, "worker-1", 1))
			if err == nil || has {
				t.Fatalf("got an answer: %v, error %v; want an error", has, err)
			}
			got := meaning{errors.Is(err, schemas.ErrInvalid), errors.Is(err, delivery.ErrUnreachable), nil, err.Error()}
			if later, ok := errors.AsType[*delivery.Later](err); ok {
				got.later = &later.After
			}
			expect.Equal(t, "result", got, c.want)
		})
	}
}

func TestAskCanceled(t *testing.T) {
	r := newRig(t, bus.Setup{})
	ctx, cancel := context.WithCancel(t.Context())
	listen(t, r, func(*nats.Msg) *nats.Msg {
		cancel()
		return nil
	})
	_, _, err := r.bus.Ask(ctx, function, scope(t, "worker-1", 1))
	if !errors.Is(err, context.Canceled) || errors.Is(err, delivery.ErrUnreachable) {
		t.Errorf("got %v, want an error that is context.Canceled only", err)
	}
	r.server.Stop()
	expect.Eventually(t, "the connection is lost", func() bool { return r.bus.Ready() != nil })
	if _, _, err := r.bus.Ask(t.Context(), function, scope(t, "worker-1", 1)); !errors.Is(err, bus.ErrNotConnected) || errors.Is(err, delivery.ErrUnreachable) {
		t.Errorf("without a connection: got %v, want an error that is ErrNotConnected only", err)
	}
}

func TestAskUnsendable(t *testing.T) {
	r := newRig(t, bus.Setup{})
	incomplete := scope(t, "worker-1", 1)
	incomplete.Source = ""
	for name, c := range map[string]struct {
		subject string
		event   schemas.Event
	}{
		"incomplete":        {function, incomplete},
		"no subject":        {"", scope(t, "worker-1", 1)},
		"no single subject": {"functions.*", scope(t, "worker-1", 1)},
	} {
		if _, _, err := r.bus.Ask(t.Context(), c.subject, c.event); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: got %v, want an error that is ErrInvalid", name, err)
		}
	}
}
