package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	"github.com/rehome-dev/rehome/bus/bustest"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/program"
)

const (
	namespace = "faults"
	refusing  = "faults-refusing" // another namespace with pods
	leases    = "kube-system"
	nodes     = 12
	workloads = 6
	replicas  = 12
	stateful  = "stateful-set"
	kept      = "kept" // a workload that nothing may move
	strategy  = "RemovePodsViolatingNodeTaints"
	// tainted is how many nodes have a taint at the same time, at most: the others have room for all pods, and one more opens the
	// cluster circuit breaker.
	tainted = 3

	// The limits of the policy.
	mostInWindow = 60
	window       = 10 * time.Second
	mostInFlight = 3 // of a workload

	// leastIntents is how many intents a run has to bring at least for each minute that it is to last, so that a run in which
	// nothing was wanted fails.
	leastIntents = 100
	// enoughWithin is how much longer than that a run may take on a slow machine until it has them.
	enoughWithin = 2 * time.Minute
	// quietWithin is how long it may take until everything is over. The longest of it are a lease, a control plane that has
	// to find back after its API server was away, delays after failures, and intents that wait for room.
	quietWithin = 5 * time.Minute
)

// policyText takes the limits in their order above, and the URL of the function. What it does not set has its default.
const policyText = `apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
rate: {evictionsPerSecond: 20, burst: 5}
maxNoOfPodsToEvictTotal: %d
limits: {window: %v, inFlight: {perWorkload: %d}}
circuitBreakers: {workload: {delay: 2s, maxDelay: 10s}}
functions: [{name: Outside, scope: node, wakes: [node.taints], http: {url: %s, timeout: 1s}}]
metricsProviders: [{source: KubernetesMetrics}]
profiles:
  - name: default
    pluginConfig:
    - {name: RemovePodsViolatingNodeTaints}
    - {name: Outside}
    - {name: LowNodeUtilization, args: {thresholds: {cpu: 20}, targetThresholds: {cpu: 90}, metricsUtilization: {source: KubernetesMetrics}}}
    plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints, Outside]}, balance: {enabled: [LowNodeUtilization]}}
`

// run is one run.
type run struct {
	stage
	t        *testing.T
	nodes    []string
	servers  *bustest.Servers
	wires    map[string]*wire // by role
	backup   string           // directory with older stores of the bus
	policy   string           // file
	text     string           // what is in it
	function atomic.Int32     // what the function does: 0 answers, or one of hostilities
	keep     []corev1.Pod     // of the workload that nothing may move
	pods     pods
	memory   float64 // the highest resident memory of a process, in bytes

	restarting sync.Mutex // one process at a time

	mu        sync.Mutex
	running   map[string]*program.Program // by role
	counts    map[string]int              // of what was done
	restarts  []time.Time                 // of the API server
	cuts      []interval                  // when leaders, or what they store, were cut off
	protected map[types.UID][]interval
	backedUp  time.Time
	losses    []interval      // what the bus stored then was lost when it was restored
	lost      []schemas.Event // the history before the bus was restored to an older state
	wrong     []string        // what failed so far
}

func TestFaults(t *testing.T) {
	r := &run{
		stage: theStage, t: t, running: map[string]*program.Program{}, wires: map[string]*wire{}, counts: map[string]int{},
		protected: map[types.UID][]interval{}, pods: pods{all: map[types.UID]*seen{}},
	}
	t.Logf("%d minutes, seed %d; again: make faults MINUTES=%[1]d SEED=%[2]d", r.minutes, r.seed)
	t.Cleanup(r.conclude)
	r.setTheStage()
	r.disturb()
	r.calm()
	r.judge()
}

