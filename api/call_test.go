package api_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	view "github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/schematest"
)

// loneServer is the loopback address of a server with a bus and an empty cache, whose API server is away.
func loneServer(t testing.TB) http.Handler {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := view.NewOffline(api.Kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, bus.ServerOptions{})})
	bustest.SetUp(t, b, bus.Setup{})
	s, err := api.New(api.Config{
		Client: client, Cluster: cache, Bus: b, Policy: func() policy.Policy { return policy.Policy{} }, Log: slog.New(slog.DiscardHandler),
		Settings: settings.Settings{Cluster: "test", Installation: "rehome", LeaseNamespace: "kube-system"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Operator()
}

func call(t testing.TB, method, target string, body io.Reader) *http.Request {
	t.Helper()
	q := httptest.NewRequest(method, "http://localhost/", body)
	q.URL.Path, q.URL.RawQuery, _ = strings.Cut(target, "?")
	return q
}

// serveCall serves a call for a moment and checks that it neither fails nor is taken for a failure of the server.
func serveCall(t *testing.T, h http.Handler, q *http.Request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q.WithContext(ctx))
	if w.Code == http.StatusInternalServerError {
		t.Errorf("%s %s: got %d %s", q.Method, q.URL, w.Code, w.Body)
	}
}

// FuzzGet calls all routes with any parameters.
func FuzzGet(f *testing.F) {
	for _, path := range []string{
		"/", "/v1/state", "/v1/watch", "/v1/events?type=delta,verdict&since=1h&limit=3", "/v1/events?pod=a/b&follow=false", "/v1/pods/a/b?since=1h",
		"/v1/nodes/a", "/v1/workloads/Deployment/a/b", "/v1/requests", "/v1/requests/http/a", "/v1/openapi.json", "/v1/nodes/%00\xff/../..",
	} {
		f.Add(path, "Last-Event-ID", "7")
	}
	h := loneServer(f)
	f.Fuzz(func(t *testing.T, target, header, value string) {
		q := call(t, http.MethodGet, target, nil)
		q.Header[http.CanonicalHeaderKey(header)] = []string{value}
		serveCall(t, h, q)
	})
}

// FuzzPost calls the routes that take a body.
func FuzzPost(f *testing.F) {
	for _, e := range schematest.Examples(f) {
		f.Add("/v1/requests", cloudevent.StructuredJSON, []byte(e.Document))
	}
	f.Add("/v1/requests", cloudevent.JSON, []byte(`{"action":"`+string(schemas.ActionEvaluate)+`"}`))
	f.Add("/v1/simulate", cloudevent.JSON, []byte(`{"policy":"apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n","rounds":1}`))
	f.Add("/v1/simulate", "application/yaml", []byte("policy: [\x00"))
	h := loneServer(f)
	f.Fuzz(func(t *testing.T, target, content string, body []byte) {
		q := call(t, http.MethodPost, target, bytes.NewReader(body))
		q.Header["Content-Type"] = []string{content}
		serveCall(t, h, q)
	})
}
