package actuator

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// A process whose lease has expired must change nothing.
func TestLease(t *testing.T) {
	t.Run("a_call_after_the_ledger_needs_a_valid_lease", func(t *testing.T) {
		called := false
		cfg := Config{Policy: fast, LeaseValid: func() bool { return false }}
		inBubble(t, cfg, saves(func(Intent) { called = true }), func(t *testing.T, b *bench) {
			b.put("A", 1, "1")
			time.Sleep(10 * time.Second)
			expect.Equal(t, "called", called, false)
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), nil)
		})
	})
	t.Run("a_step_needs_a_valid_lease", func(t *testing.T) {
		m := &stepped{delay: 3 * time.Second}
		var over atomic.Bool
		cfg := Config{Policy: fast, View: webPods("1"), LeaseValid: func() bool { return !over.Load() }}
		inBubble(t, cfg, stepping, func(t *testing.T, b *bench) {
			b.background, m.began = m, time.Now()
			b.put("A", 1, "1")
			time.Sleep(time.Second)
			over.Store(true)
			time.Sleep(10 * time.Second)
			b.put("A", 2) // cancels the move
			time.Sleep(time.Second)
			over.Store(false)
			time.Sleep(trackEvery)
			m.mu.Lock()
			defer m.mu.Unlock()
			expect.Equal(t, "calls", m.calls, []string{"step after 0s", "cancel after 13s"})
		})
	})
}

// An eviction call that the guard refuses was never sent: it costs no token, and the intent is tried again. The Kubernetes Event
// of a sent one needs no valid lease.
func TestEvictionRefusedByGuard(t *testing.T) {
	var over atomic.Bool
	var evictions, events atomic.Int32
	server := wire(func(r *http.Request) (*http.Response, error) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/events"):
			events.Add(1)
			return created(), nil
		case r.Method == http.MethodGet:
			return response(http.StatusOK, ownedPod("pod-1", "1", "api")), nil
		}
		evictions.Add(1)
		over.Store(true)
		return created(), nil
	})
	valid := func() bool { return !over.Load() }
	guarded, ends := Guard(valid)(server), sync.OnceFunc(func() { over.Store(true) })
	client := wire(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost {
			ends() // after the check that follows the ledger record
		}
		return guarded.RoundTrip(r)
	}).client(t)
	p := enabledPolicy()
	p.Rate = policy.Rate{EvictionsPerSecond: 0.05, Burst: 1}
	cfg := Config{Client: client, Events: server.client(t), LeaseValid: valid, Policy: p}
	inBubble(t, cfg, nil, func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(1200 * ms)
		expect.Equal(t, "verdicts while the lease is not valid", b.bus.heard(t, b.start), nil)
		expect.Equal(t, "evictions while the lease is not valid", evictions.Load(), 0)
		expect.Equal(t, "readiness", b.Ready(), nil)
		over.Store(false)
		time.Sleep(time.Minute)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{{"A-1.1", schemas.ReasonEvictionAccepted, 3 * retryAfter}})
		expect.Equal(t, "evictions", evictions.Load(), 1)
		expect.Equal(t, "Kubernetes Events", events.Load(), 1)
	})
}

// The only token comes back after 20 s. The guard refuses the eviction then, and the next step makes it with the same token.
func TestEvictionInsteadRefusedByGuard(t *testing.T) {
	var over atomic.Bool
	evicted := make(chan time.Duration, 10)
	start := time.Time{}
	valid := func() bool { return !over.Load() }
	guarded := Guard(valid)(wire(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return response(http.StatusOK, ownedPod("pod-1", "1", "api")), nil
		}
		evicted <- time.Since(start).Round(time.Second)
		return created(), nil
	}))
	ends := sync.OnceFunc(func() {
		over.Store(true)
		time.AfterFunc(time.Second, func() { over.Store(false) })
	})
	client := wire(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/eviction") {
			ends()
		}
		return guarded.RoundTrip(r)
	}).client(t)
	events := noPods.client(t)
	cfg := Config{
		Policy: enabling(policy.Rate{EvictionsPerSecond: 0.05, Burst: 1}, "A"), View: webPods("1"),
		Client: client, Events: events, LeaseValid: valid,
	}
	inBubble(t, cfg, stepping, func(t *testing.T, b *bench) {
		start = b.start
		m := &stepped{stage: move.Released, began: time.Now()}
		b.background = m
		b.put("A", 1, "1")
		time.Sleep(time.Minute)
		expect.Equal(t, "time of the eviction", expect.Receive(t, "the eviction", evicted), 20*time.Second+trackEvery)
		expect.Equal(t, "other evictions", len(evicted), 0)
	})
}

// leaseEndsBefore ends the lease after a step of a restart has read the Deployment, right before its patch with these words.
// The first leader then writes nothing, and the next one completes the move.
func leaseEndsBefore(words string, writes int) func(*place) {
	return func(p *place) {
		pod := p.pods(1)[0]
		bus := newMemory()
		var over atomic.Bool
		var refused atomic.Int32
		valid := func() bool {
			if over.Load() {
				refused.Add(1)
			}
			return !over.Load()
		}
		config := p.c.RESTConfig()
		config.Wrap(Guard(valid))
		clustertest.Intercept(config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				body, err := r.GetBody()
				p.Must(err)
				patch, err := io.ReadAll(body)
				p.Must(err)
				if strings.Contains(string(patch), words) {
					over.Store(true)
				}
			}
			return next.RoundTrip(r)
		})
		client, err := kubernetes.NewForConfig(config)
		p.Must(err)
		leader := func(c *Config) {
			c.Bus, c.Ledger, c.View = bus, bus, webPods(pod.UID)
			c.Policy.Restart = policy.Restart{Workloads: policy.RestartAll}
		}
		first := p.actuator(leader, func(c *Config) { c.Client, c.LeaseValid = client, valid })
		ctx, lose := context.WithCancelCause(p.Context())
		ended := make(chan error, 1)
		go func() { ended <- first.Lead(ctx) }()
		bus.put(p.answer("A", "node", 1, []corev1.Pod{pod}))
		expect.Eventually(p, "the lease has ended", func() bool {
			return over.Load() && (refused.Load() > 0 || p.patches() > writes)
		})
		lose(ErrNotLeading)
		p.Must(<-ended)
		expect.Equal(p, "writes of the first leader", p.patches(), writes)

		stop := p.lead(p.actuator(leader))
		defer stop()
		expect.Eventually(p, "the next leader completes the move", func() bool { return p.patches() == 2 })
	}
}

// patches returns how many patches of Deployments in this namespace the API server has accepted.
func (p *place) patches() (n int) {
	p.Helper()
	entries, err := p.c.Audit(p.Context())
	p.Must(err)
	for _, e := range entries {
		if e.Namespace == p.namespace && e.Resource == "deployments" && e.Verb == "patch" && e.Code == http.StatusOK {
			n++
		}
	}
	return n
}
