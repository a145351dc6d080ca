package monitoring

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/program/programtest"
)

// patience is the time limit of each step. It does not measure speed.
const patience = 90 * time.Second

// scene is a live run: a control plane, and Rehome's processes beside it.
type scene struct {
	t       expect.T
	cluster *cluster.Cluster
	nodes   []string
	rehome  string // path of the binary
	dir     string // of the bus and the policy

	run, forwards, serves *program.Program
	bus                   *bus.Bus
}

// newScene starts a control plane with nine nodes, and the processes.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{
		t: expect.T{TB: t}, dir: filetest.ShortDir(t), rehome: expect.Value(t, program.Build), cluster: clustertest.New(t, cluster.Options{}),
	}
	s.t.Must(s.cluster.AddKinds(t.Context()))
	var err error
	s.nodes, err = s.cluster.AddNodes(t.Context(), 9)
	s.t.Must(err)
	for _, namespace := range []string{"rehome", "shop", "web", "batch"} {
		s.t.Must(s.cluster.AddNamespace(t.Context(), namespace))
	}
	return s
}

// policy writes the policy file. age is how many seconds the pods of batch may live: a function over HTTP sees to that.
func (s *scene) policy(age int) string {
	s.t.Helper()
	file := filepath.Join(s.dir, "policy.yaml")
	s.t.Must(os.WriteFile(file, []byte(fmt.Sprintf(`apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
functions:
- {name: PodLifeTime, http: {url: "http://%s/"}}
profiles:
- name: default
  pluginConfig:
  - {name: RemovePodsViolatingNodeTaints, args: {includePreferNoSchedule: true}}
  - {name: RemovePodsViolatingNodeAffinity, args: {nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}}
  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: %d, namespaces: {include: [batch]}}}
  plugins:
    deschedule:
      enabled: [RemovePodsViolatingNodeTaints, RemovePodsViolatingNodeAffinity, PodLifeTime]
`, s.serves.Address, age)), 0o600))
	return file
}

// start starts all processes and waits until they are ready: a function, Rehome, and a forwarder to a sink that takes all.
func (s *scene) start() {
	s.t.Helper()
	address := expect.Value(s.t, program.FreeAddress)
	s.serves = s.process("serve", "PodLifeTime", "--address", address)
	s.serves.Address = address
	s.run = s.process("run", "--policy", s.policy(86400))
	programtest.Ready(s.t, s.serves)
	programtest.Ready(s.t, s.run)
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	s.t.Cleanup(sink.Close)
	s.forwards = s.process("forward", "--to", sink.URL, "--name", "audit")
	programtest.Ready(s.t, s.forwards)
	var err error
	s.bus, err = bus.Connect(bus.Options{Name: "scene", Socket: filepath.Join(s.dir, "bus.sock"), Log: slog.New(slog.DiscardHandler)})
	s.t.Must(err)
	s.t.Cleanup(s.bus.Close)
	expect.Eventually(s.t, "it leads", func() bool { return strings.Contains(s.run.Log.String(), "leading: evaluating everything") })
}

func (s *scene) environment() []string {
	return []string{
		"KUBECONFIG=" + s.cluster.Kubeconfig(), "REHOME_NAMESPACE=rehome", "REHOME_LEASE_DURATION=3s", "REHOME_STORE_DIR=" + s.dir,
	}
}

func (s *scene) process(arguments ...string) *program.Program {
	s.t.Helper()
	return programtest.Start(s.t, s.rehome, arguments, s.environment())
}

// command runs a command of rehome to its end.
func (s *scene) command(arguments ...string) string {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), s.rehome, arguments...)
	c.Env = append(os.Environ(), s.environment()...)
	out, err := c.CombinedOutput()
	if err != nil {
		s.t.Fatalf("rehome %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

// says waits until the metrics of a process have a line that begins so. line is a regular expression.
func (s *scene) says(p *program.Program, line string) {
	s.t.Helper()
	begins := regexp.MustCompile("(?m)^" + line)
	expect.Eventually(s.t, "the metrics say "+line, func() bool {
		_, text := p.Get("metrics")
		return begins.MatchString(text)
	})
}

// deployment makes a Deployment whose pods must run on nodes with one of the values of a label, and waits until they do.
func (s *scene) deployment(namespace, name string, replicas int, label string, values ...string) {
	s.t.Helper()
	_, err := s.cluster.AddDeployment(s.t.Context(), namespace, name, replicas, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpIn, Values: values}},
			}}},
		}}
	})
	s.t.Must(err)
	s.t.Must(s.cluster.WaitReady(s.t.Context(), namespace, name))
}

// pinned makes a Deployment of one pod whose template names the node, so that each replacement returns to it.
func (s *scene) pinned(namespace, name, node string) {
	s.t.Helper()
	_, err := s.cluster.AddDeployment(s.t.Context(), namespace, name, 1, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = node })
	s.t.Must(err)
	s.t.Must(s.cluster.WaitReady(s.t.Context(), namespace, name))
}

// budget makes a PodDisruptionBudget for a Deployment that allows no disruption, and waits until it is in force.
func (s *scene) budget(namespace, deployment, name string) {
	s.t.Helper()
	none := policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(0))}
	_, err := s.cluster.AddBudget(s.t.Context(), namespace, name, deployment, none)
	s.t.Must(err)
}

func (s *scene) taint(node string, effect corev1.TaintEffect) {
	s.t.Helper()
	s.t.Must(s.cluster.ChangeNode(s.t.Context(), node, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "scene", Effect: effect})
	}))
}

// pool labels nodes as a node pool.
func (s *scene) pool(name string, nodes ...string) {
	s.t.Helper()
	for _, node := range nodes {
		s.t.Must(s.cluster.ChangeNode(s.t.Context(), node, func(n *corev1.Node) { n.Labels["pool"] = name }))
	}
}

// maintain makes a maintenance that drains a node.
func (s *scene) maintain(name, node string) {
	s.t.Helper()
	s.kubectl(fmt.Sprintf(`{"apiVersion": "rehome.dev/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": %q},
		"spec": {"nodes": {"names": [%q]}, "stage": "Drain", "reason": "new kernel"}}`, name, node))
}

func (s *scene) kubectl(object string) {
	s.t.Helper()
	c := s.cluster.KubectlCommand(s.t.Context(), "create", "-f", "-")
	c.Stdin = strings.NewReader(object)
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

// bury publishes a scope that no strategy can work on.
func (s *scene) bury() {
	s.t.Helper()
	e, err := schemas.NewEvent("/scene", schemas.ScopeHead{
		Kind: schemas.NodeKind, Key: "nowhere", Profile: "default", Strategy: "RemovePodsViolatingNodeTaints",
	}, time.Now(), schemas.Event{})
	s.t.Must(err)
	e.Data = []byte(`{"kind":"node","key":"nowhere","profile":"default","strategy":"Another"}`)
	_, err = s.bus.Publish(s.t.Context(), e)
	s.t.Must(err)
}
