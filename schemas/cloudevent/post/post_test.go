package post_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/cloudevent/post"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

var question = schemas.Event{
	ID: "1234", Source: "/clusters/default/watcher", Type: schemas.ScopeType, Subject: `node/naïve "x" 100%`,
	Time: time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC), Expires: time.Date(2026, 3, 4, 5, 16, 7, 0, time.UTC),
	CorrelationID: "root", CausationID: "parent",
	TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	Data:        json.RawMessage(`{"kind":"node","key":"worker-1"}`),
}

var reply = schemas.Event{ID: "9", Source: "/f", Type: "t", CausationID: "1234", Data: json.RawMessage(`{"b":2}`)}

// request is a request as the server receives it.
type request struct {
	method string
	header http.Header
	body   string
	event  schemas.Event
}

// serving starts a server and returns its URL.
func serving(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s
}

func client(t *testing.T, c post.Config) *post.Client {
	t.Helper()
	p, err := post.New(c)
	expect.Must(t, err)
	t.Cleanup(p.Close)
	return p
}

// read decodes a request.
func read(t *testing.T, r *http.Request) request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	q := request{method: r.Method, header: r.Header, body: string(body)}
	if r.Header.Get("Content-Type") == cloudevent.StructuredJSON {
		q.event, err = cloudevent.ReadStructured(body)
	} else {
		var attributes map[string]string
		if attributes, err = cloudevent.ReadAttributes(r.Header); err == nil {
			q.event, err = cloudevent.ReadBinary(attributes, body)
		}
	}
	if err != nil {
		t.Error(err)
	}
	return q
}

func TestAskInBothModes(t *testing.T) {
	var got request
	s := serving(t, func(w http.ResponseWriter, r *http.Request) {
		got = read(t, r)
		document, err := cloudevent.WriteStructured(reply)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", cloudevent.StructuredJSON)
		_, _ = w.Write(document)
	})
	for mode, content := range map[post.Mode]string{post.Binary: cloudevent.JSON, post.Structured: cloudevent.StructuredJSON} {
		c := client(t, post.Config{URL: s.URL, Mode: mode, Header: http.Header{"X-Team": {"shop"}, "Ce-Id": {"not yours"}}})
		answer, has, err := c.Ask(t.Context(), question)
		if err != nil || !has || !reflect.DeepEqual(answer, reply) {
			t.Errorf("%s: answered %+v, %v, %v; want %+v", content, answer, has, err, reply)
		}
		if !reflect.DeepEqual(got.event, question) {
			t.Errorf("%s: asked\n%+v, want\n%+v", content, got.event, question)
		}
		headers := [4]string{got.method, got.header.Get("Content-Type"), got.header.Get("X-Team"), got.header.Get("Content-Encoding")}
		if want := [4]string{http.MethodPost, content, "shop", ""}; headers != want {
			t.Errorf("%s: headers %q, want %q", content, headers, want)
		}
		if _, sent := got.header["Idempotency-Key"]; sent || got.header.Get("Ce-Datacontenttype") != "" {
			t.Errorf("%s: unexpected headers: %v", content, got.header)
		}
	}
}

func TestExtensionsInBothModes(t *testing.T) {
	var got request
	s := serving(t, func(_ http.ResponseWriter, r *http.Request) { got = read(t, r) })
	want := question
	want.CorrelationID = `the "other"`
	extensions := map[string]string{"correlationid": `the "other"`, "team": "shop"}
	for _, mode := range []post.Mode{post.Binary, post.Structured} {
		if err := client(t, post.Config{URL: s.URL, Mode: mode, Extensions: extensions}).Send(t.Context(), question); err != nil {
			t.Fatal(err)
		}
		team := got.header.Get("ce-team")
		if mode == post.Structured {
			var fields struct{ Team string }
			if err := json.Unmarshal([]byte(got.body), &fields); err != nil {
				t.Error(err)
			}
			team = fields.Team
		}
		if !reflect.DeepEqual(got.event, want) || team != "shop" {
			t.Errorf("mode %v: got team %q and\n%+v, want shop and\n%+v", mode, team, got.event, want)
		}
	}
}

func TestCompressedAnswer(t *testing.T) {
	s := serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", cloudevent.JSON)
		w.Header().Set("Content-Encoding", "gzip")
		if err := cloudevent.WriteAttributes(reply, func(name, value string) { w.Header().Set("ce-"+name, value) }); err != nil {
			t.Error(err)
		}
		z := gzip.NewWriter(w)
		_, _ = z.Write(reply.Data)
		_ = z.Close()
	})
	got, has, err := client(t, post.Config{URL: s.URL}).Ask(t.Context(), question)
	if err != nil || !has || !reflect.DeepEqual(got, reply) {
		t.Errorf("got %+v, %v, %v; want %+v", got, has, err, reply)
	}
}

func TestEventRequiresStatus200(t *testing.T) {
	for status, want := range map[int]bool{200: true, 201: false, 202: false, 204: false} {
		s := serving(t, func(w http.ResponseWriter, r *http.Request) {
			if err := cloudevent.WriteAttributes(reply, func(name, value string) { w.Header().Set("ce-"+name, value) }); err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", cloudevent.JSON)
			w.WriteHeader(status)
			if status != http.StatusNoContent {
				_, _ = w.Write(reply.Data)
			}
		})
		if got, has, err := client(t, post.Config{URL: s.URL}).Ask(t.Context(), question); err != nil || has != want {
			t.Errorf("%d: got %+v, %v, %v; want one: %v", status, got, has, err, want)
		}
	}
}

