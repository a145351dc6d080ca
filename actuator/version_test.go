package actuator

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// cachedView is a view with the pods of a cache.
type cachedView struct {
	noView
	cache *cluster.Cache
}

func (v cachedView) Object(uid types.UID) *corev1.Pod { return v.cache.PodByUID(uid) }

// versionOf returns the pod of wish with a resource version.
func versionOf(version string) *corev1.Pod {
	pod := factPod()
	pod.ResourceVersion = version
	return pod
}

// requestLog is an API server that notes the reads and evictions of the pod of wish, with their resource version.
func requestLog(t *testing.T, log *[]string, evict func(version string) *http.Response) wire {
	return func(r *http.Request) (*http.Response, error) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/eviction"):
			body, err := io.ReadAll(r.Body)
			expect.Must(t, err)
			var e policyv1.Eviction
			expect.Must(t, json.Unmarshal(body, &e))
			version := *e.DeleteOptions.Preconditions.ResourceVersion
			*log = append(*log, "evict "+version)
			if answer := evict(version); answer != nil {
				return answer, nil
			}
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		case strings.HasSuffix(r.URL.Path, "/pods/api-0"):
			*log = append(*log, strings.TrimSpace("read "+r.URL.Query().Get("resourceVersion")))
			return response(http.StatusOK, versionOf("9")), nil
		}
		return noPods(r)
	}
}

// The API server has version 9 of the pod, and the cache has version 7 if the test does not set another one.
func TestReadBeforeEviction(t *testing.T) {
	budget := fixtures.Budget("all", &metav1.LabelSelector{})
	gone := versionOf("7")
	gone.DeletionTimestamp = &metav1.Time{Time: noon}
	conflict := func(version string) *http.Response {
		if version != "9" {
			return failure(http.StatusConflict, metav1.StatusReasonConflict)
		}
		return created()
	}
	for _, c := range []struct {
		name    string
		objects []any
		but     func(*Actuator, *policy.Policy)
		want    []string
		reason  schemas.ReasonCode
	}{
		{"cached_pod", []any{versionOf("9")}, nil, []string{"evict 9"}, schemas.ReasonEvictionAccepted},
		{"outdated_pod", []any{versionOf("7")}, nil, []string{"evict 7", "read", "read", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"pod_that_leaves", []any{gone}, nil, nil, schemas.ReasonPodTerminating},
		{"unknown_pod", nil, nil, []string{"read", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"pod_with_a_budget", []any{versionOf("7"), budget}, nil, []string{"read 7", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"after_an_outage", []any{versionOf("7")}, func(a *Actuator, _ *policy.Policy) { a.health.fail(noon, errors.New("away")) },
			[]string{"read 7", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"eviction_request", []any{versionOf("7")}, func(_ *Actuator, p *policy.Policy) { p.EvictionRequests.Wait = time.Minute },
			[]string{"read", "read"}, schemas.ReasonEvictionRequestAccepted},
		{"restart", []any{versionOf("7")}, func(_ *Actuator, p *policy.Policy) { p.Restart.Workloads = "Annotated" },
			[]string{"read", "evict 9"}, schemas.ReasonEvictionAccepted},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			node := fixtures.Node("worker-1", withCPU("4"), fixtures.Readiness(corev1.ConditionTrue))
			cache := offline(t, append(c.objects, node, fixtures.Namespace("web", nil))...)
			client := requestLog(t, &got, conflict).client(t)
			p := enabledPolicy()
			a := New(Config{
				Client: client, View: cachedView{cache: cache}, Facts: cache, Policy: p, Log: slog.New(slog.DiscardHandler),
				Now: func() time.Time { return noon },
			})
			if c.but != nil {
				c.but(a, &p)
				a.SetPolicy(p)
			}
			v, err := a.execute(t.Context(), wish(), unsaved)
			expect.Equal(t, "error", err, nil)
			expect.Equal(t, "requests", got, c.want)
			expect.Equal(t, "reason", v.Reason, c.reason)
		})
	}
}

// A call that reached no API server has no verdict, and the intent waits.
func TestUndeliveredEviction(t *testing.T) {
	for name, answer := range map[string]func(string) *http.Response{
		"no_connection":        func(string) *http.Response { return nil },
		"no_valid_credentials": func(string) *http.Response { return failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized) },
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			a := New(Config{
				Client: requestLog(t, &got, answer).client(t), View: noView{}, Policy: enabledPolicy(),
				Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon },
			})
			v, err := a.execute(t.Context(), wish(), unsaved)
			expect.Equal(t, "API server unavailable", errors.Is(err, ErrUnavailable), true)
			expect.Equal(t, "verdict", v, schemas.Verdict{})
			expect.Equal(t, "requests", got, []string{"read", "evict 9"})
		})
	}
}