// setTheStage makes the nodes, the pods, the bus and the processes.
func (r *run) setTheStage() {
	ctx := r.t.Context()
	r.must(r.cluster.AddNamespace(ctx, namespace))
	var err error
	r.nodes, err = r.cluster.AddNodes(ctx, nodes)
	r.must(err)
	r.must(r.cluster.ServeMetrics(ctx))
	r.must(r.measure("8"))
	for i := range workloads {
		name := fmt.Sprint("workload-", i)
		_, err := r.cluster.AddDeployment(ctx, namespace, name, replicas)
		r.must(err)
		if i%2 == 0 { // the others are spared by what the policy allows to be unavailable
			r.must(r.budget(ctx, name, name))
		}
	}
	_, err = r.cluster.AddDeployment(ctx, refusing, "refused", replicas)
	r.must(err)
	_, err = r.cluster.AddDeployment(ctx, namespace, kept, replicas, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{mark: "true"}
	})
	r.must(err)
	r.must(r.statefulSet(ctx))
	r.waitReady()
	list, err := r.cluster.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + kept})
	r.must(err)
	r.keep = list.Items
	r.followPods()

	function := httptest.NewServer(r)
	r.t.Cleanup(function.Close)
	r.policy, r.backup = filepath.Join(r.t.TempDir(), "policy.yaml"), filepath.Join(r.t.TempDir(), "backup")
	r.text = fmt.Sprintf(policyText, mostInWindow, window, mostInFlight, function.URL)
	r.must(r.writePolicy(r.text))
	r.servers = bustest.Cluster(r.t, servers)
	r.mountDisk()
	setup, err := program.Start(r.rehome, []string{"setup", "--policy", r.policy}, r.environment("REHOME_NATS_URL="+r.servers.URL(), "REHOME_NATS_REPLICAS=3"))
	r.must(err)
	if err := setup.Err(); err != nil {
		r.must(fmt.Errorf("rehome setup: %w\n%s", err, setup.Log))
	}
	r.t.Cleanup(r.end)
	for _, role := range roles {
		r.wires[role] = newWire(r.t, r.servers.Addresses())
		r.must(r.start(role))
	}
	r.ready()
}

func (r *run) waitReady() {
	r.t.Helper()
	for i := range workloads {
		r.must(r.cluster.WaitReady(r.t.Context(), namespace, fmt.Sprint("workload-", i)))
	}
	r.must(r.cluster.WaitReady(r.t.Context(), namespace, kept))
	r.must(r.cluster.WaitReady(r.t.Context(), refusing, "refused"))
}

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.fail("%v", err)
		r.t.FailNow()
	}
}

// fail notes that something is wrong.
func (r *run) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// conclude repeats at the very end what is wrong: what the processes said is long.
func (r *run) conclude() {
	if len(r.wrong) > 0 {
		r.t.Logf("seed %d: wrong is\n%s", r.seed, strings.Join(r.wrong, "\n"))
	}
}

// budget lets a workload lose two pods at a time.
func (r *run) budget(ctx context.Context, workload, name string) error {
	most := intstr.FromInt32(2)
	_, err := r.cluster.Client().PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": workload}}, MaxUnavailable: &most,
		},
	}, metav1.CreateOptions{})
	return err
}

func (r *run) environment(more ...string) []string {
	return append([]string{
		"KUBECONFIG=" + r.cluster.Kubeconfig(), "REHOME_NAMESPACE=" + namespace, "REHOME_LEASE_DURATION=3s", "REHOME_CLUSTER=faults",
	}, more...)
}

// ready waits until all roles are.
func (r *run) ready() {
	r.t.Helper()
	for _, role := range roles {
		var body string
		defer func() {
			if r.t.Failed() {
				r.t.Logf("%s: /readyz: %s", role, body)
			}
		}()
		bustest.Eventually(r.t, role+" is ready", func() bool {
			var status int
			status, body = r.role(role).Get("readyz")
			return status == http.StatusOK
		})
	}
}

// end kills all roles.
func (r *run) end() {
	for role, p := range r.running {
		p.Kill()
		if r.t.Failed() {
			r.t.Logf("the last %s said:\n%s", role, p.Log)
		}
	}
}

