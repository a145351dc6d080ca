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
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move/background"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// versionOf returns the pod of wish with a resource version.
func versionOf(version string) *corev1.Pod {
	pod := factPod()
	pod.ResourceVersion = version
	return pod
}

// requestLog notes the reads and evictions of the pod of wish, with their resource versions.
type requestLog struct {
	requests []string
	evict    func(version string) *http.Response // nil means that there is no connection
	read     func(version string) *http.Response // nil means version 9 of the pod
}

func (l *requestLog) client(t *testing.T) kubernetes.Interface {
	return wire(func(r *http.Request) (*http.Response, error) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/eviction"):
			body, err := io.ReadAll(r.Body)
			expect.Must(t, err)
			var e policyv1.Eviction
			expect.Must(t, json.Unmarshal(body, &e))
			version := *e.DeleteOptions.Preconditions.ResourceVersion
			l.requests = append(l.requests, "evict "+version)
			if answer := l.evict(version); answer != nil {
				return answer, nil
			}
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		case strings.HasSuffix(r.URL.Path, "/pods/api-0"):
			version := r.URL.Query().Get("resourceVersion")
			l.requests = append(l.requests, strings.TrimSpace("read "+version))
			if l.read != nil {
				return l.read(version), nil
			}
			return response(http.StatusOK, versionOf("9")), nil
		}
		return noPods(r)
	}).client(t)
}

// The API server has version 9 of the pod, and the cache has version 7 if the test does not set another one.
func TestReadBeforeEviction(t *testing.T) {
	budget := fixtures.Budget("all", &metav1.LabelSelector{})
	gone := versionOf("7")
	gone.DeletionTimestamp = &metav1.Time{Time: noon}
	marked := versionOf("7")
	marked.Annotations = map[string]string{background.RequestOnly: ""}
	conflict := func(version string) *http.Response {
		if version != "9" {
			return failure(http.StatusConflict, metav1.StatusReasonConflict)
		}
		return created()
	}
	for _, c := range []struct {
		name    string
		objects []any
		but     func(*Actuator, *policy.Policy, *Intent)
		want    []string
		reason  schemas.ReasonCode
	}{
		{"cached_pod", []any{versionOf("9")}, nil, []string{"evict 9"}, schemas.ReasonEvictionAccepted},
		{"outdated_pod", []any{versionOf("7")}, nil, []string{"evict 7", "read", "read", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"rejected_by_the_cache", []any{gone}, nil, []string{"read", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"another_name", []any{versionOf("9")}, func(_ *Actuator, _ *policy.Policy, i *Intent) { i.Pod.Name = "other" },
			nil, schemas.ReasonPodGone},
		{"pod_of_a_webhook", []any{marked}, nil, []string{"read 7", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"unknown_pod", nil, nil, []string{"read", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"pod_with_a_budget", []any{versionOf("7"), budget}, nil, []string{"read 7", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"after_an_outage", []any{versionOf("7")}, func(a *Actuator, _ *policy.Policy, _ *Intent) { a.health.fail(noon, errors.New("away")) },
			[]string{"read 7", "evict 9"}, schemas.ReasonEvictionAccepted},
		{"eviction_request", []any{versionOf("7")}, func(_ *Actuator, p *policy.Policy, _ *Intent) { p.EvictionRequests.Wait = time.Minute },
			[]string{"read", "read"}, schemas.ReasonEvictionRequestAccepted},
		{"restart", []any{versionOf("7")}, func(_ *Actuator, p *policy.Policy, _ *Intent) { p.Restart.Workloads = "Annotated" },
			[]string{"read", "evict 9"}, schemas.ReasonEvictionAccepted},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := fixtures.Node("worker-1", withCPU("4"), fixtures.Readiness(corev1.ConditionTrue))
			cache := offline(t, append(c.objects, node, fixtures.Namespace("web", nil))...)
			log, p, i := requestLog{evict: conflict}, enabledPolicy(), wish()
			a := New(Config{
				Client: log.client(t), View: cache.Workloads(), Facts: cache, Policy: p, Log: slog.New(slog.DiscardHandler),
				Now: func() time.Time { return noon },
			})
			if c.but != nil {
				c.but(a, &p, &i)
				a.SetPolicy(p)
			}
			v, err := a.execute(t.Context(), i, unsaved)
			expect.Equal(t, "error", err, nil)
			expect.Equal(t, "requests", log.requests, c.want)
			expect.Equal(t, "reason", v.Reason, c.reason)
		})
	}
}

// A call that no API server accepts has no verdict, and the intent waits.
func TestUndeliveredEviction(t *testing.T) {
	foreign := func(string) *http.Response { return failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized) }
	for _, c := range []struct {
		name string
		log  requestLog
		want []string
	}{
		{"no_connection", requestLog{evict: func(string) *http.Response { return nil }}, []string{"evict 9"}},
		{"no_valid_credentials", requestLog{evict: foreign, read: foreign}, []string{"evict 9", "read"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := c.log
			cache := offline(t, versionOf("9"), fixtures.Namespace("web", nil))
			a := New(Config{
				Client: log.client(t), View: cache.Workloads(), Policy: enabledPolicy(), Log: slog.New(slog.DiscardHandler),
				Now: func() time.Time { return noon },
			})
			v, err := a.execute(t.Context(), wish(), unsaved)
			expect.Equal(t, "API server unavailable", errors.Is(err, ErrUnavailable), true)
			expect.Equal(t, "verdict", v, schemas.Verdict{})
			expect.Equal(t, "requests", log.requests, c.want)
		})
	}
}
