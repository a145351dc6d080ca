package httpfunction_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/httpfunction"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// nodeTaints returns the strategy RemovePodsViolatingNodeTaints.
func nodeTaints() functions.Function { return functions.All()[0] }

// served serves a function on the loopback interface and returns its address.
func served(t *testing.T, c httpfunction.Config) (*httpfunction.Handler, string) {
	t.Helper()
	c.Source = "/clusters/test/functions"
	h := httpfunction.New(c)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return h, s.URL
}

// scope returns the scope of a tainted node with two pods. One of them does not tolerate the taint. Names contain the
// number.
func scope(t testing.TB, number int) schemas.Event {
	t.Helper()
	node := fmt.Sprintf("worker-%d", number)
	e := schematest.Event(t, "/clusters/test/watcher", functionstest.TaintedScope("RemovePodsViolatingNodeTaints", node,
		functionstest.Pod(fmt.Sprintf("stays-%d", number), functionstest.On(node), functionstest.ToleratingKeys("dedicated")),
		functionstest.Pod(fmt.Sprintf("leaves-%d", number), functionstest.On(node)),
	), functionstest.Now(), schemas.Event{})
	e.CausationID, e.CorrelationID = "before", "first"
	return e
}

// sdk converts e to an event of the CloudEvents SDK.
func sdk(e schemas.Event) event.Event {
	ce := event.New()
	ce.SetID(e.ID)
	ce.SetSource(e.Source)
	ce.SetType(e.Type)
	ce.SetSubject(e.Subject)
	ce.SetTime(e.Time)
	ce.SetExtension("causationid", e.CausationID)
	ce.SetExtension("correlationid", e.CorrelationID)
	ce.SetExtension("traceparent", e.TraceParent)
	_ = ce.SetData("application/json", e.Data) // it is JSON already
	return ce
}

// request is an HTTP request.
type request struct {
	header http.Header
	body   []byte
}

// in returns a request with scopes in a mode: binary, structured, or batched.
func in(t testing.TB, mode string, scopes ...schemas.Event) request {
	t.Helper()
	switch mode {
	case "batched":
		events := make([]event.Event, len(scopes))
		for i, s := range scopes {
			events[i] = sdk(s)
		}
		return request{http.Header{"Content-Type": {"application/cloudevents-batch+json"}}, expect.ToJSON(t, events)}
	case "structured":
		return request{http.Header{"Content-Type": {"application/cloudevents+json"}}, expect.ToJSON(t, sdk(scopes[0]))}
	}
	s := scopes[0]
	return request{body: s.Data, header: http.Header{
		"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {s.ID}, "Ce-Source": {s.Source},
		"Ce-Type": {s.Type}, "Ce-Subject": {url.PathEscape(s.Subject)}, "Ce-Time": {s.Time.Format(time.RFC3339Nano)},
		"Ce-Causationid": {s.CausationID}, "Ce-Correlationid": {s.CorrelationID}, "Ce-Traceparent": {s.TraceParent},
	}}
}

// reply is an HTTP response.
type reply struct {
	status int
	header http.Header
	body   string
}

func ask(t testing.TB, address string, r request) reply {
	t.Helper()
	return do(t, http.DefaultClient, http.MethodPost, address, r.header, bytes.NewReader(r.body))
}

func do(t testing.TB, c *http.Client, method, address string, header http.Header, body io.Reader) reply {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, address, body)
	expect.Must(t, err)
	q.Header = header.Clone()
	response, err := c.Do(q)
	if err != nil {
		t.Error(err)
		return reply{}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return reply{response.StatusCode, response.Header, string(text)}
}

// events returns the answers in a reply.
func (r reply) events(t testing.TB, mode string) []schemas.Event {
	t.Helper()
	var documents []json.RawMessage
	content := "application/cloudevents+json"
	switch mode {
	case "batched":
		content = "application/cloudevents-batch+json"
		if err := json.Unmarshal([]byte(r.body), &documents); err != nil {
			t.Fatalf("%v: %s", err, r.body)
		}
	case "structured":
		documents = append(documents, []byte(r.body))
	default:
		content = "application/json"
		attributes := map[string]any{"data": json.RawMessage(r.body), "datacontenttype": "application/json"}
		for name, values := range r.header {
			if name, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
				attributes[name], _ = url.PathUnescape(values[0])
			}
		}
		documents = append(documents, expect.ToJSON(t, attributes))
	}
	if got := r.header.Get("Content-Type"); r.status != http.StatusOK || got != content {
		t.Fatalf("got status %d and %s, want 200 and %s; it says %s", r.status, got, content, r.body)
	}
	answers := make([]schemas.Event, len(documents))
	for i, document := range documents {
		var err error
		if answers[i], err = schematest.Parse(document); err != nil {
			t.Fatalf("%v: %s", err, document)
		}
	}
	return answers
}

// validator is shared, because compiling the schemas takes longer than all requests.
var validator = sync.OnceValues(schematest.New)

