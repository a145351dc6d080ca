package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/cli/run"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestServeAddress(t *testing.T) {
	free := expect.Value(t, program.FreeAddress)
	_, port, _ := strings.Cut(free, ":")
	for _, c := range []struct{ name, address, port, want string }{
		{"the flag alone", free, "", free},
		{"the flag wins, whatever the port", free, "http", free},
		{"the port alone is one at all addresses", "", port, "[::]:" + port},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := run.Listen(defaults(t), c.address, c.port, slog.New(slog.DiscardHandler))
			expect.Must(t, err)
			defer l.Close()
			if got := l.Listener.Addr().String(); got != c.want && strings.Replace(got, "0.0.0.0", "[::]", 1) != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	for _, wrong := range []string{"http", "0", "-1", "65536", "127.0.0.1:80"} {
		_, err := run.Listen(defaults(t), "", wrong, slog.New(slog.DiscardHandler))
		if want := `PORT: want a number from 1 to 65535, got "` + wrong + `"`; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// get returns the status and the body of a GET, or 0 if the connection fails.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(text)
}

// until requests url until the response has the wanted status, and returns the body.
func until(t *testing.T, url string, want int) string {
	t.Helper()
	var body string
	expect.EventuallyWithState(t, fmt.Sprintf("%s has the status %d", url, want), func() (bool, string) {
		var status int
		status, body = get(t, url)
		return status == want, fmt.Sprint(status, body)
	})
	return body
}

// postSlowly posts the document in two halves, the second one when rest is closed. It returns when the function has begun to read
// the first half.
func postSlowly(t *testing.T, url string, document []byte, rest <-chan struct{}) (answer <-chan []byte) {
	t.Helper()
	body, w := io.Pipe()
	reading := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	expect.Must(t, err)
	q.Header.Set("Content-Type", "application/cloudevents+json")
	q.Header.Set("Expect", "100-continue")
	result := make(chan []byte, 1)
	go func() {
		defer close(result)
		client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute, DisableKeepAlives: true}}
		response, err := client.Do(q)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("got status %d, %s, error %v", response.StatusCode, text, err)
		}
		result <- text
	}()
	<-reading
	go func() {
		half := len(document) / 2
		_, _ = w.Write(document[:half]) // the client sees any error
		<-rest
		_, _ = w.Write(document[half:])
		_ = w.Close()
	}()
	return result
}

func TestServeShutdown(t *testing.T) {
	address := expect.Value(t, program.FreeAddress)
	url, scope, f := "http://"+address, schematest.ExampleOf(t, "scope"), functions.All()[0]
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	s := defaults(t)
	go func() { ended <- run.ServeFunction(ctx, s, f, address) }()
	until(t, url+"/readyz", http.StatusOK)
	rest := make(chan struct{})
	answer := postSlowly(t, url+"/", scope.Document, rest)
	end()
	if got := until(t, url+"/readyz", http.StatusServiceUnavailable); got != "shutting down\n" {
		t.Errorf("while it ends: got %q from /readyz", got)
	}
	if status, body := get(t, url+"/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("while it ends: got %d %q from /healthz, want that it is healthy", status, body)
	}
	response, err := http.Post(url+"/", "application/cloudevents+json", bytes.NewReader(scope.Document))
	expect.Must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") != "1" {
		t.Errorf("while it ends: got %d and to retry after %q, want 503 and 1", response.StatusCode, response.Header.Get("Retry-After"))
	}
	close(rest)
	checkExample(t, f, scope.Event, <-answer)
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if status, _ := get(t, url+"/healthz"); status != 0 {
		t.Errorf("it still answers, with %d", status)
	}
}

// checkExample compares the data of an answer with the answer of the function to the scope.
func checkExample(t *testing.T, f functions.Function, scope schemas.Event, document []byte) {
	t.Helper()
	e, err := schematest.Parse(document)
	if err != nil {
		t.Fatalf("%v in %s", err, document)
	}
	schematest.Check(t, e)
	answer, err := f.Evaluate(scope)
	expect.Must(t, err)
	want := schematest.Event(t, "/clusters/default/functions/"+f.Strategy.Name, answer, e.Time, scope)
	if string(e.Data) != string(want.Data) || e.Source != want.Source || e.CausationID != want.CausationID {
		t.Errorf("got  %s from %s about %s\nwant %s from %s about %s",
			e.Data, e.Source, e.CausationID, want.Data, want.Source, want.CausationID)
	}
}

func TestServeKeepsIdleConnections(t *testing.T) {
	t.Parallel()
	s, err := run.Listen(defaults(t), "127.0.0.1:0", "", slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	s.Handler = http.NotFoundHandler()
	go func() { _ = s.Serve(t.Context()) }()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	expect.Must(t, err)
	defer c.Close()
	time.Sleep(6 * time.Second)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	expect.Must(t, err)
	defer r.Body.Close()
	if r.StatusCode != http.StatusNotFound {
		t.Errorf("got %s, want the answer of the function", r.Status)
	}
}
