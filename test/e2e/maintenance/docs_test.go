package maintenance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/pages"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// TestMaintenanceWalkthrough runs the commands of docs/maintenance.md unchanged, with kubectl and `rehome run` on a
// separate control plane, and compares the output with the page. It repeats commands that only read until they show the expected
// output, and runs all others once.
func TestMaintenanceWalkthrough(t *testing.T) {
	w := newWalkthrough(t)
	for i, s := range shown(t, "../../../docs/maintenance.md", "An example: a rack without power") {
		w.step(i+1, s)
	}
	if w.rehome == nil {
		t.Fatal("the page does not start rehome")
	}
	if code := w.rehome.Stop(); code != 0 {
		t.Errorf("rehome ended with code %d, want 0", code)
	}
}

// shown returns the commands of a section of a page.
func shown(t *testing.T, file, section string) []pages.Typed {
	t.Helper()
	text := filetest.Read(t, file)
	for _, s := range pages.Sections(text) {
		if s.Title != section {
			continue
		}
		list := pages.Console(s.Text)
		if len(list) < 10 {
			t.Fatalf("%s has %d commands in the section %q, want at least 10", file, len(list), section)
		}
		return list
	}
	t.Fatalf("%s has no section %q", file, section)
	return nil
}

// walkthrough is a cluster with an application, and a user who runs commands.
type walkthrough struct {
	t           expect.T
	cluster     *cluster.Cluster
	environment []string
	rehome      *scene.Process
}

// newWalkthrough creates the cluster of the page: two racks of two nodes. Rack 7 runs two carts, a database with one replica, and a
// budget that requires the database. Every node runs the agent of a DaemonSet.
func newWalkthrough(t *testing.T) *walkthrough {
	t.Helper()
	w := &walkthrough{t: expect.T{TB: t}, cluster: clustertest.New(t, cluster.Options{})}
	w.environment = append(os.Environ(), "KUBECONFIG="+w.cluster.Kubeconfig(), "REHOME_STORE_DIR="+filetest.ShortDir(t),
		"PATH="+filepath.Dir(w.cluster.Kubectl())+":"+os.Getenv("PATH"))
	racks := map[string][]string{"7": {"worker-7a", "worker-7b"}, "8": {"worker-8a", "worker-8b"}}
	for _, rack := range []string{"7", "8"} {
		for _, name := range racks[rack] {
			_, err := w.cluster.AddNodes(t.Context(), 1, func(n *corev1.Node) {
				n.Name, n.Labels[corev1.LabelHostname], n.Spec.Unschedulable = name, name, rack == "8"
			})
			w.t.Must(err)
		}
	}
	w.shop()
	for _, name := range racks["8"] {
		w.t.Must(w.cluster.PatchNode(t.Context(), name, `{"spec":{"unschedulable":null}}`))
	}
	return w
}

// shop starts the application on the nodes that are not cordoned.
func (w *walkthrough) shop() {
	ctx := w.t.Context()
	_, err := w.cluster.AddDeployment(ctx, "shop", "cart", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}},
			}},
		}}
	})
	w.t.Must(err)
	w.t.Must(w.cluster.WaitReady(ctx, "shop", "cart"))
	w.db()
	agent := scene.PodTemplate("agent")
	_, err = w.cluster.Client().AppsV1().DaemonSets("shop").Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: agent.Labels}, Template: agent},
	}, metav1.CreateOptions{})
	w.t.Must(err)
	_, err = w.cluster.WaitPods(ctx, "shop", "", "all pods of the shop run", func(pods []*corev1.Pod) bool {
		running := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		return len(running) == 2+1+4
	})
	w.t.Must(err)
}

// db starts the database, on worker-7a if possible, and its budget.
func (w *walkthrough) db() {
	pods, one, whole := scene.PodTemplate("db"), int32(1), intstr.FromInt32(1)
	selector := &metav1.LabelSelector{MatchLabels: pods.Labels}
	scene.PreferNode("worker-7a")(&pods)
	_, err := w.cluster.Client().AppsV1().StatefulSets("shop").Create(w.t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       appsv1.StatefulSetSpec{Replicas: &one, Selector: selector, Template: pods},
	}, metav1.CreateOptions{})
	w.t.Must(err)
	_, err = w.cluster.Client().PolicyV1().PodDisruptionBudgets("shop").Create(w.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &whole, Selector: selector},
	}, metav1.CreateOptions{})
	w.t.Must(err)
}

// step runs one command.
func (w *walkthrough) step(number int, s pages.Typed) {
	w.t.Helper()
	words := strings.Fields(s.Command)
	said, err := "", error(nil)
	defer func() {
		if os.Getenv("SHOW") != "" {
			w.t.Logf("$ %s\n%s", s.Command, said)
		}
	}()
	switch {
	case len(words) > 1 && words[0] == "bin/rehome" && words[1] == "run":
		w.run(words[1:])
	case words[0] != "kubectl":
		w.t.Fatalf("%d. %s: only kubectl is typed, and rehome run", number, s.Command)
	case slices.Contains([]string{"get", "describe", "events", "explain"}, words[1]):
		w.rehomeLives()
		expect.EventuallyWithState(w.t, fmt.Sprintf("%d. %s", number, s.Command), func() (bool, string) {
			said, err = w.types(s.Command)
			return err == nil && alike(s.Prints, said), fmt.Sprintf("%v\n%s\nwant\n%s", err, said, strings.Join(s.Prints, "\n"))
		})
	default:
		if said, err = w.types(s.Command); err != nil || !alike(s.Prints, said) {
			w.t.Fatalf("%d. %s: %v\n%s\nwant\n%s", number, s.Command, err, said, strings.Join(s.Prints, "\n"))
		}
	}
}

// types runs a command in the root of the repository, and returns its output.
func (w *walkthrough) types(command string) (string, error) {
	c := exec.CommandContext(w.t.Context(), "sh", "-c", command)
	c.Dir, c.Env = "../../..", w.environment
	said, err := c.CombinedOutput()
	return string(said), err
}

// run starts rehome, which the page does in another terminal.
func (w *walkthrough) run(words []string) {
	w.t.Helper()
	for i, word := range words {
		if strings.HasSuffix(word, ".yaml") {
			words[i] = "../../../" + word
		}
	}
	w.rehome = &scene.Process{Program: programtest.Start(w.t, expect.Value(w.t, program.Build), words, w.environment), T: w.t}
	w.rehome.WaitReady()
}

func (w *walkthrough) rehomeLives() {
	w.t.Helper()
	if w.rehome == nil {
		return
	}
	select {
	case <-w.rehome.Ended:
		w.t.Fatalf("rehome ended: %v", w.rehome.Err())
	default:
	}
}

// alike reports whether the output of a command equals the output on the page.
func alike(page []string, printed string) bool {
	return pages.Masks{Workloads: []string{"cart", "agent"}}.Alike(page, printed)
}
