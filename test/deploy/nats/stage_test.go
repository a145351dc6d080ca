package nats

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

const (
	// root is where the files of the repository are.
	root = "../../.."
	// component is the folder with the manifests, from there.
	component = "deploy/kustomize/components/nats"
	// namespace is where the manifests put everything.
	namespace = "rehome"
	// patience is the time limit of each wait. It does not measure speed.
	patience = 60 * time.Second
)

// stage is what all tests share.
type stage struct {
	cluster            *cluster.Cluster
	rehome, natsServer string
}

var shared = clustertest.Shared{Start: func(ctx context.Context) (*cluster.Cluster, error) {
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return nil, err
	}
	return c, furnish(ctx, c)
}}

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// furnish creates nodes in three zones, volumes for the servers, and the namespace of Rehome, which has the Pod Security level
// restricted.
func furnish(ctx context.Context, c *cluster.Cluster) error {
	if _, err := c.AddNodes(ctx, 3); err != nil {
		return err
	}
	if err := c.AddVolumes(ctx, 3, ""); err != nil {
		return err
	}
	if err := c.AddNamespace(ctx, namespace); err != nil {
		return err
	}
	patch := `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}}}`
	_, err := c.Client().CoreV1().Namespaces().Patch(ctx, namespace, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	return err
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{shared.Cluster(t), expect.Value(t, program.Build), expect.Value(t, program.BuildNATS)}
}

// kubectl runs the real kubectl against the cluster, and returns what it prints.
func (s *stage) kubectl(t *testing.T, stdin io.Reader, arguments ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), s.cluster.Kubectl(), arguments...)
	c.Dir, c.Stdin, c.Env = root, stdin, append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig())
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, &complaint)
	}
	return string(out)
}

// keys runs rehome auth, and returns what it prints.
func (s *stage) keys(t *testing.T, verb, auth string, arguments ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), s.rehome, append([]string{"auth", verb, auth}, arguments...)...)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		t.Fatalf("rehome auth %s: %v\n%s", verb, err, &complaint)
	}
	return string(out)
}
