package serving_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// TestMetricsAccess shares one control plane among its subtests. The last one stops the API server.
func TestMetricsAccess(t *testing.T) {
	s := &stage{T: t, c: clustertest.New(t, cluster.Options{Users: []cluster.User{{Name: "guard"}}})}
	s.grant()
	s.tokens = map[string]string{"no token": "", "a stranger": "stranger"}
	for _, name := range []string{"prometheus", "somebody", "profiler"} {
		s.tokens[name] = s.token(name)
	}
	config, err := s.c.UserConfig("guard")
	expect.Must(t, err)
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	t.Run("users that may get the path", s.testRights)
	t.Run("an answer holds for ten seconds", s.testMemory)
	t.Run("a process with a guard", s.testProcess)
	t.Run("at most eight checks in parallel", s.testFlood)
	t.Run("without the API server only users that passed before", s.testNoAPIServer)
}

type stage struct {
	*testing.T
	c      *cluster.Cluster
	client kubernetes.Interface // with the rights that a guard needs, and no others
	tokens map[string]string    // of service accounts, by name
}

// grant lets prometheus read metrics, as the operations page describes, profiler metrics and profiles, and the guard
// check rights.
func (s *stage) grant() {
	s.Helper()
	ctx := s.Context()
	err := s.c.AddNamespace(ctx, "monitoring")
	get := func(paths ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{NonResourceURLs: paths, Verbs: []string{"get"}}
	}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"profiler": {get("/metrics", "/debug/pprof/*")},
		"guard": {
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
			{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		},
	} {
		subject := cluster.AccountSubject("monitoring", name)
		if name == "guard" {
			subject = cluster.UserSubject(name)
		}
		err = errors.Join(err, s.c.Grant(ctx, subject, "", rules...))
	}
	expect.Must(s, err)
	page, err := os.ReadFile("../../docs/operations.md")
	expect.Must(s, err)
	lines := regexp.MustCompile(`(?m)^    kubectl (create clusterrole.*)$`).FindAllStringSubmatch(string(page), -1)
	if len(lines) != 2 {
		s.Fatalf("the page about operations gives the right to read figures with %q, want a role and a binding", lines)
	}
	for _, line := range lines {
		c := s.c.KubectlCommand(ctx, strings.Fields(line[1])...)
		if out, err := c.CombinedOutput(); err != nil {
			s.Fatalf("%s: %v\n%s", line[0], err, out)
		}
	}
}

// reader is the binding from the operations page, for the service account prometheus.
const reader = "rehome-metrics-reader"

// token creates a service account and returns its token, as Prometheus has one in a file of its pod.
func (s *stage) token(name string) string {
	s.Helper()
	accounts := s.c.Client().CoreV1().ServiceAccounts("monitoring")
	if _, err := accounts.Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	made, err := accounts.CreateToken(s.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	expect.Must(s, err)
	return made.Status.Token
}

// reply is an HTTP response.
type reply struct {
	status int
	body   string
}

// get sends a request with a token.
func (s *stage) get(t *testing.T, h http.Handler, who, path string) (reply, http.Header) {
	t.Helper()
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if token := s.tokens[who]; token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return reply{w.Code, w.Body.String()}, w.Header()
}

// clock is a clock that is set by hand.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newClock() *clock { return &clock{at: time.Now()} }

// guarded returns a guard, and its handler, which records calls.
func (s *stage) guarded(c *clock) http.Handler {
	return serving.NewGuard(s.client, c.now, slog.New(slog.DiscardHandler)).Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "here\n")
	}))
}

const account = "system:serviceaccount:monitoring:"

func (s *stage) testRights(t *testing.T) {
	h := s.guarded(newClock())
	for round := range 2 { // the second is answered from memory
		for _, c := range []struct {
			who, path string
			want      reply
		}{
			{"prometheus", "/metrics", reply{200, "here\n"}},
			{"prometheus", "/debug/pprof/heap", reply{403, "user " + account + "prometheus may not get /debug/pprof/heap\n"}},
			{"profiler", "/metrics", reply{200, "here\n"}},
			{"profiler", "/debug/pprof/heap", reply{200, "here\n"}},
			{"somebody", "/metrics", reply{403, "user " + account + "somebody may not get /metrics\n"}},
			{"a stranger", "/metrics", reply{401, "the API server does not know the token\n"}},
			{"no token", "/metrics", reply{401, "want the header Authorization: Bearer TOKEN\n"}},
		} {
			got, header := s.get(t, h, c.who, c.path)
			if got != c.want || (got.status == 401) != (header.Get("WWW-Authenticate") == "Bearer") {
				t.Errorf("round %d: %s at %s: got %v, want %v", round, c.who, c.path, got, c.want)
			}
		}
	}
}

