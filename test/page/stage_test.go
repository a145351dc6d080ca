package page

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
)

// stage is a control plane with pods, and Rehome.
type stage struct {
	expect.T
	cluster *cluster.Cluster
	client  kubernetes.Interface
	nodes   []string
	rehome  string // path of the binary
	store   string
	address string // of the API
	running *program.Program
}

// workloads are the Deployments, with the number of their pods.
var workloads = []struct {
	namespace, name string
	pods            int
	cpu             string
}{
	{"shop", "web", 34, "1"}, {"shop", "checkout", 18, "2"}, {"shop", "payments", 3, "4"}, {"search", "frontend", 22, "1"},
	{"search", "indexer", 12, "3"}, {"data", "ingest", 16, "2"}, {"data", "reports", 8, "1"}, {"platform", "gateway", 14, "1"},
}

// newStage makes 18 nodes and 127 pods, and starts Rehome. The budget of payments allows no disruption.
func newStage(t *testing.T) *stage {
	t.Helper()
	c := clustertest.New(t, cluster.Options{})
	s := &stage{T: expect.T{TB: t}, cluster: c, client: c.Client(), rehome: expect.Value(t, program.Build)}
	var err error
	s.nodes, err = c.AddNodes(t.Context(), 18)
	s.Must(err)
	for _, w := range workloads {
		_, err := c.AddDeployment(t.Context(), w.namespace, w.name, w.pods, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(w.cpu), corev1.ResourceMemory: resource.MustParse("4Gi"),
			}
		})
		s.Must(err)
	}
	for _, w := range workloads {
		s.Must(c.WaitReady(t.Context(), w.namespace, w.name))
	}
	s.budget("payments", 3)
	s.store = filetest.ShortDir(t)
	s.address = expect.Value(s, program.FreeAddress)
	s.start()
	return s
}

// budget makes or changes the budget of a Deployment in the namespace shop, and waits until it is counted.
func (s *stage) budget(name string, least int32) {
	s.Helper()
	_, err := s.cluster.AddBudget(s.Context(), "shop", name, name, policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(least))})
	s.Must(err)
}

// start starts Rehome, and waits until it leads and the page is there.
func (s *stage) start() {
	s.Helper()
	policy := filetest.Read(s, "../../deploy/policy.yaml")
	file := filepath.Join(s.store, "policy.yaml")
	text := strings.Replace(policy, "apiVersion: descheduler/v1alpha2", "apiVersion: rehome.dev/v1alpha1", 1)
	filetest.Write(s, file, text+"maintenance: {restart: false}\n")
	running := programtest.Start(s, s.rehome, []string{"run", "--policy", file}, s.environment())
	s.running = running
	expect.Eventually(s, "rehome leads", func() bool {
		status, _ := running.Get("readyz")
		return status == http.StatusOK && strings.Contains(running.Log.String(), "leading: evaluating everything")
	})
}

func (s *stage) environment() []string {
	return []string{
		"KUBECONFIG=" + s.cluster.Kubeconfig(), "REHOME_LEASE_DURATION=3s", "REHOME_CLUSTER=production-eu", "REHOME_STORE_DIR=" + s.store,
		"REHOME_API_LOCAL=" + s.address,
	}
}

// page is the address of the page.
func (s *stage) page() string { return "http://" + s.address + "/" }

// command starts a command of rehome, which ends with the part of the test at the latest.
func (s *stage) command(arguments ...string) {
	s.Helper()
	c := exec.CommandContext(s.Context(), s.rehome, arguments...)
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), s.environment()...), s.Output(), s.Output()
	s.Must(c.Start())
	s.Cleanup(func() { _ = c.Wait() })
}

func (s *stage) taint(node string) {
	s.Helper()
	patch := `{"spec":{"taints":[{"key":"dedicated","value":"gpu","effect":"NoSchedule"}]}}`
	s.Must(s.cluster.PatchNode(s.Context(), node, patch))
}

// pods returns the names of the pods on a node that are not being deleted, with their namespaces.
func (s *stage) pods(node string) (names []string) {
	s.Helper()
	list, err := s.client.CoreV1().Pods("").List(s.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	s.Must(err)
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// nodeOf returns the node of a pod of a Deployment.
func (s *stage) nodeOf(namespace, deployment string) string {
	s.Helper()
	list, err := s.client.CoreV1().Pods(namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment})
	s.Must(err)
	if len(list.Items) == 0 {
		s.Fatalf("deployment %s/%s has no pods", namespace, deployment)
	}
	return list.Items[0].Spec.NodeName
}