// checkAnswer compares an answer, except random values and times.
func checkAnswer(t testing.TB, scope, got schemas.Event, asked time.Time) {
	t.Helper()
	v, err := validator()
	expect.Must(t, err)
	if err := v.Validate(got); err != nil {
		t.Error(err)
	}
	answer, err := nodeTaints().Evaluate(scope)
	expect.Must(t, err)
	now := time.Now()
	if got.ID == "" || got.ID == scope.ID {
		t.Errorf("got ID %q, want a new one", got.ID)
	}
	if got.Time.Before(asked) || got.Time.After(now) {
		t.Errorf("got time %v, want it between %v and %v", got.Time, asked, now)
	}
	if d := functions.IntentTTL; got.Expires.Before(asked.Add(d)) || got.Expires.After(now.Add(d)) {
		t.Errorf("got expiry %v, want %v after the request at %v", got.Expires, d, asked)
	}
	if len(got.TraceParent) != 55 || got.TraceParent[:36] != scope.TraceParent[:36] || got.TraceParent == scope.TraceParent {
		t.Errorf("got trace %q, want another span of %q", got.TraceParent, scope.TraceParent)
	}
	got.ID, got.Time, got.Expires, got.TraceParent = "", time.Time{}, time.Time{}, ""
	want := schemas.Event{
		Source: "/clusters/test/functions/RemovePodsViolatingNodeTaints", Type: schemas.IntentsType, Subject: scope.Subject,
		CorrelationID: "first", CausationID: scope.ID, Data: expect.ToJSON(t, answer), Channel: answer.Channel(),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, data %s\nwant %+v, data %s", got, got.Data, want, want.Data)
	}
	if len(answer.Intents) != 1 {
		t.Errorf("the strategy moves %d pods, want 1", len(answer.Intents))
	}
}

func TestAnswerModes(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints()})
	for _, mode := range []string{"binary", "structured", "batched"} {
		t.Run(mode, func(t *testing.T) {
			asked, s := time.Now(), scope(t, 1)
			got := ask(t, address, in(t, mode, s)).events(t, mode)
			if len(got) != 1 {
				t.Fatalf("got %d answers, want 1", len(got))
			}
			checkAnswer(t, s, got[0], asked)
		})
	}
}

func TestBatchKeepsItsOrder(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints()})
	for _, size := range []int{0, 1, 7} {
		asked := time.Now()
		var scopes []schemas.Event
		for i := range size {
			scopes = append(scopes, scope(t, size-i))
		}
		got := ask(t, address, in(t, "batched", scopes...)).events(t, "batched")
		if len(got) != size {
			t.Fatalf("got %d answers, want %d", len(got), size)
		}
		for i, s := range scopes {
			checkAnswer(t, s, got[i], asked)
		}
	}
}

func TestSubjectEncoding(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints()})
	for _, mode := range []string{"binary", "structured"} {
		s := scope(t, 1)
		data := strings.ReplaceAll(string(s.Data), `"key":"worker-1"`, `"key":"wörk \"er\" 100%\r\nx: y"`)
		s.Data, s.Subject = []byte(data), "node/wörk \"er\" 100%\r\nx: y"
		got := ask(t, address, in(t, mode, s)).events(t, mode)
		if got[0].Subject != s.Subject {
			t.Errorf("%s: got %q, want %q", mode, got[0].Subject, s.Subject)
		}
	}
}

func zipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// with sets headers. An empty value removes one.
func (r request) with(pairs ...string) request {
	r.header = r.header.Clone()
	for i := 0; i < len(pairs); i += 2 {
		if r.header.Del(pairs[i]); pairs[i+1] != "" {
			r.header.Set(pairs[i], pairs[i+1])
		}
	}
	return r
}

// saying returns the request with another body.
func (r request) saying(body []byte) request {
	r.body = body
	return r
}

func TestAcceptedVariants(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints()})
	s := scope(t, 1)
	plain := in(t, "structured", s)
	for name, c := range map[string]struct {
		mode string
		request
	}{
		"compressed, structured":                 {"structured", plain.with("Content-Encoding", "gzip").saying(zipped(t, plain.body))},
		"compressed, binary":                     {"binary", in(t, "binary", s).with("Content-Encoding", "GZIP").saying(zipped(t, s.Data))},
		"identity encoding":                      {"structured", plain.with("Content-Encoding", "identity")},
		"character set":                          {"structured", plain.with("Content-Type", "Application/CloudEvents+JSON; charset=UTF-8")},
		"binary without content type":            {"binary", in(t, "binary", s).with("Content-Type", "")},
		"binary with another JSON type":          {"binary", in(t, "binary", s).with("Content-Type", "application/vnd.x+json")},
		"structured, with attributes in headers": {"structured", plain.with("Ce-Specversion", "1.0", "Ce-Id", "other")},
		"unknown attributes":                     {"binary", in(t, "binary", s).with("Ce-Custom", "x", "Ce-Partitionkey", "y")},
		"datacontenttype attribute":              {"binary", in(t, "binary", s).with("Ce-Datacontenttype", "text/plain")},
	} {
		t.Run(name, func(t *testing.T) {
			asked := time.Now()
			for _, got := range ask(t, address, c.request).events(t, c.mode) {
				checkAnswer(t, s, got, asked)
			}
		})
	}
}
