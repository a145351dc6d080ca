package app

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// largeScope returns a scope with at least that many bytes of data, most of them in its arguments.
func largeScope(t *testing.T, node string, bytes int) schemas.Event {
	t.Helper()
	e := nodeScope(t, keepOff, node)
	scope := schematest.Decode[schemas.NodeScope](t, e)
	scope.Args = json.RawMessage(`{"more":"` + strings.Repeat("all alike ", bytes/10) + `"}`)
	e.Data = expect.ToJSON(t, scope)
	return e
}

// seen is a request as the function received it.
type seen struct {
	encoding string
	same     bool // the uncompressed body is the data of the scope
}

// look records the request to a function, and decompresses it.
func lookOf(t *testing.T, scope schemas.Event, encoding string, body []byte) (seen, []byte) {
	if encoding == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return seen{encoding, false}, body
		}
		if body, err = io.ReadAll(z); err != nil {
			t.Error(err)
		}
	}
	return seen{encoding, bytes.Equal(body, scope.Data)}, body
}

// packed returns the encoding of the data of the scope in the stream.
func (d *dispatching) packed(scope schemas.Event) string {
	d.t.Helper()
	s, err := d.raw.Stream(d.t.Context(), bus.StreamScopes)
	if err != nil {
		d.t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(d.t.Context(), scope.Channel)
	if err != nil {
		d.t.Fatal(err)
	}
	return m.Header.Get("Content-Encoding")
}

func TestCompressedScope(t *testing.T) {
	const subject = "functions.off"
	overNATS := "{name: " + keepOff + ", scope: node, wakes: [node.labels], nats: {subject: " + subject + "}}"
	for _, c := range []struct {
		name string
		size int
		nats bool
		want seen
	}{
		{"over HTTP", 300 << 10, false, seen{"", true}},
		{"over HTTP, however large", 9 << 20, false, seen{"", true}},
		{"over NATS", 300 << 10, true, seen{"", true}},
		{"over NATS, compressed if no message could hold it", 9 << 20, true, seen{"gzip", true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDispatching(t, bus.Setup{Strategies: []string{keepOff}})
			scope := d.publish(largeScope(t, "worker-1", c.size))
			if got := d.packed(scope); got != "gzip" {
				t.Errorf("on the bus its encoding is %q, want gzip", got)
			}
			asked := make(chan seen, 100) // a slow answer causes another request
			entry := overNATS
			if c.nats {
				sub, err := d.raw.Conn().Subscribe(subject, func(m *nats.Msg) {
					s, body := lookOf(t, scope, m.Header.Get("Content-Encoding"), m.Data)
					asked <- s
					reply := nats.NewMsg(m.Reply)
					reply.Header, reply.Data = answered(m.Header.Get("ce-id"), body)
					_ = m.RespondMsg(reply)
				})
				expect.Must(t, err)
				t.Cleanup(func() { _ = sub.Unsubscribe() })
			} else {
				entry = over(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					s, body := lookOf(t, scope, r.Header.Get("Content-Encoding"), body)
					asked <- s
					header, answer := answered(r.Header.Get("ce-id"), body)
					maps.Copy(w.Header(), header)
					_, _ = w.Write(answer)
				})).URL)
			}
			d.d.Set(outsideOf(t, entry))
			d.same(d.answers.Next(t), scope, movedBy(scope, keepOff, "worker-1", "requested to leave"))
			if got := <-asked; got != c.want {
				t.Errorf("got the request %+v, want %+v", got, c.want)
			}
			d.done()
			if dead := d.dead(); len(dead) > 0 {
				t.Errorf("dead letters %v, want none", dead)
			}
		})
	}
}

// answered returns the answer of mover to a scope with that ID.
func answered(id string, body []byte) (nats.Header, []byte) {
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("ce-id", id)
	w := httptest.NewRecorder()
	mover(w, r)
	return nats.Header(w.Header()), w.Body.Bytes()
}

// publishPacked stores a compressed scope of any uncompressed size, which only another program does.
func (d *dispatching) publishPacked(e schemas.Event) {
	d.t.Helper()
	m := nats.NewMsg(e.Channel)
	if err := cloudevent.WriteAttributes(e, func(name, value string) { m.Header["ce-"+name] = []string{value} }); err != nil {
		d.t.Fatal(err)
	}
	m.Header.Set("Content-Encoding", "gzip")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(e.Data); err != nil {
		d.t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		d.t.Fatal(err)
	}
	m.Data = packed.Bytes()
	if _, err := d.raw.PublishMsg(d.t.Context(), m); err != nil {
		d.t.Fatal(err)
	}
}

func TestTooLargeCompressedScope(t *testing.T) {
	d := newDispatching(t, bus.Setup{}, over(serve(t, http.HandlerFunc(mover)).URL))
	d.publishPacked(largeScope(t, "huge", 65<<20))
	scope := d.publish(nodeScope(t, keepOff, "worker-1"))
	d.same(d.answers.Next(t), scope, movedBy(scope, keepOff, "worker-1", "requested to leave"))
	d.done()
	dead := d.dead()
	for node, why := range dead {
		_, dead[node], _ = strings.Cut(why, "read CloudEvent: ")
	}
	want := map[string]string{"huge": "invalid event: compressed data has more than 64 MiB"}
	if !reflect.DeepEqual(dead, want) {
		t.Errorf("dead letters %v, want %v", fmt.Sprint(dead), want)
	}
}
