package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/status"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Pipes listens for connections without a buffer, so that a server notices a slow client at once.
type Pipes chan net.Conn

func (p Pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p Pipes) Close() error {
	close(p)
	return nil
}

func (Pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Get sends a request on a new connection, which ends with hangUp. The response has a body that is read as the caller reads it.
func (p Pipes) Get(t *testing.T, path string, header http.Header) (response *http.Response, hangUp func()) {
	t.Helper()
	own, theirs := net.Pipe()
	p <- theirs
	request, err := http.NewRequest(http.MethodGet, "http://localhost"+path, nil)
	if err == nil {
		request.Header = header
		err = request.Write(own)
	}
	if err == nil {
		response, err = http.ReadResponse(bufio.NewReader(own), request)
	}
	expect.Must(t, err)
	return response, func() { _ = own.Close() }
}

// offline returns a server with an empty cache, whose API server is away.
func offline(t *testing.T, b *bus.Bus, inForce func() policy.Policy) *Server {
	t.Helper()
	cache, err := cluster.NewOffline(Kinds()...)
	expect.Must(t, err)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	expect.Must(t, err)
	s, err := New(Config{Client: client, Cluster: cache, Bus: b, Policy: inForce, Log: slog.New(slog.DiscardHandler)})
	expect.Must(t, err)
	return s
}

// TestSlowWatch has a client that reads one message a second while ten are sent, for a minute.
func TestSlowWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, nil, func() policy.Policy { return policy.Policy{} })
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 2)
		listener := make(Pipes)
		server := &http.Server{Handler: s.Operator()}
		go func() { ended <- s.feed.Run(ctx) }()
		go func() { ended <- server.Serve(listener) }()
		response, hangUp := listener.Get(t, "/v1/watch", nil) //nolint:bodyclose // to close it would read the rest of the stream
		defer func() {
			hangUp()
			_ = server.Close()
			stop()
			<-ended
			<-ended
		}()
		messages := bufio.NewReader(response.Body)
		// read returns the next message. It skips comments.
		read := func() (event, data string) {
			for event == "" || data == "" {
				line, err := messages.ReadString('\n')
				expect.Must(t, err)
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				switch name {
				case "event":
					event = value
				case "data":
					data = value
				}
			}
			return event, data
		}
		for event := ""; event != "ready"; {
			event, _ = read()
		}
		const pods = 600
		go func() {
			for i := range pods {
				name := fmt.Sprint("pod-", i)
				if err := s.Cluster.Set(&corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "n1"},
				}); err != nil {
					t.Error(err)
				}
				time.Sleep(coalesced)
			}
		}()
		var order []string // of the messages but pods
		known := map[string]bool{}
		for fresh := false; !fresh || len(known) < pods; {
			event, data := read()
			switch event {
			case "pods":
				var changes struct{ Rows []feed.PodRow }
				if err := json.Unmarshal([]byte(data), &changes); err != nil {
					t.Fatal(err)
				}
				for _, row := range changes.Rows {
					known[row.Name] = true
				}
			case "missed":
				order = append(order, event+" "+data)
			default:
				order = append(order, event)
			}
			switch event {
			case "reset":
				clear(known)
			case "ready":
				fresh = true
			}
			time.Sleep(time.Second)
		}
		want := `[missed {"reason":"the client was too slow"} reset ready]`
		if got := fmt.Sprint(order); got != want || len(known) != pods {
			t.Errorf("got %s and %d pods, want %s and %d pods", got, len(known), want, pods)
		}
	})
}

// coalesced is the time between two messages of a feed.
const coalesced = 110 * time.Millisecond

