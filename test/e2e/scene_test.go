package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// stage has everything that all scenes share.
type stage struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	rehome  string // path of the binary
	crowd   int    // the number of pods that are drained under each limit
	scenes  atomic.Int32
}

// theStage is set by TestMain before any test, and does not change.
var theStage *stage

func TestMain(m *testing.M) {
	pods := flag.Int("pods", 80, "how many pods are drained under each limit, at least 40")
	flag.Parse()
	os.Exit(perform(m, *pods))
}

func perform(m *testing.M, pods int) int {
	dir, err := os.MkdirTemp("", "rehome-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary, err := program.Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := cluster.Start(context.Background(), cluster.Options{LogDir: filepath.Join(dir, "logs")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Stop()
	theStage = &stage{cluster: c, client: c.Client(), rehome: binary, crowd: pods}
	return m.Run()
}

// scene is the part of the cluster that one test uses.
type scene struct {
	*stage
	t         expect.T
	namespace string
	nodes     []string
	// apiServerIsDown reports that the scene has stopped the API server.
	apiServerIsDown bool
}

// newScene creates a namespace and n nodes that only this scene uses.
func newScene(t *testing.T, n int) *scene {
	t.Helper()
	return newSceneOn(t, theStage, n)
}

// newSceneOn creates a scene on a separate stage.
func newSceneOn(t *testing.T, on *stage, n int) *scene {
	t.Helper()
	s := &scene{stage: on, t: expect.T{TB: t}, namespace: fmt.Sprintf("scene-%d", on.scenes.Add(1))}
	s.t.Must(s.cluster.AddNamespace(t.Context(), s.namespace))
	t.Cleanup(s.clear)
	s.addNodes(n)
	return s
}

// addNodes creates n more nodes that only this scene uses. The functions in change may change them before the creation.
func (s *scene) addNodes(n int, change ...func(*corev1.Node)) {
	s.t.Helper()
	added, err := s.cluster.AddNodes(s.t.Context(), n, append([]func(*corev1.Node){labeled("scene", s.namespace)}, change...)...)
	s.t.Must(err)
	s.nodes = append(s.nodes, added...)
}

// labeled adds a label to a node.
func labeled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

// clear removes everything that the scene created, so the next scene has an empty cluster.
func (s *scene) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.apiServerIsDown { // the scene has failed, and the next one needs it
		if err := s.cluster.StartAPIServer(ctx); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.client.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{}); err != nil {
		s.t.Error(err)
	}
	for _, n := range s.nodes {
		if err := s.client.CoreV1().Nodes().Delete(ctx, n, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	}
}

// deployment creates a Deployment whose pods run on the nodes of the scene, and waits until they do.
func (s *scene) deployment(name string, replicas int, change ...func(*corev1.PodTemplateSpec)) {
	s.t.Helper()
	_, err := s.cluster.AddDeployment(s.t.Context(), s.namespace, name, replicas, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"scene": s.namespace}
		for _, c := range change {
			c(&d.Spec.Template)
		}
	})
	s.t.Must(err)
	s.t.Must(s.cluster.WaitReady(s.t.Context(), s.namespace, name))
}

// ready waits until the Deployment has all its replicas.
func (s *scene) ready(name string) {
	s.t.Helper()
	s.t.Must(s.cluster.WaitReady(s.t.Context(), s.namespace, name))
}

// on binds the pods of a Deployment to a node from the start.
func on(node string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.NodeSelector[corev1.LabelHostname] = node
	}
}

// preferring makes the scheduler choose a node for the pods if possible, and any other node otherwise.
func preferring(node string) func(*corev1.PodTemplateSpec) {
	return preferringLabel(corev1.LabelHostname, node)
}

// tolerating makes the pods tolerate a taint.
func tolerating(key string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
}

// pods returns the pods of the scene on a node that are not terminating, by UID.
func (s *scene) pods(node string) map[types.UID]string {
	s.t.Helper()
	list, err := s.client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	s.t.Must(err)
	pods := map[types.UID]string{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			pods[p.UID] = p.Name
		}
	}
	return pods
}

// taint adds a taint with the effect NoSchedule to a node.
func (s *scene) taint(node, key string) {
	s.t.Helper()
	s.changeNode(node, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	})
}

// untaint removes all taints from a node.
func (s *scene) untaint(node string) {
	s.t.Helper()
	s.changeNode(node, func(n *corev1.Node) { n.Spec.Taints = nil })
}

func (s *scene) changeNode(name string, change func(*corev1.Node)) {
	s.t.Helper()
	s.t.Must(s.cluster.ChangeNode(s.t.Context(), name, change))
}

// eviction is an accepted eviction in the audit log.
type eviction struct {
	pod  string
	uid  types.UID
	time time.Time
	// received is when the request arrived. The pod was not evicted earlier.
	received time.Time
}

