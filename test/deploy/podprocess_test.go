package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
)

// pods are processes that run as the pods of Deployments would.
type pods struct {
	of map[string]*podProcess // by Deployment
}

// podProcess is the program, started with the arguments, the environment and the files of the pods of a Deployment, and the token
// of their service account.
type podProcess struct {
	*program.Program
	environment []string
}

// exec runs a command of rehome as kubectl exec would, beside the process of the Deployment, which is started first if it is not
// running yet. It returns what the command prints, once the process is ready.
func (p *pods) exec(t *testing.T, deployment string, arguments []string) (string, error) {
	t.Helper()
	running := p.of[deployment]
	if running == nil {
		running = startPod(t, deployment)
		p.of[deployment] = running
	}
	expect.EventuallyWithState(t, deployment+" is ready", func() (bool, string) {
		select {
		case <-running.Ended:
			t.Fatalf("%s ended: %v\n%s", deployment, running.Err(), running.Log)
		default:
		}
		status, text := running.Get("readyz")
		return status == 200, text + running.Log.String()
	})
	c := exec.CommandContext(t.Context(), expect.Value(t, program.Build), arguments...)
	c.Env = running.environment
	said, err := c.CombinedOutput()
	return string(said), err
}

// stop ends all processes.
func (p *pods) stop() {
	for _, running := range p.of {
		running.Kill()
	}
}

// startPod starts what a pod of a Deployment would run.
func startPod(t *testing.T, deployment string) *podProcess {
	t.Helper()
	d, err := shared.Cluster(t).Client().AppsV1().Deployments(namespace).Get(t.Context(), deployment, metav1.GetOptions{})
	expect.Must(t, err)
	dir := filepath.Join(dir, string(d.UID)[:8]) // short: a socket is in it
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	spec := d.Spec.Template.Spec
	container := spec.Containers[0]
	places := mount(t, dir, spec)
	kubeconfig, err := shared.Cluster(t).AccountKubeconfig(t.Context(), dir, namespace, spec.ServiceAccountName)
	expect.Must(t, err)
	environment := []string{"REHOME_NAMESPACE=" + namespace, "REHOME_KUBECONFIG=" + kubeconfig}
	for _, v := range container.Env {
		if v.Name != "REHOME_HTTP_ADDRESS" { // which would be the same for all pods
			environment = append(environment, v.Name+"="+placed(places, v.Value))
		}
	}
	return &podProcess{programtest.Start(t, expect.Value(t, program.Build), container.Args, environment), append(os.Environ(), environment...)}
}

// mount writes the files of a pod below dir and returns where each mount path is.
func mount(t *testing.T, dir string, spec corev1.PodSpec) map[string]string {
	t.Helper()
	client, places := shared.Cluster(t).Client().CoreV1(), map[string]string{}
	for _, v := range spec.Volumes {
		at := filepath.Join(dir, v.Name)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		switch {
		case v.ConfigMap != nil:
			m, err := client.ConfigMaps(namespace).Get(t.Context(), v.ConfigMap.Name, metav1.GetOptions{})
			expect.Must(t, err)
			for name, text := range m.Data {
				files[name] = []byte(text)
			}
		case v.Secret != nil:
			s, err := client.Secrets(namespace).Get(t.Context(), v.Secret.SecretName, metav1.GetOptions{})
			expect.Must(t, err)
			files = s.Data
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(at, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range spec.Containers[0].VolumeMounts {
			if m.Name == v.Name {
				places[m.MountPath] = at
			}
		}
	}
	return places
}

// placed is a value of the environment with the path of a mount replaced by where it is.
func placed(places map[string]string, value string) string {
	for path, at := range places {
		if rest, is := strings.CutPrefix(value, path); is && (rest == "" || strings.HasPrefix(rest, "/")) {
			return at + rest
		}
	}
	return value
}
