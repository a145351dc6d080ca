package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

const query = `1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[1m]))`

// prometheus is a server that answers like Prometheus.
type prometheus struct {
	*httptest.Server
	mu     sync.Mutex
	token  string // the accepted token; empty accepts any
	answer func(http.ResponseWriter, *http.Request)
	asked  []string
}

func newServer(t testing.TB) *prometheus {
	t.Helper()
	p := &prometheus{answer: vectorOf("n1", 0.25)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		token, answer := p.token, p.answer
		p.asked = append(p.asked, r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("query")+" "+r.Header.Get("Authorization"))
		p.mu.Unlock()
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// set changes the answer and the accepted token.
func (p *prometheus) set(token string, answer func(http.ResponseWriter, *http.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token = token
	if answer != nil {
		p.answer = answer
	}
}

func (p *prometheus) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func vectorOf(instance string, value float64) func(http.ResponseWriter, *http.Request) {
	return says(http.StatusOK, fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[
		{"metric":{"instance":%q},"value":[1767355200.1,"%g"]}]}}`, instance, value))
}

func says(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// clock is a clock that a test sets.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

// source returns a source with the tokens of read.
func source(t *testing.T, p *prometheus, c *clock, read Token, log io.Writer) *Prometheus {
	t.Helper()
	text := slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	s, err := NewPrometheus(p.URL+"/behind/", query, read, c.now, slog.New(text))
	expect.Must(t, err)
	t.Cleanup(s.Close)
	return s
}

func noToken(context.Context) (string, error) { return "", nil }

func TestPrometheusNodes(t *testing.T) {
	p, c := newServer(t), &clock{noon}
	s := source(t, p, c, noToken, io.Discard)
	got, err := s.Nodes(t.Context())
	expect.Must(t, err)
	same(t, "samples", got, map[string]Sample{"n1": {Used: percents(25), Good: noon.Add(time.Minute)}})
	same(t, "requests", p.requests(), []string{"GET /behind/api/v1/query " + query + " "})
	pods, err := s.Pods(t.Context())
	if pods != nil || err != nil {
		t.Errorf("pods: got %v, %v, want none", pods, err)
	}
}

func TestPrometheusErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		{"a scalar", says(200, `{"status":"success","data":{"resultType":"scalar","result":[1,"0.5"]}}`), "the result is a scalar; want a vector"},
		{"a matrix", says(200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`), "the result is a matrix; want a vector"},
		{"invalid query", says(400, `{"status":"error","errorType":"bad_data","error":"1:3: parse error"}`), "answered 400 Bad Request: 1:3: parse error"},
		{"an error with success", says(200, `{"status":"error","errorType":"execution","error":"query failed"}`), "query failed"},
		{"overloaded server", says(503, `Service Unavailable`), "answered 503 Service Unavailable"},
		{"another kind of server", says(200, `<html>`), "not an answer of a Prometheus server"},
		{"another kind of JSON", says(200, `{"ok":true}`), `not an answer of a Prometheus server: its status is ""`},
		{"malformed vector", says(200, `{"status":"success","data":{"resultType":"vector","result":7}}`), "not an answer of a Prometheus server"},
		{"login page", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, "answered 302 Found"},
		{"broken connection", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newServer(t)
			p.set("", c.answer)
			got, err := source(t, p, &clock{noon}, noToken, io.Discard).Nodes(t.Context())
			if got != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, error %v, want the words %q", got, err, c.want)
			}
		})
	}
}

func TestPrometheusTimeout(t *testing.T) {
	p := newServer(t)
	p.set("", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := source(t, p, &clock{noon}, noToken, io.Discard).Nodes(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("got %v, want an error after the timeout", err)
	}
}

func TestTokenCache(t *testing.T) {
	p, c := newServer(t), &clock{noon}
	current, reads := "one", 0
	s := source(t, p, c, func(context.Context) (string, error) {
		reads++
		return current, nil
	}, io.Discard)
	ask := func(what string, ok bool, requests, total int) {
		t.Helper()
		_, err := s.Nodes(t.Context())
		if got := len(p.requests()); (err == nil) != ok || got != requests || reads != total {
			t.Errorf("%s: error %v, %d requests, %d reads in all; want success %v, %d, %d", what, err, got, reads, ok, requests, total)
		}
	}
	p.set("one", nil)
	ask("the first time", true, 1, 1)
	ask("the second time", true, 1, 1)
	c.Time = c.Add(time.Minute)
	ask("a minute later", true, 1, 2)
	current = "two"
	ask("while the server accepts the old one", true, 1, 2)
	p.set("two", nil)
	ask("when the server rejects it", true, 2, 3)
	p.set("three", nil)
	ask("when the server rejects every token", false, 2, 4)
	p.set("", says(http.StatusForbidden, "{}"))
	ask("when the query is forbidden", false, 2, 5)
}

func TestConcurrentValues(t *testing.T) {
	p := newServer(t)
	p.set("rejects every token", nil)
	var reads atomic.Int32
	s := source(t, p, &clock{noon}, func(context.Context) (string, error) { return fmt.Sprint("token", reads.Add(1)), nil }, io.Discard)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				_, err := s.Values(t.Context(), "up")
				if want := "answered 401 Unauthorized"; err == nil || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
			}
		})
	}
	all.Wait()
}

