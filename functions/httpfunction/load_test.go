package httpfunction_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/httpfunction"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/metricstest"
)

func TestParallelRequests(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints(), Parallel: 400})
	modes := []string{"binary", "structured", "batched"}
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() {
			asked, s, mode := time.Now(), scope(t, i), modes[i%3]
			r := ask(t, address, in(t, mode, s))
			if r.status != http.StatusOK {
				t.Errorf("request %d: got %d %s", i, r.status, r.body)
				return
			}
			checkAnswer(t, s, r.events(t, mode)[0], asked)
		})
	}
	all.Wait()
}

// held is a request whose body the server is still reading.
type held struct {
	rest   *io.PipeWriter
	body   []byte
	answer chan reply
}

// hold starts a request, and returns when the server sends 100 Continue because it reads the body.
func hold(t *testing.T, address string, r request) held {
	t.Helper()
	body, rest := io.Pipe()
	h := held{rest: rest, body: r.body, answer: make(chan reply, 1)}
	reading := make(chan struct{})
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	t.Cleanup(client.CloseIdleConnections)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
	expect.Must(t, err)
	q.Header = r.with("Expect", "100-continue").header
	go func() {
		defer close(h.answer)
		response, err := client.Do(q)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		h.answer <- reply{response.StatusCode, response.Header, string(text)}
	}()
	select {
	case <-reading:
	case got := <-h.answer:
		t.Fatalf("got a response before the end of the request: %+v", got)
	}
	return h
}

// finish sends the rest, and returns the response.
func (h held) finish(t *testing.T) reply {
	t.Helper()
	if _, err := h.rest.Write(h.body); err != nil {
		t.Error(err)
	}
	if err := h.rest.Close(); err != nil {
		t.Error(err)
	}
	return <-h.answer
}

func TestParallelLimit(t *testing.T) {
	_, address := served(t, httpfunction.Config{Function: nodeTaints(), Parallel: 2})
	asked, s := time.Now(), scope(t, 1)
	r := in(t, "structured", s)
	first, second := hold(t, address, r), hold(t, address, r)
	want := refusal{429, "2 requests are in progress, which is the limit", "Retry-After: 1"}
	for range 3 {
		if got := ask(t, address, r).refusal(); got != want {
			t.Errorf("while both are read: got %+v, want %+v", got, want)
		}
	}
	checkAnswer(t, s, first.finish(t).events(t, "structured")[0], asked)
	checkAnswer(t, s, ask(t, address, r).events(t, "structured")[0], asked)
	checkAnswer(t, s, second.finish(t).events(t, "structured")[0], asked)
}

func TestDrain(t *testing.T) {
	h, address := served(t, httpfunction.Config{Function: nodeTaints()})
	if err := h.Ready(); err != nil {
		t.Errorf("before: got %v, want it to be ready", err)
	}
	asked, s := time.Now(), scope(t, 1)
	r := in(t, "binary", s)
	begun := hold(t, address, r)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Drain(ended); !errors.Is(err, context.Canceled) || err.Error() != "1 requests are still in progress: context canceled" {
		t.Errorf("while one is read: got %v", err)
	}
	if err := h.Ready(); err == nil || err.Error() != "shutting down" {
		t.Errorf("while it drains: got %v, want a shutdown error", err)
	}
	want := refusal{503, "shutting down", "Retry-After: 1"}
	if got := ask(t, address, r).refusal(); got != want {
		t.Errorf("while it drains: got %+v, want %+v", got, want)
	}
	drained := make(chan error, 1)
	go func() { drained <- h.Drain(t.Context()) }()
	checkAnswer(t, s, begun.finish(t).events(t, "binary")[0], asked)
	if err := <-drained; err != nil {
		t.Errorf("got %v, want it to be drained", err)
	}
	if err := h.Drain(t.Context()); err != nil {
		t.Errorf("a second time: got %v", err)
	}
	if got := ask(t, address, r).refusal(); got != want {
		t.Errorf("when it is drained: got %+v, want %+v", got, want)
	}
}

func TestIncompleteRequestTimesOut(t *testing.T) {
	h := httpfunction.New(httpfunction.Config{Function: nodeTaints()})
	s := httptest.NewUnstartedServer(h)
	s.Config.ReadTimeout = 100 * time.Millisecond
	s.Start()
	t.Cleanup(s.Close)
	begun := hold(t, s.URL, in(t, "structured", scope(t, 1)))
	want := refusal{408, "the request did not arrive in time", ""}
	if got := (<-begun.answer).refusal(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	_ = begun.rest.Close()
}

func TestPanicLog(t *testing.T) {
	var log bytes.Buffer
	broken := functions.Function{Strategy: policy.Strategy{Name: "Broken"}} // without Decide
	_, address := served(t, httpfunction.Config{Function: broken, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))})
	s := scope(t, 1)
	s.ID = "e1"
	says := "strategy Broken panicked at scope e1: invalid event: runtime error: invalid memory address or nil pointer dereference"
	for range 2 {
		if got, want := ask(t, address, in(t, "structured", s)).refusal(), (refusal{500, says, ""}); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	line := fmt.Sprintf("level=ERROR msg=\"strategy panicked\" strategy=Broken error=%q\n", says)
	if got := log.String(); got != line+line {
		t.Errorf("logged\n%swant twice\n%s", got, line)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, address := served(t, httpfunction.Config{Function: nodeTaints(), Parallel: 1, Metrics: registry})
	// A histogram that appears with its first request hides that request from rate().
	for _, name := range []string{"rehome_function_request_seconds", "rehome_evaluation_seconds"} {
		if n, err := testutil.GatherAndCount(registry, name); n != 1 || err != nil {
			t.Errorf("%s before the first request: got %d of them and %v, want 1", name, n, err)
		}
	}
	r := in(t, "structured", scope(t, 1))
	begun := hold(t, address, r)
	ask(t, address, r)
	want := func(inside int, lines ...string) {
		t.Helper()
		text := "# TYPE rehome_function_requests_in_progress gauge\n" +
			fmt.Sprintf("rehome_function_requests_in_progress{strategy=%q} %d\n", "RemovePodsViolatingNodeTaints", inside) +
			"# TYPE rehome_function_requests_total counter\n" + strings.Join(lines, "")
		metricstest.Compare(t, registry, text, "rehome_function_requests_total", "rehome_function_requests_in_progress")
	}
	line := func(code, count int) string {
		return fmt.Sprintf("rehome_function_requests_total{code=\"%d\",strategy=\"RemovePodsViolatingNodeTaints\"} %d\n", code, count)
	}
	want(1, line(429, 1))
	begun.finish(t)
	ask(t, address, r.saying(nil))
	ask(t, address, r)
	want(0, line(200, 2), line(400, 1), line(429, 1))
	for _, name := range []string{"rehome_function_request_seconds", "rehome_evaluation_seconds"} {
		if n, err := testutil.GatherAndCount(registry, name); n != 1 || err != nil {
			t.Errorf("%s: got %d of them and %v, want 1", name, n, err)
		}
	}
}