// evictions returns the evicted pods of the scene from the audit log, in order, without dry runs.
func (s *scene) evictions() []eviction {
	s.t.Helper()
	return s.audited(http.StatusCreated)
}

// audited returns the evictions of the scene with a response code from the audit log, in order.
func (s *scene) audited(code int) []eviction {
	s.t.Helper()
	log, err := s.cluster.Audit(s.t.Context())
	s.t.Must(err)
	var list []eviction
	for _, e := range log {
		if e.Namespace != s.namespace || e.Subresource != "eviction" || e.Code != code {
			continue
		}
		request := decodeEviction(s.t, e.Object)
		if o := request.DeleteOptions; o != nil && len(o.DryRun) == 0 && o.Preconditions != nil && o.Preconditions.UID != nil {
			list = append(list, eviction{e.Name, *o.Preconditions.UID, e.Time, e.Received})
		} else if o == nil || len(o.DryRun) == 0 {
			s.t.Errorf("pod %s was evicted without its UID as a precondition: %s", e.Name, e.Object)
		}
	}
	return list
}

// evictedOnce checks in the audit log, when all of these pods are gone, that each was evicted exactly once, and no other pod. An
// eviction whose caller was killed before the response is in the log as a timeout, whether it succeeded or not: it did if the pod
// went without another one.
func (s *scene) evictedOnce(pods map[types.UID]string) {
	s.t.Helper()
	expect.EventuallyWithState(s.t, fmt.Sprintf("the evictions of %d pods are in the audit log", len(pods)), func() (bool, string) {
		gone := uids(append(s.audited(http.StatusGatewayTimeout), s.evictions()...))
		return len(gone) >= len(pods), fmt.Sprint(len(gone))
	})
	accepted := s.evictions()
	got := uids(accepted)
	if len(got) != len(accepted) {
		s.t.Errorf("%d evictions of %d pods: some were evicted twice", len(accepted), len(got))
	}
	for _, e := range s.audited(http.StatusGatewayTimeout) {
		got[e.uid] = e.pod
	}
	if !reflect.DeepEqual(got, pods) {
		s.t.Errorf("evicted %d pods, want these %d:\ngot  %v\nwant %v", len(got), len(pods), got, pods)
	}
}

// evicted waits until the audit log has n evictions, not counting the first from, and returns them. A pod is gone a moment before
// the response to its eviction is in the log.
func (s *scene) evicted(from, n int) []eviction {
	s.t.Helper()
	var list []eviction
	expect.EventuallyWithState(s.t, fmt.Sprintf("%d evictions are in the audit log", n), func() (bool, string) {
		list = s.evictions()[from:]
		return len(list) >= n, fmt.Sprint(list)
	})
	return list
}

// policy returns a policy file for the nodes of the scene. more is appended without indentation.
func (s *scene) policy(more ...string) string {
	s.t.Helper()
	return s.enable("RemovePodsViolatingNodeTaints", []string{"{name: RemovePodsViolatingNodeTaints}"}, more...)
}

// enable returns a policy file for the nodes of the scene with one strategy of the extension point deschedule. configs are the
// entries of pluginConfig, each on one line. more is appended without indentation.
func (s *scene) enable(strategy string, configs []string, more ...string) string {
	s.t.Helper()
	return s.profiles([]string{profile("default", "deschedule", strategy, configs...)}, more...)
}

// balance is enable for the extension point balance. args are the arguments on one line.
func (s *scene) balance(strategy, args string, more ...string) string {
	s.t.Helper()
	config := fmt.Sprintf("{name: %s, args: %s}", strategy, args)
	return s.profiles([]string{profile("default", "balance", strategy, config)}, more...)
}

// profile returns one profile of a policy file with one strategy.
func profile(name, point, strategy string, configs ...string) string {
	return `  - name: ` + name + `
    pluginConfig: [` + strings.Join(configs, ", ") + `]
    plugins:
      ` + point + `:
        enabled: [` + strategy + `]`
}

// profiles returns a policy file for the nodes of the scene with these profiles. more is appended without indentation.
//
// The cluster circuit breaker counts all nodes of the cluster, so taints of parallel scenes would block this one. Unless more
// configures circuit breakers, the policy disables the check of nodes.
func (s *scene) profiles(profiles []string, more ...string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "policy.yaml")
	lines := []string{
		"apiVersion: rehome.dev/v1alpha1", "kind: DeschedulerPolicy", "nodeSelector: scene=" + s.namespace, "profiles:",
	}
	lines = append(append(lines, profiles...), more...)
	if !slices.ContainsFunc(more, func(line string) bool { return strings.HasPrefix(line, "circuitBreakers:") }) {
		lines = append(lines, "circuitBreakers: {cluster: {nodes: 0%}}")
	}
	text := strings.Join(lines, "\n") + "\n"
	filetest.Write(s.t, file, text)
	return file
}