func TestMissingToken(t *testing.T) {
	p := newServer(t)
	s := source(t, p, &clock{noon}, func(context.Context) (string, error) { return "", fmt.Errorf("no secret") }, io.Discard)
	if _, err := s.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "no secret") {
		t.Errorf("got %v, want the words %q", err, "no secret")
	}
	if got := p.requests(); got != nil {
		t.Errorf("requests: got %q, want none", got)
	}
}

func TestInvalidNodeValueLog(t *testing.T) {
	p := newServer(t)
	var log bytes.Buffer
	s := source(t, p, &clock{noon}, noToken, &log)
	for _, value := range []float64{7, 8, 0.5, 9} {
		p.set("", vectorOf("n1", value))
		if _, err := s.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	line := func(value string) string {
		return fmt.Sprintf("level=WARN msg=\"the query gives no valid load of a node\" node=n1 gives=\"the value %s; want one from 0 to 1\" query=%q\n", value, query)
	}
	if got, want := log.String(), line("7")+line("9"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSamplerRetention(t *testing.T) {
	p, c := newServer(t), &clock{noon}
	var log bytes.Buffer
	from := policy.Load{Source: policy.LoadPrometheus, Query: query}
	var rounds []policy.Load
	s := New(Config{
		Sources: map[policy.Load]Source{from: source(t, p, c, noToken, io.Discard)}, Now: c.now,
		Sampled:   func(of policy.Load) { rounds = append(rounds, of) },
		NeedsPods: func(policy.Load) bool { return false },
		Log:       slog.New(slog.NewTextHandler(&log, nil)),
	})
	round := func(what string, want corev1.ResourceList) {
		t.Helper()
		s.round(t.Context(), from, s.known[from])
		same(t, what, s.Node(from, "n1"), want)
	}
	if s.FirstRoundDone(from) || s.Node(from, "n1") != nil {
		t.Errorf("got a usage before the first round")
	}
	p.set("", says(503, ""))
	round("the server is not ready", nil)
	if !s.FirstRoundDone(from) {
		t.Errorf("FirstRoundDone is false after the first round")
	}
	p.set("", vectorOf("n1", 0.5))
	round("it is ready", percents(50))
	p.set("", says(503, ""))
	c.Time = c.Add(59 * time.Second)
	round("it is away for less than a minute", percents(50))
	c.Time = c.Add(time.Second)
	round("it is away for a minute", nil)
	p.set("", vectorOf("n2", 0.5))
	round("it knows another node", nil)
	same(t, "n2", s.Node(from, "n2"), percents(50))
	same(t, "rounds", rounds, []policy.Load{from, from, from, from, from})
	if warned, told := strings.Count(log.String(), "cannot measure load"), strings.Count(log.String(), "measured again"); warned != 2 || told != 2 {
		t.Errorf("log: %d warnings and %d ends, want 2 and 2:\n%s", warned, told, &log)
	}
	other := policy.Load{Source: policy.LoadPrometheus, Query: "other"}
	if !s.FirstRoundDone(other) || s.Node(other, "n2") != nil || s.Pod(other, "a", "b") != nil || s.Pod(from, "a", "b") != nil {
		t.Errorf("got a usage from an unknown source")
	}
	if got := s.Node(from, "n2")[schemas.LoadMetric]; got.Value() != 50 {
		t.Errorf("the metric is %v, want 50", got.Value())
	}
}

func TestValues(t *testing.T) {
	p, c := newServer(t), &clock{noon}
	s := source(t, p, c, noToken, io.Discard)
	for _, test := range []struct {
		name, result string
		want         []float64
		wrong        string
	}{
		{"several", `"vector","result":[{"metric":{"a":"1"},"value":[1,"2.5"]},{"metric":{},"value":[1,"-Inf"]}]`, []float64{2.5, math.Inf(-1)}, ""},
		{"none", `"vector","result":[]`, []float64{}, ""},
		{"a histogram", `"vector","result":[{"metric":{},"histogram":[]}]`, nil, "the answer has a histogram instead of a value"},
		{"not a number", `"vector","result":[{"metric":{},"value":[1,"much"]}]`, nil, `the answer has the value "much", which is not a number`},
		{"a range", `"matrix","result":[]`, nil, "the result is a matrix"},
	} {
		p.set("", says(http.StatusOK, `{"status":"success","data":{"resultType":`+test.result+`}}`))
		got, err := s.Values(t.Context(), `up{node="n1"} == 1`)
		if !reflect.DeepEqual(got, test.want) || (err == nil) != (test.wrong == "") ||
			err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: got %v, %v, want %v, %q", test.name, got, err, test.want, test.wrong)
		}
	}
	if got, want := p.requests()[0], `GET /behind/api/v1/query up{node="n1"} == 1 `; got != want {
		t.Errorf("asked %q, want %q", got, want)
	}
	p.set("", says(http.StatusBadRequest, `{"status":"error","error":"parse error"}`))
	var away *url.Error
	if _, err := s.Values(t.Context(), "("); err == nil || errors.As(err, &away) || !strings.Contains(err.Error(), "400 Bad Request: parse error") {
		t.Errorf("a query that is wrong: got %v", err)
	}
	p.Close()
	if _, err := s.Values(t.Context(), "up"); !errors.As(err, &away) {
		t.Errorf("without an answer: got %v, want a *url.Error", err)
	}
}
