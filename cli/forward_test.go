package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/run"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// sink is a server that receives events. It counts how often each event arrived.
type sink struct {
	mu     sync.Mutex
	posts  map[string]int // by the ID of the event
	events []schemas.Event
	last   http.Header
	// Answer returns the response to the nth post of an event. It may have side effects. nil means always 200.
	answer func(w http.ResponseWriter, id string, nth int)
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, err := readPosted(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot) // a status that no test expects
		return
	}
	s.mu.Lock()
	s.posts[e.ID]++
	s.events = append(s.events, e)
	s.last = r.Header
	nth := s.posts[e.ID]
	s.mu.Unlock()
	if s.answer != nil {
		s.answer(w, e.ID, nth)
	}
}

// readPosted reads an event in either mode.
func readPosted(r *http.Request) (schemas.Event, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return schemas.Event{}, err
	}
	if r.Header.Get("Content-Type") == cloudevent.StructuredJSON {
		return cloudevent.ReadStructured(body)
	}
	attributes, err := cloudevent.ReadAttributes(r.Header)
	if err != nil {
		return schemas.Event{}, err
	}
	return cloudevent.ReadBinary(attributes, body)
}

// counts returns how often each event arrived.
func (s *sink) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.posts)
}

// take returns the events since the last call, and the headers of the last one.
func (s *sink) take() ([]schemas.Event, http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events, s.last
}

// newSink serves a sink until the end of the test.
func newSink(t *testing.T, answer func(w http.ResponseWriter, id string, nth int)) (s *sink, url string) {
	t.Helper()
	s = &sink{posts: map[string]int{}, answer: answer}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

// forwarding runs rehome forward until stop is called or the test ends, with the name sink and from the start of the history. It
// returns when the forwarder listens.
func forwarding(t *testing.T, b *bus.Bus, arguments ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	root := newRoot()
	root.SetArgs(append([]string{"forward", "--name", "sink", "--since", "1h", "--http-address", ""}, arguments...))
	root.SetOut(&bytes.Buffer{})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("forward ended with %v", err)
		}
	})
	t.Cleanup(stop)
	expect.Eventually(t, "it listens", func() bool {
		_, err := b.Backlog(t.Context(), "sink")
		return err == nil
	})
	return stop
}

// done waits until the forwarder has no work. For a moment, a server counts a message neither as waiting nor as delivered, so the
// numbers must be 0 three times in a row.
func done(t *testing.T, b *bus.Bus) {
	t.Helper()
	idle := 0
	expect.Eventually(t, "everything is forwarded", func() bool {
		idle++
		if backlog, err := b.Backlog(t.Context(), "sink"); err != nil || backlog != (bus.Backlog{}) {
			idle = 0
		}
		return idle == 3
	})
}

// verdictsOf returns events of verdicts with these IDs.
func verdictsOf(t *testing.T, ids ...string) (events []schemas.Event) {
	t.Helper()
	for _, id := range ids {
		events = append(events, verdictEvent(t, id, schemas.Evicted, "shop", "pod-"+id))
	}
	return events
}