// random is a source of its own for each kind of fault, so that they do not wait for each other.
func (r *run) random(kind uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, kind)) }

// disturb wishes for moves and plays the situations, for as long as the run is to be, or longer on a slow machine: until each
// situation was there once, and enough was wished for.
func (r *run) disturb() {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	enough, stop := context.WithTimeout(ctx, time.Duration(r.minutes)*time.Minute)
	defer stop()
	var work, suffering sync.WaitGroup
	done := make(chan struct{})
	work.Go(func() { r.taint(ctx, r.random(0)) })
	work.Go(func() { r.watchMemory(done) })
	for i, f := range families() {
		suffering.Go(func() { r.suffer(enough, f.all, f.cuts, r.random(uint64(i+1))) })
	}
	<-enough.Done()
	suffering.Wait()
	r.untilEnough(ctx)
	cancel()
	close(done)
	work.Wait()
}

// untilEnough waits until there are enough intents. If they do not come, it is judge that says so.
func (r *run) untilEnough(ctx context.Context) {
	for deadline := time.Now().Add(enoughWithin); time.Now().Before(deadline); pause(ctx, time.Second) {
		s := newStory()
		if err := r.readBus(ctx, &s); err != nil {
			r.t.Logf("count the intents: %v", err)
		} else if s.intents() >= r.leastIntents() {
			return
		}
	}
}

// leastIntents is how many intents the whole run has to bring.
func (r *run) leastIntents() int { return leastIntents * r.minutes }

// pause waits, and says whether the run goes on after that.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// between is a random time.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// taint is what pods have to leave for.
var taint = corev1.Taint{Key: "faults", Effect: corev1.TaintEffectNoSchedule}

// taint puts taints on nodes and takes them off again: pods are wanted elsewhere, and sometimes no more before it is their
// turn.
func (r *run) taint(ctx context.Context, random *rand.Rand) {
	var list []string
	for pause(ctx, between(random, 100*time.Millisecond, 1200*time.Millisecond)) {
		node := r.nodes[random.IntN(len(r.nodes))]
		if at := slices.Index(list, node); at >= 0 || len(list) >= tainted {
			at = max(at, 0)
			r.change(ctx, list[at], nil)
			list = append(list[:at], list[at+1:]...)
			continue
		}
		r.change(ctx, node, []corev1.Taint{taint})
		list = append(list, node)
	}
}

// change gives a node these taints, as soon as the API server lets it.
func (r *run) change(ctx context.Context, node string, taints []corev1.Taint) {
	all := r.cluster.Client().CoreV1().Nodes()
	err := retry.OnError(retry.DefaultBackoff, func(error) bool { return ctx.Err() == nil }, func() error {
		n, err := all.Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = taints
		_, err = all.Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		r.count("taints that could not be changed")
		return
	}
	r.count("taints put on or off")
}

func (r *run) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// calm leaves two nodes tainted and waits until all pods are gone from them that may move, and then until all pods run.
func (r *run) calm() {
	left := r.nodes[:2]
	for i, n := range r.nodes {
		var taints []corev1.Taint
		if i < len(left) {
			taints = []corev1.Taint{taint}
		}
		r.change(r.t.Context(), n, taints)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), quietWithin)
	defer cancel()
	for {
		var stay []string
		list, err := r.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "app!=" + kept})
		if err == nil {
			for _, p := range list.Items {
				if slices.Contains(left, p.Spec.NodeName) {
					stay = append(stay, p.Namespace+"/"+p.Name)
				}
			}
		}
		if err == nil && len(stay) == 0 {
			break
		}
		if !pause(ctx, 200*time.Millisecond) {
			r.fail("these pods were not moved within %v (%v): %q", quietWithin, err, stay)
			break
		}
	}
	for _, n := range left {
		r.change(r.t.Context(), n, nil)
	}
	r.waitReady()
	r.ready()
}
