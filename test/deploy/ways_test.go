package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// way is one way of installing.
type way struct {
	name string
	// folder is below deploy/kustomize. Components are added by a user's kustomization, as in docs/install.md.
	folder     string
	components []string
	rights     []string // below deploy/kustomize/rbac, that the components need
}

// ways are all that are documented: the folders, and each component where it fits, alone and with all the others.
var ways = []way{
	{name: "one process", folder: "base"},
	{name: "one process with a volume", folder: "overlays/pvc"},
	{name: "one process over TLS", folder: "base", components: []string{"tls"}},
	{name: "one process with guarded metrics", folder: "base", components: []string{"guarded-metrics"}, rights: []string{"requests"}},
	{name: "one process that takes requests", folder: "base", components: []string{"requests"}, rights: []string{"requests"}},
	{name: "one process without optional features", folder: "base", components: []string{"without-maintenance", "without-restart"}},
	{name: "one process with functions of Knative", folder: "base", components: []string{"knative"}},
	{
		name: "one process with everything", folder: "overlays/pvc", components: []string{"guarded-metrics", "requests", "knative"},
		rights: []string{"requests"},
	},
	{name: "one process with servers of NATS", folder: "base", components: []string{"nats", "nats-all"}},
	{name: "one process with monitoring", folder: "base", components: []string{"monitoring"}},
	{name: "each role by itself", folder: "overlays/distributed"},
	{name: "functions that KEDA scales", folder: "overlays/distributed", components: []string{"keda"}},
	{
		name: "each role by itself with guarded metrics", folder: "overlays/distributed", components: []string{"guarded-metrics"},
		rights: []string{"guarded-metrics"},
	},
	{
		name: "each role by itself, with requests", folder: "overlays/distributed", components: []string{"api", "requests"},
		rights: []string{"api", "requests"},
	},
	{name: "functions of Knative", folder: "overlays/knative"},
	{
		name: "each role by itself with everything", folder: "overlays/knative", components: []string{"api", "guarded-metrics", "requests", "keda", "monitoring"},
		rights: []string{"api", "requests", "guarded-metrics"},
	},
	{name: "now and then", folder: "overlays/cronjob"},
}

func TestFolderCoverage(t *testing.T) {
	tested := map[string]bool{}
	for _, w := range ways {
		tested[w.folder] = true
	}
	folders, err := filepath.Glob(filepath.Join(root, "deploy/kustomize/overlays/*/kustomization.yaml"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("got %d overlays, error %v", len(folders), err)
	}
	for _, file := range folders {
		if name := "overlays/" + filepath.Base(filepath.Dir(file)); !tested[name] {
			t.Errorf("%s is no way of installing that is tested", name)
		}
	}
}

// folderOf is where kubectl finds a way: a folder of the repository, or one beside a copy of deploy with a kustomization.
func (w way) folderOf(t *testing.T) string {
	t.Helper()
	if len(w.components) == 0 {
		return filepath.Join(root, "deploy/kustomize", w.folder)
	}
	dir, err := copied()
	expect.Must(t, err)
	mine := filepath.Join(dir, "mine", strings.NewReplacer(" ", "-", ",", "").Replace(w.name))
	if err := os.MkdirAll(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "resources:\n- ../../deploy/kustomize/" + w.folder + "\n"
	for _, r := range w.rights {
		text += "- ../../deploy/kustomize/rbac/" + r + "\n"
	}
	text += "components:\n"
	for _, c := range w.components {
		text += "- ../../deploy/kustomize/components/" + c + "\n"
	}
	filetest.Write(t, filepath.Join(mine, "kustomization.yaml"), text)
	return mine
}

// copied is a folder with a copy of deploy, so that nothing is written into the repository.
var copied = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(dir, "copy")
	return dir, os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy")))
})

// render is what kubectl makes of a way. Each is rendered once.
func render(t *testing.T, w way) []*unstructured.Unstructured {
	t.Helper()
	rendering.Lock()
	defer rendering.Unlock()
	if rendering.of[w.name] == nil {
		text, err := rendered(t, w.folderOf(t))
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		rendering.of[w.name] = manifesttest.Objects(t, text)
	}
	return rendering.of[w.name]
}

var rendering = struct {
	sync.Mutex
	of map[string][]*unstructured.Unstructured
}{of: map[string][]*unstructured.Unstructured{}}

func rendered(t *testing.T, folder string) ([]byte, error) {
	t.Helper()
	path, err := kubectlPath()
	if err != nil {
		return nil, err
	}
	var complaint bytes.Buffer
	c := exec.CommandContext(t.Context(), path, "kustomize", folder)
	c.Stderr = &complaint
	text, err := c.Output()
	if err == nil && complaint.Len() > 0 {
		err = errors.New("kubectl kustomize warns")
	}
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &complaint)
	}
	return text, nil
}

// of are the objects of a kind as their Go type.
func of[T any](t *testing.T, kind string, objects []*unstructured.Unstructured) (all []T) {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && !isKnative(o) {
			all = append(all, manifesttest.Typed[T](t, o))
		}
	}
	return all
}

func isKnative(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetAPIVersion(), "serving.knative.dev/")
}

// workload is an object that creates pods.
type workload struct {
	kind, name string
	selector   *metav1.LabelSelector // nil: it selects by itself
	pods       corev1.PodTemplateSpec
}

// workloads returns the workloads among objects, in order.
func workloads(t *testing.T, objects []*unstructured.Unstructured) (all []workload) {
	t.Helper()
	for _, o := range objects {
		switch kind := o.GetKind(); {
		case isKnative(o):
			s := manifesttest.Typed[manifesttest.KnativeService](t, o)
			pods := corev1.PodTemplateSpec{ObjectMeta: s.Spec.Template.ObjectMeta, Spec: s.Spec.Template.Spec.PodSpec}
			all = append(all, workload{"knative", o.GetName(), nil, pods})
		case kind == "Deployment":
			d := manifesttest.Typed[appsv1.Deployment](t, o)
			all = append(all, workload{kind, o.GetName(), d.Spec.Selector, d.Spec.Template})
		case kind == "StatefulSet":
			s := manifesttest.Typed[appsv1.StatefulSet](t, o)
			for _, c := range s.Spec.VolumeClaimTemplates { // its controller adds them
				s.Spec.Template.Spec.Volumes = append(s.Spec.Template.Spec.Volumes, corev1.Volume{Name: c.Name})
			}
			all = append(all, workload{kind, o.GetName(), s.Spec.Selector, s.Spec.Template})
		case kind == "Job":
			all = append(all, workload{kind, o.GetName(), nil, manifesttest.Typed[batchv1.Job](t, o).Spec.Template})
		case kind == "CronJob":
			all = append(all, workload{kind, o.GetName(), nil, manifesttest.Typed[batchv1.CronJob](t, o).Spec.JobTemplate.Spec.Template})
		}
	}
	if len(all) == 0 {
		t.Fatal("nothing makes pods")
	}
	return all
}

// inEveryWay runs a test for each way.
func inEveryWay(t *testing.T, test func(t *testing.T, objects []*unstructured.Unstructured)) {
	t.Helper()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { test(t, render(t, w)) })
	}
}