// TestSlowEvents has a client that takes no events until its queue is full.
func TestSlowEvents(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int
		queue int // the events in the queue
	}{
		"many":           {slices.Repeat([]int{1}, 1100), 1000},
		"large":          {slices.Repeat([]int{6 << 20}, 5), 2},
		"exactly":        {[]int{8 << 20, 8 << 20, 1}, 2},
		"larger":         {[]int{64 << 20, 1}, 1},
		"larger, second": {[]int{1, 64 << 20}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{clients: map[*listener]bool{}}
			l := h.join(func(*event) bool { return true })
			for i, size := range c.sizes {
				h.take(schemas.Event{Sequence: uint64(i + 1), Data: make(json.RawMessage, size)})
			}
			queued := len(l.queue)
			for len(l.queue) > 0 {
				l.took(<-l.queue)
			}
			missed := l.takeMissed()
			h.take(schemas.Event{Sequence: uint64(len(c.sizes) + 1), Data: make(json.RawMessage, 16<<20)})
			if got := len(l.queue); queued != c.queue || missed != len(c.sizes)-c.queue || got != 1 {
				t.Errorf("got %d events, %d missed, then %d; want %d, %d, then 1", queued, missed, got, c.queue, len(c.sizes)-c.queue)
			}
		})
	}
}

// TestSharedState has five clients of a bus that is silent for ten seconds and then lost. One of them waits for a second only.
func TestSharedState(t *testing.T) {
	server := bustest.Server(t, embed.Options{})
	lost := bustest.Connect(t, bus.Options{Server: server})
	server.Stop()
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, lost, func() policy.Policy {
			time.Sleep(stateTimeout) // as long as the bus
			return policy.Policy{}
		})
		began := time.Now()
		patience := []time.Duration{time.Second, time.Hour, time.Hour, time.Hour, time.Hour}
		got := make([]string, len(patience))
		var all sync.WaitGroup
		for i := range patience {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience[i])
				defer cancel()
				_, err := s.snapshot(ctx)
				got[i] = fmt.Sprintf("%v after %v", publicError(err), time.Since(began))
			})
		}
		all.Wait()
		refused := "the bus is unavailable after 10s"
		if want := []string{"see the log of the process after 1s", refused, refused, refused, refused}; !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// browse serves the loopback address until the end of the test. get returns the parts of the response to a GET. The text of a stream
// is empty.
func browse(t *testing.T, s *Server) (get func(path string) (code int, header http.Header, text string)) {
	t.Helper()
	listener, ended := make(Pipes), make(chan error, 1)
	server := &http.Server{Handler: s.Operator()}
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return func(path string) (int, http.Header, string) {
		t.Helper()
		response, hangUp := listener.Get(t, path, nil)
		defer response.Body.Close()
		defer hangUp()
		if response.Header.Get("Content-Type") == "text/event-stream" {
			return response.StatusCode, response.Header, ""
		}
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return response.StatusCode, response.Header, string(text)
	}
}

