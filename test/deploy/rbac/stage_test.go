package rbac

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

const (
	// folder has the tested manifests.
	folder = "../../../deploy/kustomize/rbac"
	// namespace is where Rehome is deployed.
	namespace = "rehome"
)

// auditPolicy logs every request of service accounts with its user.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, userGroups: [system:serviceaccounts]}
- {level: None}
`

// stage is what all scenes share: a control plane, and the program.
type stage struct {
	*cluster.Cluster
	client kubernetes.Interface
	rehome string // the program
	dir    string
}

// newStage starts a control plane whose API server does not stream lists, like many. Listing and watching are then separate
// rights.
func newStage(t *testing.T) *stage {
	t.Helper()
	dir := filetest.ShortDir(t)
	binary := expect.Value(t, program.Build)
	policy := filepath.Join(dir, "audit.yaml")
	filetest.Write(t, policy, auditPolicy)
	c := clustertest.New(t, cluster.Options{
		APIServerFlags: []string{"--audit-policy-file=" + policy, "--feature-gates=WatchList=false"},
	})
	s := &stage{Cluster: c, client: c.Client(), rehome: binary, dir: dir}
	expect.Must(t, c.AddKinds(t.Context()))
	expect.Must(t, c.ServeMetrics(t.Context()))
	expect.Must(t, c.AddEvictionRequests(t.Context()))
	expect.Must(t, c.AddNamespace(t.Context(), namespace))
	return s
}

// kubectl runs the real one as the administrator.
func (s *stage) kubectl(ctx context.Context, stdin []byte, arguments ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	command := s.KubectlCommand(ctx, arguments...)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, &stderr)
	}
	return stdout.Bytes(), nil
}

// apply renders folders, applies what comes of it, and reads it.
func (s *stage) apply(t *testing.T, folders ...string) manifests {
	t.Helper()
	var all bytes.Buffer
	for _, f := range folders {
		text, err := s.kubectl(t.Context(), nil, "kustomize", filepath.Join(folder, f))
		expect.Must(t, err)
		_, err = s.kubectl(t.Context(), text, "apply", "--server-side", "--validate=strict", "-f", "-")
		expect.Must(t, err)
		fmt.Fprintf(&all, "---\n%s", text)
	}
	m, err := read(all.Bytes())
	expect.Must(t, err)
	return m
}

// token makes a token of a service account, as a pod of it has one.
func (s *stage) token(ctx context.Context, namespace, account string) (string, error) {
	request, err := s.client.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of %s/%s: %w", namespace, account, err)
	}
	return request.Status.Token, nil
}

// kubeconfig writes a kubeconfig that has nothing but the token of a service account, and returns the setting that names it.
func (s *stage) kubeconfig(ctx context.Context, namespace, account string) (string, error) {
	path, err := s.AccountKubeconfig(ctx, s.dir, namespace, account)
	return "KUBECONFIG=" + path, err
}

// nowhere is the setting of a process without a token.
const nowhere = "KUBECONFIG=/nonexistent"

// until waits until so returns true. The text of so describes the current state.
func until(ctx context.Context, what string, so func() (bool, string)) error {
	deadline := time.After(expect.Patience)
	for {
		is, seen := so()
		if is {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			return fmt.Errorf("waited %v until %s: %s", expect.Patience, what, seen)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