func (s *stage) testMemory(t *testing.T) {
	c := newClock()
	h := s.guarded(c)
	bindings := s.c.Client().RbacV1().ClusterRoleBindings()
	statuses := func() (got [2]int) {
		for i, who := range []string{"prometheus", "somebody"} {
			r, _ := s.get(t, h, who, "/metrics")
			got[i] = r.status
		}
		return got
	}
	if got := statuses(); got != [2]int{200, 403} {
		t.Fatalf("before: got %v", got)
	}
	binding, err := bindings.Get(t.Context(), reader, metav1.GetOptions{})
	expect.Must(t, err)
	binding.Subjects[0].Name = "somebody" // takes the right of one, and gives it to the other
	if binding, err = bindings.Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, "the API server knows", func() bool {
		r, _ := s.get(t, s.guarded(newClock()), "somebody", "/metrics")
		return r.status == 200
	})
	c.pass(10*time.Second - 1)
	if got := statuses(); got != [2]int{200, 403} {
		t.Errorf("within ten seconds: got %v, want what was answered before", got)
	}
	c.pass(2)
	if got := statuses(); got != [2]int{403, 200} {
		t.Errorf("after ten seconds: got %v, want what holds now", got)
	}
	binding.Subjects[0].Name = "prometheus"
	if _, err := bindings.Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, "the API server knows", func() bool {
		r, _ := s.get(t, s.guarded(newClock()), "prometheus", "/metrics")
		return r.status == 200
	})
}

// testProcess runs the program with everything enabled, and one that has no API server.
func (s *stage) testProcess(t *testing.T) {
	dir := t.TempDir()
	binary := expect.Value(t, program.Build)
	policy := filepath.Join(dir, "policy.yaml")
	text := "apiVersion: rehome.dev/v1alpha1\nkind: DeschedulerPolicy\nprofiles:\n- name: default\n" +
		"  pluginConfig: [{name: RemovePodsViolatingNodeTaints}]\n  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}\n"
	filetest.Write(t, policy, text)
	requests := expect.Value(t, program.FreeAddress)
	on := []string{
		"KUBECONFIG=" + s.c.Kubeconfig(), "REHOME_STORE_DIR=" + filepath.Join(dir, "store"), "REHOME_HTTP_TLS=self-signed",
		"REHOME_HTTP_AUTH=true", "REHOME_HTTP2=true", "REHOME_PROFILES=true",
		"REHOME_API_ADDRESS=" + requests, "REHOME_API_TLS=self-signed",
	}
	p, err := program.Start(binary, []string{"run", "--dry-run", "--policy", policy}, on)
	expect.Must(t, err)
	defer p.Kill()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	ask := func(address, who, path string) (got reply) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
		expect.Must(t, err)
		q.Header.Set("Authorization", "Bearer "+s.tokens[who])
		r, err := client.Do(q)
		if err != nil {
			return reply{body: err.Error()}
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		expect.Must(t, err)
		return reply{r.StatusCode, r.Proto + " " + strings.Join(strings.Fields(string(body)), " ")}
	}
	expect.Eventually(t, "readiness needs no token", func() bool { return ask(p.Address, "no token", "/readyz").status == 200 })
	got := map[string]int{}
	for _, c := range [][3]string{
		{p.Address, "no token", "/healthz"}, {p.Address, "no token", "/metrics"}, {p.Address, "somebody", "/metrics"},
		{p.Address, "prometheus", "/metrics"}, {p.Address, "prometheus", "/debug/pprof/"}, {p.Address, "profiler", "/debug/pprof/"},
		{p.Address, "profiler", "/debug/pprof/heap"}, {requests, "somebody", "/v1/requests"},
	} {
		r := ask(c[0], c[1], c[2])
		if !strings.HasPrefix(r.body, "HTTP/2.0 ") {
			t.Errorf("%s: got %v, want HTTP/2", c, r)
		}
		got[c[1]+" "+c[2]] = r.status
	}
	want := map[string]int{
		"no token /healthz": 200, "no token /metrics": 401, "somebody /metrics": 403, "prometheus /metrics": 200,
		"prometheus /debug/pprof/": 403, "profiler /debug/pprof/": 200, "profiler /debug/pprof/heap": 200,
		"somebody /v1/requests": 200,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v\n%s", got, want, p.Log)
	}
	s.testNobodyToAsk(t, binary, policy)
}

