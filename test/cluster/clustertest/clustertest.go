// Package clustertest starts a real control plane for a test (see package cluster).
//
// # Usage
//
//	func TestEvictedPodMoves(t *testing.T) {
//		c := clustertest.New(t, cluster.Options{})
//		...
//	}
//
// A start takes some seconds. Tests that do not disturb each other should share a control plane, each in its own namespace.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// New starts a control plane that runs until the test ends, and builds missing programs first. A failure to start fails the test;
// nothing is skipped. The test also fails if a component dies. If the test fails, New copies the logs of the components and the
// audit log to the artifact directory of the test, which "go test -artifacts" keeps.
func New(t testing.TB, options cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), options)
	expect.Must(t, err)
	t.Cleanup(func() {
		if err := c.Err(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			saveLogs(t, c)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// As returns a client of one of Options.Users, which prefers protobuf like the clients of Rehome.
func As(t testing.TB, c *cluster.Cluster, user string) kubernetes.Interface {
	t.Helper()
	config, err := c.UserConfig(user)
	expect.Must(t, err)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	expect.Must(t, err)
	return client
}

// Intercept gives each request of the clients of a config to a function. The function passes it on to the API server with next, or
// does not.
func Intercept(config *rest.Config, handle func(r *http.Request, next http.RoundTripper) (*http.Response, error)) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return handle(r, next) })
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// FailedCreates returns the Kubernetes Events of controllers that could not create a pod in a namespace. It omits the ones about a
// quota that changed at the same moment, because the controller tries again.
func FailedCreates(t testing.TB, c *cluster.Cluster, namespace string) (all []string) {
	t.Helper()
	list, err := c.Client().EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	expect.Must(t, err)
	for _, e := range list.Items {
		if e.Reason == "FailedCreate" && !strings.Contains(e.Note, "Operation cannot be fulfilled on resourcequotas ") {
			all = append(all, fmt.Sprintf("%s %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Note))
		}
	}
	return all
}

// Shared is a control plane that the tests of a package share. The first test that asks for it starts it: Go notices changes of
// files such as deploy/crds only if a test has read them. It is safe for concurrent use.
type Shared struct {
	// Start starts the control plane and adds what all tests need. With an error, it returns what must be stopped, or nil.
	Start func(context.Context) (*cluster.Cluster, error)

	once    sync.Once
	cluster *cluster.Cluster
	err     error
}

// Cluster returns the control plane. It ends the test if the control plane did not start.
func (s *Shared) Cluster(t testing.TB) *cluster.Cluster {
	t.Helper()
	s.once.Do(func() { s.cluster, s.err = s.Start(context.Background()) })
	expect.Must(t, s.err)
	return s.cluster
}

// Main runs the tests of a package, from its TestMain, and stops the control plane.
func (s *Shared) Main(m *testing.M) (code int) {
	defer func() {
		if s.cluster != nil {
			_ = s.cluster.Stop()
		}
	}()
	return m.Run()
}

// saveLogs copies the logs of a failed test, unless the test has stopped the cluster itself.
func saveLogs(t testing.TB, c *cluster.Cluster) {
	if _, err := os.Stat(c.Dir()); errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := os.CopyFS(filepath.Join(t.ArtifactDir(), "control-plane"), os.DirFS(c.LogDir())); err != nil {
		t.Errorf("keep the logs: %v", err)
	}
	audit, err := os.ReadFile(c.AuditLog())
	if err == nil {
		err = os.WriteFile(filepath.Join(t.ArtifactDir(), filepath.Base(c.AuditLog())), audit, 0o644)
	}
	if err != nil {
		t.Errorf("keep the audit log: %v", err)
	}
}
