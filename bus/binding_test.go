package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// full has a value for every attribute.
var full = schemas.Event{
	ID: "1234", Source: "/clusters/default/watcher", Type: schemas.DeltaType, Subject: `ns/naïve pod "x" 100%`,
	Time:          time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC),
	Expires:       time.Date(2026, 3, 4, 5, 16, 7, 0, time.UTC),
	CorrelationID: "root", CausationID: "parent",
	TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	Data:        json.RawMessage(`{"kind":"node.taints","object":{"kind":"Node","name":"worker-1"}}`),
}

// least has only the required attributes.
var least = schemas.Event{ID: "1", Source: "a", Type: "t", Data: json.RawMessage(`{}`)}

func TestEventRoundTrip(t *testing.T) {
	for _, want := range []schemas.Event{full, least} {
		m, err := encode(want, compressAbove)
		expect.Must(t, err)
		got, err := decode(m.Header, m.Data, maxData)
		expect.Must(t, err)
		expect.Equal(t, "result", got, want)
	}
}

func TestBinaryModeHeaders(t *testing.T) {
	e := full
	e.Channel = "rehome.delta.node.taints.worker-1"
	m, err := encode(e, compressAbove)
	expect.Must(t, err)
	want := &nats.Msg{Subject: e.Channel, Data: full.Data, Header: nats.Header{
		"ce-specversion":     {"1.0"},
		"ce-id":              {"1234"},
		"ce-source":          {"/clusters/default/watcher"},
		"ce-type":            {"dev.rehome.delta.v1"},
		"ce-subject":         {"ns/na%C3%AFve%20pod%20%22x%22%20100%25"},
		"ce-time":            {"2026-03-04T05:06:07.000000089Z"},
		"ce-datacontenttype": {"application/json"},
		"ce-dataschema":      {"https://rehome.dev/schemas/v1/delta.schema.json"},
		"ce-correlationid":   {"root"},
		"ce-causationid":     {"parent"},
		"ce-traceparent":     {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"ce-expirytime":      {"2026-03-04T05:16:07Z"},
	}}
	expect.Equal(t, "message", m, want)
}

func TestDecodeForeignEvents(t *testing.T) {
	binary := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"a"}, "ce-type": {"t"}}
	with := func(extra nats.Header) nats.Header {
		h := maps.Clone(binary)
		maps.Copy(h, extra)
		return h
	}
	structured := `{"specversion":"1.0","id":"1","source":"a","type":"t","data":{}}`
	changed := func(change func(*schemas.Event)) schemas.Event {
		e := least
		change(&e)
		return e
	}
	tests := map[string]struct {
		header nats.Header
		body   string
		want   schemas.Event
	}{
		"binary without a content type": {binary, `{}`, least},
		"header names in any case": {
			nats.Header{"Ce-Specversion": {"1.0"}, "CE-ID": {"1"}, "cE-source": {"a"}, "Ce-Type": {"t"}}, `{}`, least,
		},
		"attributes that Rehome does not know": {with(nats.Header{"ce-custom": {"x"}, "ce-Not_Valid": {"y"}}), `{}`, least},
		"headers of the server":                {with(nats.Header{"Nats-Msg-Id": {"x"}}), `{}`, least},
		"its own JSON type": {
			with(nats.Header{"ce-datacontenttype": {"application/vnd.x+json; charset=utf-8"}}), `{}`, least,
		},
		"a value that was not encoded": {
			with(nats.Header{"ce-subject": {`ns/naïve pod "x" 100%`}}), `{}`,
			changed(func(e *schemas.Event) { e.Subject = full.Subject }),
		},
		"an empty value is no value": {with(nats.Header{"ce-subject": {""}}), `{}`, least},
		"a time of another zone": {
			with(nats.Header{"ce-time": {"2026-03-04T06:06:07+01:00"}}), `{}`,
			changed(func(e *schemas.Event) { e.Time = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }),
		},
		"binary although the content type says JSON": {with(nats.Header{"Content-Type": {"application/json"}}), `{}`, least},
		"structured": {nats.Header{"Content-Type": {"application/cloudevents+json"}}, structured, least},
		"structured, in capitals and with a character set": {
			nats.Header{"CONTENT-TYPE": {"Application/CloudEvents+JSON; charset=utf-8"}}, structured, least,
		},
		"structured wins over headers": {
			nats.Header{"content-type": {"application/cloudevents+json"}, "ce-specversion": {"1.0"}, "ce-id": {"2"}},
			structured, least,
		},
		"bare JSON without headers": {nil, " \n" + structured, least},
		"structured with extensions": {
			nil, `{"specversion":"1.0","id":"1","source":"a","type":"t","correlationid":"r","causationid":7,
			       "expirytime":"2026-03-04T05:16:07Z","data":{}}`,
			changed(func(e *schemas.Event) {
				e.CorrelationID, e.CausationID, e.Expires = "r", "7", full.Expires
			}),
		},
		"structured with encoded data": {
			nil, `{"specversion":"1.0","id":"1","source":"a","type":"t","data_base64":"e30="}`, least,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := decode(test.header, []byte(test.body), maxData)
			expect.Must(t, err)
			expect.Equal(t, "result", got, test.want)
		})
	}
}