// TestSharedRequests lists the open requests of a state, after the loss of the bus.
func TestSharedRequests(t *testing.T) {
	server := bustest.Server(t, embed.Options{})
	lost := bustest.Connect(t, bus.Options{Server: server})
	server.Stop()
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, lost, func() policy.Policy { return policy.Policy{} })
		get := browse(t, s)
		open := status.OpenRequest{Request: schemas.Request{Sender: "batch", Name: "a", Action: schemas.ActionEvaluate}}
		s.state = snapshot{status: status.Status{Requests: []status.OpenRequest{open}}, at: time.Now()}
		var got []string
		for range 2 {
			code, _, text := get("/v1/requests")
			var body struct{ Requests []schemas.Request }
			if err := json.Unmarshal([]byte(text), &body); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(code, " with ", len(body.Requests)))
			time.Sleep(stateTTL)
		}
		if want := []string{"200 with 1", "503 with 0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestParallelReads has as many reads of a user as are allowed, and then more. A state takes ten seconds, and calls at once share it.
// A read whose turn does not come in time is refused.
func TestParallelReads(t *testing.T) {
	server := bustest.Server(t, embed.Options{})
	lost := bustest.Connect(t, bus.Options{Server: server})
	server.Stop()
	synctest.Test(t, func(t *testing.T) {
		get := browse(t, offline(t, lost, func() policy.Policy {
			time.Sleep(stateTimeout)
			return policy.Policy{}
		}))
		began := time.Now()
		got := make([]string, mostUserReads+mostWaitingReads)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				code, _, _ := get([]string{"/v1/state", "/v1/requests"}[i%2])
				got[i] = fmt.Sprintf("%d after %v", code, time.Since(began))
			})
		}
		synctest.Wait()
		for _, path := range []string{"/v1/state", "/v1/requests", "/v1/requests/http/a", "/v1/watch", "/v1/events"} {
			code, header, text := get(path)
			var problem struct{ Detail string }
			_ = json.Unmarshal([]byte(text), &problem)
			got := fmt.Sprint(code, " ", problem.Detail, ", ", header.Get("Retry-After"))
			if want := "429 other reads of user operator are in progress, and 4 at a time are the limit; try again later, 1"; got != want {
				t.Errorf("%s: got %s\nwant %s", path, got, want)
			}
		}
		all.Wait()
		slices.Sort(got)
		var want []string
		for turn := 1; turn <= 3; turn++ {
			want = append(want, slices.Repeat([]string{fmt.Sprintf("503 after %v", time.Duration(turn)*stateTimeout)}, mostUserReads)...)
		}
		want = append(slices.Repeat([]string{fmt.Sprintf("429 after %v", turnTimeout)}, len(got)-len(want)), want...)
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// TestManyRequests reads a request by its name after so many that a list of them leaves it out.
func TestManyRequests(t *testing.T) {
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{})})
	bustest.SetUp(t, b, bus.Setup{})
	r := schemas.Request{Sender: "batch", Action: schemas.ActionEvaluate, Reason: "test", Strategy: strings.Repeat("x", 1000<<10)}
	for i := range 34 {
		r.Name = fmt.Sprint("large-", i)
		bustest.Publish(t, b, bustest.Event(t, r))
	}
	web := httptest.NewServer(offline(t, b, func() policy.Policy { return policy.Policy{} }).Operator())
	t.Cleanup(web.Close)
	response, err := http.Get(web.URL + "/v1/requests/batch/" + r.Name)
	expect.Must(t, err)
	defer response.Body.Close()
	var got struct{ Request schemas.Request }
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || !reflect.DeepEqual(got.Request, r) {
		t.Errorf("got %d, the request %q, error %v, want %q", response.StatusCode, got.Request.Name, err, r.Name)
	}
}

// TestWork has calls while another one of the same user, or of another user, is in progress. The first of the same user gives up.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, nil, func() policy.Policy { return policy.Policy{} })
		as := func(name string) context.Context {
			return withCall(t.Context(), call{user: user{UserInfo: authenticationv1.UserInfo{Username: name}}})
		}
		began := time.Now()
		nothing := func(context.Context) error { return nil }
		var refused, other, waited error
		var waiting sync.WaitGroup
		first := s.work(as("a"), func(context.Context) error {
			refused, other = s.work(as("a"), nothing), s.work(as("b"), nothing)
			waiting.Go(func() { waited = s.work(as("a"), nothing) })
			time.Sleep(time.Second)
			return nil
		})
		waiting.Wait()
		got := fmt.Sprint(first, "; ", refused, "; ", other, "; ", waited, "; ", time.Since(began))
		want := "<nil>; other explanations or simulations of user a are in progress, and one at a time is the limit; try again later; <nil>; <nil>; 31s"
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// TestParallelWork has six calls of a user at once. Each takes a second.
func TestParallelWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, nil, func() policy.Policy { return policy.Policy{} })
		ctx := withCall(t.Context(), call{user: user{UserInfo: authenticationv1.UserInfo{Username: "a"}}})
		began := time.Now()
		got := make([]string, 6)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				err := s.work(ctx, func(context.Context) error {
					time.Sleep(time.Second)
					return nil
				})
				got[i] = fmt.Sprintf("%v after %v", err, time.Since(began))
			})
		}
		all.Wait()
		slices.Sort(got)
		want := []string{
			"<nil> after 1s", "<nil> after 2s", "<nil> after 3s", "<nil> after 4s", "<nil> after 5s",
			"other explanations or simulations of user a are in progress, and one at a time is the limit; try again later after 0s",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}
