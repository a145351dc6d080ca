package docs

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/httpfunction"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// asShown returns the published example of an answer without its sequence, which a function over HTTP cannot know, and without
// random values.
func asShown(t *testing.T, e schemas.Event) schemas.Event {
	t.Helper()
	answer := schematest.Decode[schemas.Intents](t, e)
	answer.Scope.Sequence = 0
	e.Data = expect.ToJSON(t, answer)
	e.ID, e.Source, e.Time, e.Expires, e.TraceParent = "", "", time.Time{}, time.Time{}, e.TraceParent[:35]
	return e
}

// TestFunctionsPageProgram starts the function of docs/functions.md, and asks it as that page and
// the help of the command say.
func TestFunctionsPageProgram(t *testing.T) {
	binary := expect.Value(t, program.Build)
	text, err := os.ReadFile(filepath.Join(root, "docs/functions.md"))
	expect.Must(t, err)
	help, err := exec.CommandContext(t.Context(), binary, "serve", "--help").Output()
	expect.Must(t, err)
	serve := regexp.MustCompile(`(?m)^    rehome (serve .*)$`).FindStringSubmatch(string(text))
	if serve == nil {
		t.Fatal("the page has no command that serves a function")
	}
	address := startFunction(t, binary, strings.Fields(serve[1]))
	want := asShown(t, schematest.ExampleOf(t, "intents").Event)
	for place, page := range map[string][]byte{"docs/functions.md": text, "rehome serve --help": help} {
		lines := regexp.MustCompile(`\\\n *`).ReplaceAllString(string(page), "")
		curl := regexp.MustCompile(`(?m)^ +(curl .*)127\.0\.0\.1:8080(/.*)$`).FindStringSubmatch(lines)
		if curl == nil {
			t.Fatalf("%s: no call with curl", place)
		}
		c := exec.CommandContext(t.Context(), "sh", "-c", curl[1]+address+curl[2])
		c.Dir = root
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %s: %v", place, c, err)
		}
		answer, err := schematest.Parse(out)
		if err != nil {
			t.Fatalf("%s: %v in %s", place, err, out)
		}
		if got := asShown(t, answer); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v, data %s\nwant %+v, data %s", place, got, got.Data, want, want.Data)
		}
	}
}

// startFunction starts a function as Knative does, and returns where it is ready. When the test ends it has to end by
// itself, with the exit code 0.
func startFunction(t *testing.T, binary string, arguments []string) (address string) {
	t.Helper()
	address = expect.Value(t, program.FreeAddress)
	_, port, _ := strings.Cut(address, ":")
	p, err := program.Start(binary, arguments, []string{"PORT=" + port, "K_SERVICE=taints", "K_REVISION=taints-00001"})
	expect.Must(t, err)
	t.Cleanup(func() {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := p.Err(); err != nil {
			t.Errorf("it ended with %v: %s", err, p.Log)
		}
		if line := "msg=serving service=taints revision=taints-00001 strategy="; !strings.Contains(p.Log.String(), line) {
			t.Errorf("logged %s, want %s", p.Log, line)
		}
	})
	programtest.Answers(t, p, "http://"+address+"/readyz", http.StatusOK)
	return address
}

func TestFunctionsPageDeployment(t *testing.T) {
	found := manifesttest.Objects(t, []byte(filetest.Read(t, root, "docs/examples/function-deployment.yaml")))
	if len(found) != 2 {
		t.Fatalf("got %d objects, want a Deployment and a Service", len(found))
	}
	d, s := manifesttest.Typed[appsv1.Deployment](t, found[0]), manifesttest.Typed[corev1.Service](t, found[1])
	if got, want := d.TypeMeta, (metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := s.TypeMeta, (metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	labels := d.Spec.Template.Labels
	if !reflect.DeepEqual(d.Spec.Selector.MatchLabels, labels) || !reflect.DeepEqual(s.Spec.Selector, labels) || len(labels) == 0 {
		t.Errorf("the pods have the labels %v, the Deployment selects %v, the Service %v", labels, d.Spec.Selector.MatchLabels, s.Spec.Selector)
	}
	c := d.Spec.Template.Spec.Containers[0]
	checkFunction(t, d.Spec.Template.Spec)
	if port := c.Ports[0]; s.Spec.Ports[0].TargetPort.StrVal != port.Name || c.Env[0] != (corev1.EnvVar{Name: "PORT", Value: "8080"}) || port.ContainerPort != 8080 {
		t.Errorf("the Service sends to %v, the container has %v and %v", s.Spec.Ports[0].TargetPort, port, c.Env[0])
	}
}

func TestFunctionsPageKnativeService(t *testing.T) {
	found := manifesttest.Objects(t, []byte(filetest.Read(t, root, "docs/examples/function-knative.yaml")))
	if len(found) != 1 {
		t.Fatalf("got %d objects, want one", len(found))
	}
	s := manifesttest.Typed[manifesttest.KnativeService](t, found[0])
	if got, want := s.TypeMeta, (metav1.TypeMeta{APIVersion: "serving.knative.dev/v1", Kind: "Service"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	checkFunction(t, s.Spec.Template.Spec.PodSpec)
	if got := s.Spec.Template.Spec.ContainerConcurrency; got != httpfunction.DefaultParallel {
		t.Errorf("containerConcurrency is %d, want the default of REHOME_SERVE_PARALLEL, %d", got, httpfunction.DefaultParallel)
	}
}

// checkFunction checks the pod of a function.
func checkFunction(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	if len(pod.Containers) != 1 {
		t.Fatalf("got %d containers, want one", len(pod.Containers))
	}
	c := pod.Containers[0]
	if want := []string{"serve", functions.All()[0].Strategy.Name}; !reflect.DeepEqual(c.Args, want) {
		t.Errorf("its arguments are %q, want %q", c.Args, want)
	}
	if c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("its readiness probe is %+v, want one of /readyz", c.ReadinessProbe)
	}
	if no := pod.AutomountServiceAccountToken; no == nil || *no {
		t.Error("it has the token of a service account, which it does not need")
	}
}