func TestDecodeInvalidMessages(t *testing.T) {
	head := func(change nats.Header) nats.Header {
		h := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"a"}, "ce-type": {"t"}}
		maps.Copy(h, change)
		return h
	}
	tests := map[string]struct {
		header nats.Header
		body   string
		says   string
	}{
		"nothing":                   {nil, ``, "no CloudEvent"},
		"garbage":                   {nil, "\x00\xff", "no CloudEvent"},
		"JSON that is no event":     {nil, `{"kind":"node.taints"}`, "specversion"},
		"half an object":            {nil, `{"specversion":"1.0"`, "not JSON"},
		"no id":                     {head(nats.Header{"ce-id": nil}), `{}`, "id: MUST"},
		"no source":                 {head(nats.Header{"ce-source": nil}), `{}`, "source: REQUIRED"},
		"no type":                   {head(nats.Header{"ce-type": nil}), `{}`, "type: MUST"},
		"another version":           {head(nats.Header{"ce-specversion": {"0.3"}}), `{}`, `specversion is "0.3"`},
		"another version, in JSON":  {nil, `{"specversion":"0.3","id":"1","source":"a","type":"t","data":{}}`, "specversion"},
		"a source that is no URI":   {head(nats.Header{"ce-source": {"%25zz:"}}), `{}`, "source"},
		"invalid time":              {head(nats.Header{"ce-time": {"yesterday"}}), `{}`, "time"},
		"an expiry that is no time": {head(nats.Header{"ce-expirytime": {"soon"}}), `{}`, "expirytime"},
		"two values of one name":    {head(nats.Header{"ce-id": {"1", "2"}}), `{}`, "id occurs more than once"},
		"one name in two cases":     {head(nats.Header{"CE-ID": {"2"}}), `{}`, "id occurs more than once"},
		"two content types":         {head(nats.Header{"Content-Type": {"a/b", "c/d"}}), `{}`, "Content-Type occurs more than once"},
		"two cases of content type": {head(nats.Header{"Content-Type": {"a/b"}, "content-type": {"c/d"}}), `{}`, "Content-Type occurs more than once"},
		"two cases of an encoding":  {head(nats.Header{"Content-Encoding": {"identity"}, "content-encoding": {"gzip"}}), `{}`, "Content-Encoding occurs more than once"},
		"bytes that are not UTF-8":  {head(nats.Header{"ce-subject": {"%FF"}}), `{}`, "subject: not UTF-8"},
		"no data":                   {head(nil), ``, "data is not JSON"},
		"data that is not JSON":     {head(nil), `{"a":`, "data is not JSON"},
		"data of another type":      {head(nats.Header{"ce-datacontenttype": {"text/xml"}}), `{}`, "data is text/xml"},
		"no data, in JSON":          {nil, `{"specversion":"1.0","id":"1","source":"a","type":"t"}`, "data is not JSON"},
		"a batch": {
			nats.Header{"Content-Type": {"application/cloudevents-batch+json"}}, `[]`, "no CloudEvent",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e, err := decode(test.header, []byte(test.body), maxData)
			if !errors.Is(err, schemas.ErrInvalid) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %+v, %v; want an invalid event and an error that says %q", e, err, test.says)
			}
		})
	}
}

