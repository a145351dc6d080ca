package actuator

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// versioned is a view that knows version 7 of every pod.
type versioned struct{ noView }

func (versioned) Version(types.UID) string { return "7" }

// The API server may answer from a cache only before an eviction, which fails if the pod has changed since.
func TestVersionOfPod(t *testing.T) {
	for _, c := range []struct {
		name string
		but  func(*policy.Policy)
		want string
	}{
		{"eviction", func(*policy.Policy) {}, "7"},
		{"eviction_request", func(p *policy.Policy) { p.EvictionRequests.Wait = time.Minute }, ""},
		{"restart", func(p *policy.Policy) { p.Restart.Workloads = "Annotated" }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			client := wire(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodGet {
					got = append(got, r.URL.Query().Get("resourceVersion"))
				}
				return noPods(r)
			}).client(t)
			p := enabledPolicy()
			c.but(&p)
			a := New(Config{Client: client, View: versioned{}, Policy: p, Log: slog.New(slog.DiscardHandler)})
			_, err := a.execute(t.Context(), wish(), unsaved)
			expect.Equal(t, "error", err, nil)
			expect.Equal(t, "requested versions", got, []string{c.want})
		})
	}
}