// deadIDs returns the sorted IDs of the events that sink has buried.
func deadIDs(t *testing.T, b *bus.Bus) (ids []string) {
	t.Helper()
	numbers, err := b.DeadNumbers(t.Context(), bus.DeadQuery{Stream: bus.StreamEvents, By: "sink"})
	expect.Must(t, err)
	for _, n := range numbers {
		d, err := b.DeadLetter(t.Context(), n)
		expect.Must(t, err)
		e, err := d.Event()
		expect.Must(t, err)
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

func TestForwardStatusCodes(t *testing.T) {
	b := busOf(t)
	rows := []struct {
		statuses []int // one after the other
		dead     bool
	}{
		{[]int{200}, false}, {[]int{400}, true}, {[]int{307}, true},
		{[]int{404, 200}, false}, {[]int{500, 400}, true},
		{[]int{500, 500}, true}, // the last of two tries
		{[]int{503, 503, 200}, false}, {[]int{401, 401, 200}, false}, {[]int{403, 403, 200}, false},
	}
	statuses, want, dead := map[string][]int{}, map[string]int{}, []string(nil)
	for i, row := range rows {
		id := fmt.Sprintf("%02d-%v", i, row.statuses)
		publishAll(t, b, verdictsOf(t, id)...)
		statuses[id], want[id] = row.statuses, len(row.statuses)
		if row.dead {
			dead = append(dead, id)
		}
	}
	s, url := newSink(t, func(w http.ResponseWriter, id string, nth int) {
		if n := len(statuses[id]); nth <= n {
			w.WriteHeader(statuses[id][nth-1])
		}
	})
	forwarding(t, b, "--to", url, "--tries", "2", "--parallel", "30")
	done(t, b)
	if got := s.counts(); !reflect.DeepEqual(got, want) {
		t.Errorf("posts:\ngot  %v\nwant %v", got, want)
	}
	if got := deadIDs(t, b); !reflect.DeepEqual(got, dead) {
		t.Errorf("dead letters:\ngot  %v\nwant %v", got, dead)
	}
}

func TestForwardRetryAfter(t *testing.T) {
	b := busOf(t)
	at := make(chan time.Time, 10)
	_, url := newSink(t, func(w http.ResponseWriter, _ string, nth int) {
		at <- time.Now()
		if nth == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	publishAll(t, b, verdictsOf(t, "a")...)
	stop := forwarding(t, b, "--to", url, "--parallel", "1")
	done(t, b)
	stop()
	if n := len(at); n != 2 {
		t.Fatalf("it was posted %d times, want twice", n)
	}
	if first, second := <-at, <-at; second.Sub(first) < 2*time.Second {
		t.Errorf("it was posted again after %v, want two seconds", second.Sub(first))
	}
}

func TestForwardDuringSinkOutage(t *testing.T) {
	b := busOf(t)
	address := expect.Value(t, program.FreeAddress)
	want := map[string]int{}
	for n := range 300 { // more than may be in progress at once
		want[fmt.Sprint("event-", n)] = 1
	}
	for id := range want {
		publishAll(t, b, verdictsOf(t, id)...)
	}
	forwarding(t, b, "--to", "http://"+address, "--tries", "1")
	expect.Eventually(t, "posts have failed", func() bool {
		backlog, err := b.Backlog(t.Context(), "sink")
		return err == nil && backlog.Open > 100
	})
	l, err := net.Listen("tcp", address)
	expect.Must(t, err)
	s := &sink{posts: map[string]int{}}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	done(t, b)
	if got := s.counts(); !reflect.DeepEqual(got, want) {
		t.Errorf("%d events came, want %d, each once", len(got), len(want))
	}
	if got := deadIDs(t, b); len(got) > 0 {
		t.Errorf("dead letters: %v, want none", got)
	}
}

func TestForwardToSlowSink(t *testing.T) {
	b := busOf(t)
	var now, most atomic.Int32
	want := map[string]int{"hangs": 2}
	events := verdictsOf(t, "hangs")
	for n := range 40 {
		id := fmt.Sprint("event-", n)
		want[id] = 1
		events = append(events, verdictsOf(t, id)...)
	}
	publishAll(t, b, events...)
	over := make(chan struct{})
	s, url := newSink(t, func(_ http.ResponseWriter, id string, nth int) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if id == "hangs" && nth == 1 {
			<-over
			return
		}
		<-time.After(10 * time.Millisecond)
	})
	forwarding(t, b, "--to", url, "--parallel", "4", "--timeout", "5s")
	done(t, b)
	close(over)
	if got := s.counts(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if n := most.Load(); n < 2 || n > 5 { // the hanging one also hangs after its post was given up
		t.Errorf("%d posts at once, want several and at most 4, and the one that was given up", n)
	}
}

func TestForwarderContinues(t *testing.T) {
	b := busOf(t)
	s, url := newSink(t, nil)
	publishAll(t, b, verdictsOf(t, "a", "b")...)
	stop := forwarding(t, b, "--to", url)
	done(t, b)
	stop()
	publishAll(t, b, verdictsOf(t, "c", "d")...)
	stop = forwarding(t, b, "--to", url)
	publishAll(t, b, verdictsOf(t, "e")...)
	done(t, b)
	stop()
	if got, want := s.counts(), map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	out, err := execute(t, "forward", "--remove", "--name", "sink")
	if err != nil || out != "sink: removed\n" {
		t.Errorf("remove: got %q, %v", out, err)
	}
	if _, err := execute(t, "forward", "--remove", "--name", "sink"); !errors.Is(err, bus.ErrNoListener) {
		t.Errorf("remove again: got %v, want ErrNoListener", err)
	}
}

func TestKnativeExtensionsArrive(t *testing.T) {
	b := busOf(t)
	s, url := newSink(t, nil)
	want := verdictEvent(t, "a", schemas.Evicted, "shop", "naïve \"pod\" 100%")
	publishAll(t, b, want, verdictEvent(t, "unwanted", schemas.Evicted, "web", "b"))
	want.Channel, want.CorrelationID = "", "mine"
	t.Setenv("K_SINK", url)
	t.Setenv("K_CE_OVERRIDES", `{"extensions": {"correlationid": "mine", "Team": "shop & co"}, "more": 1}`)
	token := filetest.New(t, "token", "secret\n")
	for _, mode := range []string{"binary", "structured"} {
		stop := forwarding(t, b, "--mode", mode, "-n", "shop", "--token-file", token)
		done(t, b)
		stop()
		if err := b.RemoveListener(t.Context(), "sink"); err != nil {
			t.Fatal(err)
		}
		got, headers := s.take()
		if len(got) != 1 || !reflect.DeepEqual(got[0], want) || headers.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s: got  %+v, headers %v\nwant %+v", mode, got, headers, want)
		}
		if team := headers.Get("ce-team"); mode == "binary" && team != "shop%20&%20co" {
			t.Errorf("the extension is %q", team)
		}
	}
}

func TestForwarderMetrics(t *testing.T) {
	b := busOf(t)
	var away atomic.Bool
	away.Store(true)
	_, url := newSink(t, func(w http.ResponseWriter, id string, _ int) {
		switch {
		case id == "wrong":
			w.WriteHeader(http.StatusBadRequest)
		case away.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	address := expect.Value(t, program.FreeAddress)
	publishAll(t, b, verdictsOf(t, "a")...)
	stop := forwarding(t, b, "--to", url, "--http-address", address)
	const away503 = "post to http://SINK: try again: unreachable: status 503 Service Unavailable\n"
	got := regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(until(t, "http://"+address+"/readyz", http.StatusServiceUnavailable), "SINK")
	if got != away503 {
		t.Errorf("while the sink is away: got %q, want %q", got, away503)
	}
	away.Store(false)
	publishAll(t, b, verdictsOf(t, "wrong", "b")...)
	done(t, b)
	if got := until(t, "http://"+address+"/readyz", http.StatusOK); got != "ok\n" {
		t.Errorf("when it is back: got %q", got)
	}
	var figures []string
	for line := range strings.Lines(until(t, "http://"+address+"/metrics", http.StatusOK)) {
		if strings.HasPrefix(line, "rehome_forward_events_total") && !strings.Contains(line, "again") {
			figures = append(figures, strings.TrimSpace(line))
		}
	}
	want := []string{`rehome_forward_events_total{result="delivered"} 2`, `rehome_forward_events_total{result="refused"} 1`}
	if !reflect.DeepEqual(figures, want) {
		t.Errorf("got %q, want %q", figures, want)
	}
	stop()
	if err := b.RemoveListener(t.Context(), "sink"); err != nil {
		t.Error(err)
	}
}

func TestRemovedForwarderEnds(t *testing.T) {
	b := busOf(t)
	s, url := newSink(t, nil)
	publishAll(t, b, verdictsOf(t, "a")...)
	root := newRoot()
	root.SetArgs([]string{"forward", "--to", url, "--since", "1h", "--http-address", ""})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(t.Context()) }()
	expect.Eventually(t, "it forwards", func() bool { return len(s.counts()) == 1 })
	name := run.NameOf(url)
	if out, err := execute(t, "forward", "--remove", "--to", url); err != nil || out != name+": removed\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if err := <-ended; !errors.Is(err, bus.ErrNoListener) {
		t.Errorf("it ended with %v, want ErrNoListener", err)
	}
}

func TestForwarderName(t *testing.T) {
	for url, want := range map[string]string{
		"http://sink.shop.svc/":                      "forward-sink-shop-svc-bd5cecc4",
		"https://audit.example:8443/v1/events?key=s": "forward-audit-example-8443-v1-events-",
		"https://me:secret@audit.example/":           "forward-audit-example-",
		"://":                                        "forward-",
	} {
		got := run.NameOf(url)
		if !regexp.MustCompile(`^` + regexp.QuoteMeta(want) + `([0-9a-f]{8})?$`).MatchString(got) {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
	if run.NameOf("http://a/b-c") == run.NameOf("http://a/b/c") {
		t.Error("two URLs have one name")
	}
}

// TestListenerExampleOnOneMachine runs the commands in the comment of the example: a rehome with an API and a forwarder, both
// with default addresses for metrics.
func TestListenerExampleOnOneMachine(t *testing.T) {
	text := filetest.Read(t, "../docs/examples/listener/listener.py")
	found := regexp.MustCompile(`REHOME_API_ADDRESS=(\S+)`).FindStringSubmatch(text)
	if found == nil || !strings.Contains(text, `"--ask", default="http://`+found[1]+`/v1/requests"`) {
		t.Fatalf("the listener does not ask where it has rehome take requests, %q", found)
	}
	var s settings.Settings
	if err := envconfig.Process("", &s); err != nil {
		t.Fatal(err)
	}
	addresses := []string{s.HTTPAddress, s.APILocal, found[1], run.ForwardServedAt}
	slices.Sort(addresses)
	if n := len(slices.Compact(slices.Clone(addresses))); n != 4 {
		t.Errorf("two listen at one address: %q", addresses)
	}
}
