package cli

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/expect"
)

// apiOf returns the loopback address of an API with an own empty bus and an empty cache. answer has the consequences of a request.
func apiOf(t *testing.T, answer func(schemas.Request) []schemas.Payload) (http.Handler, *bus.Bus) {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	expect.Must(t, err)
	cache, err := cluster.NewOffline(api.Kinds()...)
	expect.Must(t, err)
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{})})
	bustest.SetUp(t, b, bus.Setup{})
	s, err := api.New(api.Config{
		Client: client, Cluster: cache, Bus: b, Policy: func() policy.Policy { return policy.Policy{} }, Log: slog.New(slog.DiscardHandler),
		Settings: settings.Settings{Cluster: "test", Installation: "rehome", LeaseNamespace: "kube-system"},
	})
	expect.Must(t, err)
	expect.Background(t, s.Run)
	answering(t, b, answer)
	return s.Operator(), b
}

// lostAPI serves the first API until the command has shown the text until, and then the second one.
type lostAPI struct {
	bytes.Buffer
	until   string
	current atomic.Pointer[http.Handler]
	change  func()
}

func (l *lostAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*l.current.Load()).ServeHTTP(w, r)
}

// Write is the output of the command.
func (l *lostAPI) Write(b []byte) (int, error) {
	if strings.Contains(string(b), l.until) {
		l.change()
	}
	return l.Buffer.Write(b)
}

func TestRequestAfterLostBus(t *testing.T) {
	done := func(r schemas.Request) []schemas.Payload {
		return []schemas.Payload{
			receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted, requested("a")), judged("a", schemas.Evicted, schemas.ReasonEvictionAccepted),
			replaced("a", schemas.ReasonReplaced), receipt(r, schemas.RequestFinished, schemas.ReceiptDone),
		}
	}
	for _, c := range []struct {
		name    string
		earlier int // the number of events on the second bus
	}{
		{"the new bus is empty", 0},
		{"the new bus has fewer events", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, _ := apiOf(t, func(r schemas.Request) []schemas.Payload {
				return []schemas.Payload{
					receipt(r, schemas.RequestAccepted, schemas.ReceiptAccepted, requested("a")), judged("a", schemas.Deferred, schemas.ReasonDisruptionBudget),
				}
			})
			second, b := apiOf(t, done)
			for range c.earlier {
				bustest.Publish(t, b, bustest.Event(t, judged("x", schemas.Evicted, schemas.ReasonEvictionAccepted)))
			}
			l := &lostAPI{until: "deferred"}
			l.current.Store(&first)
			web := httptest.NewServer(l)
			t.Cleanup(web.Close)
			l.change = sync.OnceFunc(func() {
				l.current.Store(&second)
				web.CloseClientConnections()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			root := newRoot()
			root.SetArgs([]string{"move", "node", "n1", "--reason", "fan", "--name", "r", "--server", web.URL})
			root.SetOut(l)
			root.SetErr(&bytes.Buffer{})
			err := root.ExecuteContext(ctx)
			want := []string{"accepted:", "accepted:", "evicted from", "settled Replaced", "finished:"}
			if got := kinds(l.String()); err != nil || !slices.Equal(got, want) {
				t.Errorf("got %q, error %v, want %q\n%s", got, err, want, l)
			}
		})
	}
}
