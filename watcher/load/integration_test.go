package load

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// The users of the control plane.
const (
	sampler = "sampler" // has the rights of the watcher
	nobody  = "nobody"  // has no rights
)

// TestLoadFromAPIServer shares a control plane among its subtests, which run in order.
func TestLoadFromAPIServer(t *testing.T) {
	c := clustertest.New(t, cluster.Options{Users: []cluster.User{{Name: sampler}, {Name: nobody}}})
	p := &place{T: expect.T{TB: t}, c: c, client: c.Client()}
	p.allow(sampler)
	for _, part := range []struct {
		name string
		test func(*place)
	}{
		{"no metrics API", testNoMetrics},
		{"metrics API", testMetrics},
		{"no right to list", testForbidden},
		{"sampler reads pods on demand", testSampler},
		{"token from a Secret", testSecret},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.test(&place{T: expect.T{TB: t}, c: c, client: c.Client()})
		})
	}
}

type place struct {
	expect.T
	c      *cluster.Cluster
	client kubernetes.Interface
}

// allow grants a user the documented rights of the watcher for load.
func (p *place) allow(user string) {
	p.Helper()
	p.Must(p.c.Grant(p.Context(), cluster.UserSubject(user), "",
		rbacv1.PolicyRule{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"nodes", "pods"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"prometheus"}, Verbs: []string{"get"},
		}))
	p.Must(p.c.WaitForRight(p.Context(), authorizationv1.SubjectAccessReviewSpec{
		User:               user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "metrics.k8s.io", Resource: "nodes", Verb: "list"},
	}))
}

func (p *place) source(user string) Kubernetes {
	p.Helper()
	return Kubernetes{Client: clustertest.As(p, p.c, user).Discovery().RESTClient(), Now: func() time.Time { return noon }}
}

func (p *place) fails(what string, err error, words string) {
	p.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		p.Errorf("%s: got %v, want the words %q", what, err, words)
	}
}

func testNoMetrics(p *place) {
	s := p.source(sampler)
	_, err := s.Nodes(p.Context())
	p.fails("nodes", err, "list nodes of metrics.k8s.io: the server could not find the requested resource")
	_, err = s.Pods(p.Context())
	p.fails("pods", err, "list pods of metrics.k8s.io: the server could not find the requested resource")
	p.Must(p.c.ServeMetrics(p.Context()))
}

func testMetrics(p *place) {
	ctx := p.Context()
	only := corev1.ResourceList{"cpu": using("1", "1")["cpu"]}
	for _, m := range []cluster.NodeMetrics{
		{Name: "now", Usage: using("1500m", "1Gi"), Timestamp: noon, Window: 15 * time.Second},
		{Name: "untimed", Usage: using("123456789n", "2Ki")},
		{Name: "old", Usage: using("1", "1"), Timestamp: noon.Add(-time.Hour)},
		{Name: "future", Usage: using("1", "1"), Timestamp: noon.Add(time.Hour), Window: -time.Hour},
		{Name: "half", Usage: only, Timestamp: noon},
		{Name: "empty"},
	} {
		p.Must(p.c.SetNodeMetrics(ctx, m))
	}
	p.Must(p.c.AddNamespace(ctx, "web"))
	for _, m := range []cluster.PodMetrics{
		{Namespace: "web", Name: "two", Containers: []corev1.ResourceList{using("100m", "1Mi"), using("1m", "1")}},
		{Namespace: "default", Name: "two", Containers: []corev1.ResourceList{using("2", "2")}},
		{Namespace: "web", Name: "half", Containers: []corev1.ResourceList{using("1", "1"), only}},
		{Namespace: "web", Name: "empty"},
	} {
		p.Must(p.c.SetPodMetrics(ctx, m))
	}
	s := p.source(sampler)
	nodes, err := s.Nodes(ctx)
	p.Must(err)
	same(p, "nodes", nodes, map[string]Sample{
		"now":     {Used: using("1500m", "1Gi"), Good: noon.Add(75 * time.Second).Local()},
		"untimed": {Used: using("123456789n", "2Ki"), Good: noon.Add(time.Minute)},
		"old":     {Used: using("1", "1"), Good: noon.Add(-59 * time.Minute).Local()},
		"future":  {Used: using("1", "1"), Good: noon.Add(time.Minute)},
	})
	pods, err := s.Pods(ctx)
	p.Must(err)
	got := map[string]corev1.ResourceList{}
	for name, used := range pods {
		got[name.String()] = used
	}
	same(p, "pods", got, map[string]corev1.ResourceList{"web/two": using("101m", "1048577"), "default/two": using("2", "2")})
}

