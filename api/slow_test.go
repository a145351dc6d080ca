package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	"github.com/rehome-dev/rehome/test/bustest"
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
	if err != nil {
		t.Fatal(err)
	}
	return response, func() { _ = own.Close() }
}

// offline returns a server with an empty cache, whose API server is away.
func offline(t *testing.T, b *bus.Bus, inForce func() policy.Policy) *Server {
	t.Helper()
	cache, err := cluster.NewOffline(Kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Client: client, Cluster: cache, Bus: b, Policy: inForce, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
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
				if err != nil {
					t.Fatal(err)
				}
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

// TestWork has calls while another one of the same user, or of another user, is in progress. The first of the same user gives up.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, nil, func() policy.Policy { return policy.Policy{} })
		as := func(name string) context.Context {
			return context.WithValue(t.Context(), callKey{}, call{user: user{UserInfo: authenticationv1.UserInfo{Username: name}}})
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
		want := "<nil>; an explanation or a simulation of user a is in progress, which is the limit; <nil>; <nil>; 31s"
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// TestParallelWork has six calls of a user at once. Each takes a second.
func TestParallelWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, nil, func() policy.Policy { return policy.Policy{} })
		ctx := context.WithValue(t.Context(), callKey{}, call{user: user{UserInfo: authenticationv1.UserInfo{Username: "a"}}})
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
			"an explanation or a simulation of user a is in progress, which is the limit after 0s",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}