func TestSendIgnoresBody(t *testing.T) {
	s := serving(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") })
	c := client(t, post.Config{URL: s.URL})
	if err := c.Send(t.Context(), question); err != nil {
		t.Error(err)
	}
	if _, _, err := c.Ask(t.Context(), question); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("Ask returned %v, want an error that is ErrInvalid", err)
	}
}

func TestTokenReload(t *testing.T) {
	var got string
	s := serving(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") })
	file := filepath.Join(t.TempDir(), "token")
	c := client(t, post.Config{URL: s.URL, TokenFile: file})
	if err := c.Send(t.Context(), question); !errors.Is(err, delivery.ErrUnauthorized) {
		t.Errorf("without the file: got %v, want an error that is ErrUnauthorized", err)
	}
	for _, token := range []string{"first", "second"} {
		filetest.Write(t, file, token+"\n")
		if err := c.Send(t.Context(), question); err != nil || got != "Bearer "+token {
			t.Errorf("got %q, %v; want %q", got, err, "Bearer "+token)
		}
	}
}

func TestRedirectsNotFollowed(t *testing.T) {
	var reached atomic.Int32
	elsewhere := serving(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	s := serving(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	err := client(t, post.Config{URL: s.URL}).Send(t.Context(), question)
	if !errors.Is(err, schemas.ErrInvalid) || !strings.Contains(err.Error(), "307") || reached.Load() != 0 {
		t.Errorf("got %v and %d requests elsewhere, want an error that is ErrInvalid, and none", err, reached.Load())
	}
}

func TestMaxReply(t *testing.T) {
	s := serving(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1001)) })
	_, has, err := client(t, post.Config{URL: s.URL, MaxReply: 1000}).Ask(t.Context(), question)
	want := "answer of " + s.URL + ": invalid event: it has more than 1000 bytes, which is the limit"
	if has || !errors.Is(err, schemas.ErrInvalid) || err.Error() != want {
		t.Errorf("got %v, %v\nwant %s", has, err, want)
	}
}

// A proxy may report an unavailable server with a page of any length.
func TestStatusOfLongAnswers(t *testing.T) {
	var status atomic.Int32
	s := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write(make([]byte, 1001))
	})
	c := client(t, post.Config{URL: s.URL, MaxReply: 1000})
	for code, kind := range map[int]error{200: nil, 202: nil, 400: schemas.ErrInvalid, 401: delivery.ErrUnauthorized, 503: delivery.ErrUnreachable} {
		status.Store(int32(code))
		if err := c.Send(t.Context(), question); !errors.Is(err, kind) || (err == nil) != (kind == nil) {
			t.Errorf("%d: Send returned %v, want %v", code, err, kind)
		}
		if code == http.StatusOK {
			continue // which could hold an event
		}
		if _, has, err := c.Ask(t.Context(), question); has || !errors.Is(err, kind) || (err == nil) != (kind == nil) {
			t.Errorf("%d: Ask returned %v, %v; want %v", code, has, err, kind)
		}
	}
}

func TestUnreachableAndCanceled(t *testing.T) {
	nobody := "http://" + expect.Value(t, program.FreeAddress)
	done := make(chan struct{})
	hangs := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-done:
		case <-r.Context().Done():
		}
	})
	breaks := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	defer close(done)
	for name, c := range map[string]post.Config{
		"no server":      {URL: nobody},
		"no answer":      {URL: hangs.URL, Timeout: 20 * time.Millisecond},
		"half an answer": {URL: breaks.URL},
	} {
		if err := client(t, c).Send(t.Context(), question); !errors.Is(err, delivery.ErrUnreachable) {
			t.Errorf("%s: got %v, want an error that is ErrUnreachable", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := client(t, post.Config{URL: hangs.URL}).Send(ctx, question); !errors.Is(err, context.Canceled) || errors.Is(err, delivery.ErrUnreachable) {
		t.Errorf("canceled: got %v, want an error that is context.Canceled only", err)
	}
}

func TestConnectionReuse(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "an unread response")
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c := client(t, post.Config{URL: s.URL})
	for range 20 {
		if err := c.Send(t.Context(), question); err != nil {
			t.Fatal(err)
		}
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

func TestInvalidURLHidesSecrets(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"nats://me:secret@host/a?token=secret", `url "nats://me:xxxxx@host/a?…": want http://HOST/PATH or https://HOST/PATH`},
		{"host/a", `url "host/a": want http://HOST/PATH or https://HOST/PATH`},
		{"", `url "": want http://HOST/PATH or https://HOST/PATH`},
		{"http://me:secret@host:a/", `url: invalid port ":a" after host`},
	} {
		if _, err := post.New(post.Config{URL: c.url}); err == nil || err.Error() != c.want {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
}

func TestErrorHidesSecrets(t *testing.T) {
	s := serving(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	address := strings.Replace(s.URL, "http://", "http://me:secret@", 1) + "/f?token=secret"
	err := client(t, post.Config{URL: address}).Send(t.Context(), question)
	want := "post to " + strings.Replace(s.URL, "http://", "http://me:xxxxx@", 1) + "/f?…: not authorized: status 403 Forbidden"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