func testForbidden(p *place) {
	s := p.source(nobody)
	_, err := s.Nodes(p.Context())
	p.fails("nodes", err, `list nodes of metrics.k8s.io: nodes.metrics.k8s.io is forbidden: User "nobody" cannot list resource`)
	_, err = s.Pods(p.Context())
	p.fails("pods", err, `list pods of metrics.k8s.io: pods.metrics.k8s.io is forbidden: User "nobody" cannot list resource`)
}

func testSampler(p *place) {
	from := policy.Load{Source: policy.LoadKubernetes}
	var needed atomic.Bool
	sampled := make(chan struct{})
	s := New(Config{
		Sources:   map[policy.Load]Source{from: p.source(sampler)},
		NeedsPods: func(policy.Load) bool { return needed.Load() },
		Sampled:   func(policy.Load) { sampled <- struct{}{} },
		Now:       func() time.Time { return noon },
		Log:       slog.New(slog.DiscardHandler),
	})
	ctx, end := context.WithCancel(p.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Run(ctx)
	}()
	round := func() {
		p.Helper()
		select {
		case <-sampled:
		case <-time.After(time.Minute):
			p.Fatal("no round within a minute")
		}
	}
	round()
	same(p, "the first sample", s.Node(from, "now"), using("1500m", "1Gi"))
	same(p, "an old sample", s.Node(from, "old"), nil)
	same(p, "a pod that is not needed", s.Pod(from, "web", "two"), nil)
	needed.Store(true)
	p.Must(p.c.SetNodeMetrics(ctx, cluster.NodeMetrics{Name: "now", Usage: using("2500m", "2Gi"), Timestamp: noon}))
	p.Must(p.c.RemoveNodeMetrics(ctx, "untimed"))
	round()
	same(p, "the second sample", s.Node(from, "now"), using("1600m", "1181116006"))
	same(p, "a node that is gone", s.Node(from, "untimed"), nil)
	same(p, "a pod that is needed", s.Pod(from, "web", "two"), using("101m", "1048577"))
	same(p, "a pod without all containers", s.Pod(from, "web", "half"), nil)
	end()
	select {
	case <-over:
	case <-sampled:
		<-over
	}
}

func testSecret(p *place) {
	ctx := p.Context()
	secrets := p.client.CoreV1().Secrets("default")
	ref := policy.SecretRef{Namespace: "default", Name: "prometheus"}
	read := secretToken(clustertest.As(p, p.c, sampler), ref)
	_, err := read(ctx)
	p.fails("no Secret", err, `token for Prometheus: secret default/prometheus: secrets "prometheus" not found`)
	secret, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}}, metav1.CreateOptions{})
	p.Must(err)
	_, err = read(ctx)
	p.fails("no key", err, "token for Prometheus: secret default/prometheus has no key prometheusAuthToken")
	_, err = secretToken(clustertest.As(p, p.c, nobody), ref)(ctx)
	p.fails("no right", err, `token for Prometheus: secret default/prometheus: secrets "prometheus" is forbidden`)

	server := newServer(p)
	var log bytes.Buffer
	s, err := NewPrometheus(server.URL, query, read, func() time.Time { return noon }, slog.New(slog.NewTextHandler(&log, nil)))
	p.Must(err)
	defer s.Close()
	for _, token := range []string{"one", "two"} {
		secret.StringData = map[string]string{tokenKey: token + "\n"}
		secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		p.Must(err)
		server.set(token, nil)
		nodes, err := s.Nodes(ctx)
		p.Must(err)
		same(p, "nodes with token "+token, nodes, map[string]Sample{"n1": {Used: percents(25), Good: noon.Add(time.Minute)}})
	}
	if strings.Contains(log.String(), "one") || strings.Contains(log.String(), "two") {
		p.Errorf("a token is in the log:\n%s", &log)
	}
}
