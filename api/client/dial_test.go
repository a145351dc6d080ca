package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rehome-dev/rehome/status"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// rehomePod creates a running pod of an installation.
func rehomePod(t *testing.T, c *cluster.Cluster, namespace, name, component string) {
	t.Helper()
	pods := c.Client().CoreV1().Pods(namespace)
	w, err := pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	expect.Must(t, err)
	defer w.Stop()
	_, err = pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"app.kubernetes.io/part-of": "rehome", labelComponent: component,
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "rehome", Image: "rehome"}}},
	}, metav1.CreateOptions{})
	expect.Must(t, err)
	for e := range w.ResultChan() {
		if p, is := e.Object.(*corev1.Pod); is && e.Type != watch.Deleted && p.Status.Phase == corev1.PodRunning && unready(*p) == 0 {
			return
		}
	}
	t.Fatalf("pod %s/%s does not run", namespace, name)
}

func newNamespace(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	if _, err := c.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// echo serves the method, the path, and the body of each request, and large bodies as they come.
func echo(address string) (*http.Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s ", r.Method, r.URL.Path)
		_, _ = io.Copy(w, r.Body)
	})}
	go func() { _ = s.Serve(l) }()
	return s, nil
}

func TestPodDialer(t *testing.T) {
	address := expect.Value(t, program.FreeAddress)
	c := clustertest.New(t, cluster.Options{ForwardTo: address})
	if _, err := c.AddNodes(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	find := func(ctx context.Context) (types.NamespacedName, error) {
		return FindPod(ctx, c.Client(), Search{Leases: "kube-system"})
	}
	if _, err := find(t.Context()); !errors.Is(err, ErrNoPod) {
		t.Errorf("without a pod: %v, want ErrNoPod", err)
	}
	newNamespace(t, c, "rehome")
	rehomePod(t, c, "rehome", "rehome-1", "all")
	dialer := &PodDialer{Config: c.RESTConfig(), Find: find, Port: LocalPort}
	defer func() { _ = dialer.Close() }()
	web := &http.Client{Transport: &http.Transport{DialContext: dialer.Dial}}
	ask := func(body string) (string, error) {
		answer, err := web.Post("http://localhost/path", "text/plain", strings.NewReader(body))
		if err != nil {
			return "", err
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	if _, err := ask(""); err == nil || !strings.Contains(err.Error(), "port 8644 of pod rehome/rehome-1: ") ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nothing listens: %v", err)
	}
	conn, err := dialer.Dial(t.Context(), "", "")
	expect.Must(t, err)
	defer func() { _ = conn.Close() }()
	_, failed := conn.Read(make([]byte, 1))
	if _, err := conn.Write([]byte("late")); fmt.Sprint(err) != fmt.Sprint(failed) || !strings.Contains(fmt.Sprint(failed), "connection refused") {
		t.Errorf("a read ended with %v, a later write with %v", failed, err)
	}
	for _, size := range []int{10, 5 << 20} { // a second server on the same connection to the pod
		s, err := echo(address)
		expect.Must(t, err)
		body := strings.Repeat("x", size)
		if got, err := ask(body); err != nil || got != "POST /path "+body {
			t.Errorf("%d bytes: got %d bytes, error %v", size, len(got), err)
		}
		_ = s.Close()
		web.CloseIdleConnections()
	}

	t.Run("the pod is replaced", func(t *testing.T) {
		s, err := echo(address)
		expect.Must(t, err)
		defer func() { _ = s.Close() }()
		rehomePod(t, c, "rehome", "rehome-2", "api")
		now := int64(0)
		err = c.Client().CoreV1().Pods("rehome").Delete(t.Context(), "rehome-1", metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err == nil {
			err = dialer.Close()
		}
		expect.Must(t, err)
		if got, err := ask("again"); err != nil || got != "POST /path again" || dialer.pod.Name != "rehome-2" {
			t.Errorf("got %q from %s, error %v", got, dialer.pod, err)
		}
	})

	t.Run("several installations", func(t *testing.T) {
		newNamespace(t, c, "other")
		rehomePod(t, c, "other", "rehome-3", "all")
		const want = "several installations of Rehome: other, rehome; choose one with REHOME_NAMESPACE"
		if _, err := find(t.Context()); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		got, err := FindPod(t.Context(), c.Client(), Search{Namespace: "other"})
		if want := (types.NamespacedName{Namespace: "other", Name: "rehome-3"}); err != nil || got != want {
			t.Errorf("got %s, error %v, want %s", got, err, want)
		}
	})
}

// serveOn serves h at a free address.
func serveOn(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	c, err := New(Config{Server: "http://" + l.Addr().String()})
	expect.Must(t, err)
	return c
}

func TestProblems(t *testing.T) {
	c := serveOn(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"title":"Conflict","status":409,"detail":"a request is open","errors":[{"message":"m","location":"l"}]}`)
	})
	err := c.State(t.Context(), &State{Status: status.Status{}})
	want := "the API at " + c.base.Host + ": status 409: a request is open; l: m"
	if err == nil || err.Error() != want || !errors.Is(err, ErrConflict) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestTokensNeedTLS(t *testing.T) {
	for server, want := range map[string]string{
		"http://127.0.0.1:1": "", "https://rehome.example/base": "",
		"http://rehome.example": `server: want https with a token, got "http://rehome.example"`,
		"rehome.example":        `server: want a URL such as https://rehome.example:8645, got "rehome.example"`,
		"https://u:p@example":   `server: want a URL such as https://rehome.example:8645, got "https://u:p@example"`,
	} {
		_, err := New(Config{Server: server, TokenFile: "token"})
		if got := fmt.Sprint(err); err != nil && got != want || err == nil && want != "" {
			t.Errorf("%s: got %v, want %s", server, err, want)
		}
	}
}
