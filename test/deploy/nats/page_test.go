package nats

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// scaledObjects is a minimal CRD for a ScaledObject. test/deploy validates ScaledObjects with the CRD of KEDA.
const scaledObjects = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": {"name": "scaledobjects.keda.sh"},
	"spec": {"group": "keda.sh", "scope": "Namespaced",
		"names": {"kind": "ScaledObject", "listKind": "ScaledObjectList", "plural": "scaledobjects", "singular": "scaledobject"},
		"versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
			"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}}`

// commands returns the commands of a section of the page, including continuation lines.
func commands(t *testing.T, section string) []string {
	t.Helper()
	text := filetest.Read(t, root, "docs/install.md")
	_, rest, found := strings.Cut(text, "\n## "+section+"\n")
	if !found {
		t.Fatalf("the page has no section %s", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^    (\S.*(?:\n      .*)*)`).FindAllStringSubmatch(rest, -1) {
		all = append(all, m[1])
	}
	if len(all) == 0 {
		t.Fatalf("section %s has no command", section)
	}
	return all
}

// TestInstallPageNATSAndKEDACommands types them in the order of the page, in a folder beside deploy.
func TestInstallPageNATSAndKEDACommands(t *testing.T) {
	s, dir := newStage(t), t.TempDir()
	deploy, err := filepath.Abs(filepath.Join(root, "deploy"))
	expect.Must(t, err)
	if err := os.Symlink(deploy, filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, strings.NewReader(scaledObjects), "apply", "-f", "-")
	s.kubectl(t, nil, "wait", "--for=condition=Established", "crd/scaledobjects.keda.sh", "--timeout", patience.String())
	for _, command := range append(commands(t, "A NATS cluster"), commands(t, "KEDA")...) {
		c := exec.CommandContext(t.Context(), "sh", "-e", "-c", command)
		c.Dir = dir
		c.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig(),
			"PATH="+filepath.Dir(s.rehome)+":"+filepath.Dir(s.cluster.Kubectl())+":"+os.Getenv("PATH"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v\n%s", command, err, out)
		}
	}
	client := s.cluster.Client()
	secret, err := client.CoreV1().Secrets(namespace).Get(t.Context(), "rehome-nats-sender-batch", metav1.GetOptions{})
	expect.Must(t, err)
	for _, name := range []string{"nkey", "ca.crt", "tls.crt", "tls.key"} {
		if len(secret.Data[name]) == 0 {
			t.Errorf("the Secret of the sender has no %s", name)
		}
	}
	set, err := client.AppsV1().StatefulSets(namespace).Get(t.Context(), "rehome-nats", metav1.GetOptions{})
	expect.Must(t, err)
	if set.Status.ReadyReplicas != 3 || set.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		t.Errorf("%d servers are ready, restarted at %q", set.Status.ReadyReplicas,
			set.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"])
	}
	s.kubectl(t, nil, "-n", namespace, "get", "scaledobjects.keda.sh", "rehome-functions")
}

// TestUnrestrictedPodRejection makes sure that the API server holds the servers to that level.
func TestUnrestrictedPodRejection(t *testing.T) {
	_, err := newStage(t).cluster.Client().CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted:latest"`) {
		t.Errorf("got %v, want that it violates the level", err)
	}
}