// testNobodyToAsk starts the processes without access to the cluster with a guard: each must report the error.
func (s *stage) testNobodyToAsk(t *testing.T, binary, policy string) {
	for _, arguments := range [][]string{
		{"functions"}, {"dispatcher", "--policy", policy}, {"forward", "--to", "http://127.0.0.1:1"}, {"serve", "PodLifeTime"},
	} {
		p, err := program.Start(binary, arguments, []string{
			"REHOME_NATS_URL=nats://127.0.0.1:1", "REHOME_HTTP_TLS=self-signed", "REHOME_HTTP_AUTH=true", "PORT=",
		})
		expect.Must(t, err)
		err = p.Err()
		const want = "REHOME_HTTP_AUTH: want false for a process without access to the cluster, got true"
		if err == nil || err.Error() != "exit status 1" || !strings.Contains(p.Log.String(), want) {
			t.Errorf("%q: got %v, want %s\n%s", arguments, err, want, p.Log)
		}
	}
}

// held counts the reviews that arrive, and delays them until free is closed.
type held struct {
	http.RoundTripper
	arrived chan struct{}
	free    chan struct{}
}

func (h held) RoundTrip(r *http.Request) (*http.Response, error) {
	h.arrived <- struct{}{}
	<-h.free
	return h.RoundTripper.RoundTrip(r)
}

func (s *stage) testFlood(t *testing.T) {
	const many = 200
	gate := held{arrived: make(chan struct{}, 2*many), free: make(chan struct{})}
	config, err := s.c.UserConfig("guard")
	expect.Must(t, err)
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { gate.RoundTripper = to; return gate })
	client, err := kubernetes.NewForConfig(config)
	expect.Must(t, err)
	flooded := &stage{T: t, client: client, tokens: s.tokens}
	h := flooded.guarded(newClock())
	var all sync.WaitGroup
	got := make(chan int, many)
	ask := func(ctx context.Context, i int) {
		q := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
		q.Header.Set("Authorization", fmt.Sprintf("Bearer stranger-%d", i))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		got <- w.Code
	}
	for i := range 8 {
		all.Go(func() { ask(t.Context(), i) })
		<-gate.arrived
	}
	impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for i := range many - 8 {
		all.Go(func() { ask(impatient, 8+i) })
	}
	count := map[int]int{}
	for range many - 8 {
		count[<-got]++
	}
	asked := len(gate.arrived)
	close(gate.free)
	all.Wait()
	for range 8 {
		count[<-got]++
	}
	if want := map[int]int{401: 8, 429: many - 8}; !reflect.DeepEqual(count, want) || asked > 0 {
		t.Errorf("got %v, and %d more questions to the API server; want %v", count, asked, want)
	}
	if r, _ := flooded.get(t, h, "prometheus", "/metrics"); r.status != 200 {
		t.Errorf("after the flood: got %v", r)
	}
}

func (s *stage) testNoAPIServer(t *testing.T) {
	c := newClock()
	h := s.guarded(c)
	if r, _ := s.get(t, h, "prometheus", "/metrics"); r.status != 200 {
		t.Fatalf("before: got %v", r)
	}
	if err := s.c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.c.StartAPIServer(context.WithoutCancel(s.Context())); err != nil {
			t.Error(err)
		}
	}()
	away := reply{503, "the API server cannot review rights\n"}
	if r, _ := s.get(t, h, "prometheus", "/metrics"); r.status != 200 {
		t.Errorf("known user: got %v, want 200", r)
	}
	if r, header := s.get(t, h, "profiler", "/metrics"); r != away || header.Get("Retry-After") != "1" {
		t.Errorf("unknown user: got %v, want %v", r, away)
	}
	c.pass(10*time.Second + 1)
	if r, _ := s.get(t, h, "prometheus", "/metrics"); r != away {
		t.Errorf("known user, later: got %v, want %v", r, away)
	}
}
