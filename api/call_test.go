package api_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/apitest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// loneServer is the loopback address of an API without a cluster.
func loneServer(t testing.TB) http.Handler {
	t.Helper()
	s, _ := apitest.New(t)
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

// routes returns the paths of the served document that have a method, with an example of each parameter. A path with query parameters
// occurs twice: without a query, and with all of its parameters.
func routes(t testing.TB, h http.Handler, method string) (paths []string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, call(t, http.MethodGet, "/v1/openapi.json", nil))
	var document struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	examples := map[string]string{
		"kind": "Deployment", "since": "1h", "limit": "3", "follow": "false", "pod": "a/b", "type": "delta,verdict", "outcome": "evicted",
	}
	for path, methods := range document.Paths {
		operation, is := methods[strings.ToLower(method)]
		if !is {
			continue
		}
		query := url.Values{}
		for _, p := range operation.Parameters {
			example := cmp.Or(examples[p.Name], "a")
			switch p.In {
			case "path":
				path = strings.ReplaceAll(path, "{"+p.Name+"}", example)
			case "query":
				query.Set(p.Name, example)
			}
		}
		if paths = append(paths, path); len(query) > 0 {
			paths = append(paths, path+"?"+query.Encode())
		}
	}
	slices.Sort(paths)
	return paths
}

// TestRoutes checks that the examples of [routes] reach a handler, so that fuzz tests begin behind the mux.
func TestRoutes(t *testing.T) {
	h := loneServer(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		paths := routes(t, h, method)
		if len(paths) == 0 {
			t.Errorf("no route for %s", method)
		}
		for _, path := range paths {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, call(t, method, path, nil).WithContext(ctx))
			cancel()
			if text := w.Body.String(); w.Code >= 500 && w.Code != http.StatusServiceUnavailable || strings.Contains(text, "lists the paths") ||
				strings.Contains(text, "want the method") {
				t.Errorf("%s %s: got %d %s", method, path, w.Code, text)
			}
		}
	}
}

// FuzzGet calls all routes with any parameters.
func FuzzGet(f *testing.F) {
	h := loneServer(f)
	for _, path := range append(routes(f, h, http.MethodGet), "/", "/v1/openapi.json", "/v1/nodes/%00\xff/../..") {
		f.Add(path, "Last-Event-ID", "7")
	}
	f.Fuzz(func(t *testing.T, target, header, value string) {
		q := call(t, http.MethodGet, target, nil)
		q.Header[http.CanonicalHeaderKey(header)] = []string{value}
		serveCall(t, h, q)
	})
}

// FuzzPost calls the routes that take a body.
func FuzzPost(f *testing.F) {
	h := loneServer(f)
	bodies := map[string][]string{cloudevent.JSON: {
		`{"action":"` + string(schemas.ActionEvaluate) + `"}`,
		`{"policy":"apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n","rounds":1}`,
	}, "application/yaml": {"policy: [\x00"}}
	for _, e := range schematest.Examples(f) {
		bodies[cloudevent.StructuredJSON] = append(bodies[cloudevent.StructuredJSON], string(e.Document))
	}
	for _, path := range routes(f, h, http.MethodPost) {
		for content, texts := range bodies {
			for _, text := range texts {
				f.Add(path, content, []byte(text))
			}
		}
	}
	f.Fuzz(func(t *testing.T, target, content string, body []byte) {
		q := call(t, http.MethodPost, target, bytes.NewReader(body))
		q.Header["Content-Type"] = []string{content}
		serveCall(t, h, q)
	})
}