func TestEncodeIncompleteEvent(t *testing.T) {
	tests := map[string]func(*schemas.Event){
		"no id":             func(e *schemas.Event) { e.ID = "" },
		"no source":         func(e *schemas.Event) { e.Source = "" },
		"a source with %zz": func(e *schemas.Event) { e.Source = "%zz" },
		"no type":           func(e *schemas.Event) { e.Type = "" },
		"no data":           func(e *schemas.Event) { e.Data = nil },
		"data not JSON":     func(e *schemas.Event) { e.Data = json.RawMessage(`{`) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			e := full
			change(&e)
			if m, err := encode(e, compressAbove); !errors.Is(err, schemas.ErrInvalid) {
				t.Errorf("got %+v, %v; want an error that is ErrInvalid", m, err)
			}
		})
	}
}

// FuzzDecode checks that any message either is an error that describes the problem, or is an event that can be written and read
// unchanged.
func FuzzDecode(f *testing.F) {
	m, err := encode(full, compressAbove)
	expect.Must(f, err)
	f.Add(m.Header["ce-subject"][0], m.Header["ce-time"][0], m.Header["ce-source"][0], "application/json",
		[]byte(full.Data))
	f.Add("%", "", "a", "", []byte(`{}`))
	f.Add("%C3%28", "0000-00-00T00:00:00Z", "http://[::1", "text/plain;=", []byte(`"x"`))
	f.Add("", "2026-03-04T05:06:07Z", "", "Application/CloudEvents+json",
		[]byte(`{"specversion":"1.0","id":"1","source":"a","type":"t","subject":"s","expirytime":"2026-03-04T05:06:07Z","data":{"a":[1]}}`))
	f.Add("", "", "", "application/cloudevents", []byte(`{"specversion":"1.0","id":"1","source":"a","type":"t","data_base64":"!"}`))
	f.Add("", "", "", "", []byte(`{"specversion":"1.0","id":"1","source":"a","type":"t","time":7,"x":{"y":null},"data":""}`))
	packed, err := compress(full.Data)
	expect.Must(f, err)
	f.Add("s", m.Header["ce-time"][0], "/a", "application/json", packed)
	f.Add("s", m.Header["ce-time"][0], "/a", "application/json", packed[:len(packed)-9])
	f.Fuzz(func(t *testing.T, subject, at, source, contentType string, body []byte) {
		headers := []nats.Header{nil, {"Content-Type": {contentType}}, {
			"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-type": {"t"}, "ce-source": {source}, "Content-Encoding": {"gzip"},
		}, {
			"ce-specversion": {"1.0"}, "Ce-Id": {"1"}, "ce-type": {"t"}, "ce-source": {source}, "ce-time": {at},
			"ce-subject": {subject}, "ce-expirytime": {at}, "ce-correlationid": {subject}, "ce-datacontenttype": {contentType},
		}}
		for _, h := range headers {
			e, err := decode(h, body, maxData)
			if err != nil {
				if !errors.Is(err, schemas.ErrInvalid) {
					t.Fatalf("error is not ErrInvalid: %v", err)
				}
				continue
			}
			if err := readsBack(e); err != nil {
				t.Error(err)
			}
		}
	})
}

func readsBack(e schemas.Event) error {
	m, err := encode(e, compressAbove)
	if err != nil {
		return fmt.Errorf("read %+v, which cannot be written: %w", e, err)
	}
	again, err := decode(m.Header, m.Data, maxData)
	if err != nil {
		return fmt.Errorf("read %+v, which cannot be read again: %w", e, err)
	}
	if !reflect.DeepEqual(again, e) {
		return fmt.Errorf("read %+v, and then %+v", e, again)
	}
	return nil
}
