package nats

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/program"
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

// theStage is set by TestMain, before any test, and not changed.
var theStage func() (*stage, error)

func TestMain(m *testing.M) { os.Exit(perform(m)) }

func perform(m *testing.M) int {
	var started *cluster.Cluster
	theStage = sync.OnceValues(func() (*stage, error) {
		s := &stage{}
		var err error
		if s.rehome, err = program.Build(); err != nil {
			return nil, err
		}
		if s.natsServer, err = program.BuildNATS(); err != nil {
			return nil, err
		}
		if started, err = cluster.Start(context.Background(), cluster.Options{}); err != nil {
			return nil, err
		}
		s.cluster = started
		return s, s.furnish()
	})
	defer func() {
		if started != nil {
			_ = started.Stop()
		}
	}()
	return m.Run()
}

// furnish creates nodes in three zones, volumes for the servers, and the namespace of Rehome, which has the Pod Security level
// restricted.
func (s *stage) furnish() error {
	ctx := context.Background()
	if _, err := s.cluster.AddNodes(ctx, 3); err != nil {
		return err
	}
	for i := range 3 {
		if _, err := s.cluster.Client().CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("disk-%d", i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/disk"},
				},
			},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := s.cluster.AddNamespace(ctx, namespace); err != nil {
		return err
	}
	patch := `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}}}`
	_, err := s.cluster.Client().CoreV1().Namespaces().Patch(ctx, namespace, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	return err
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s, err := theStage()
	if err != nil {
		t.Fatal(err)
	}
	return s
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
