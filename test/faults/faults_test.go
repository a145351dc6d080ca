package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/program"
)

const (
	namespace = "faults"
	nodes     = 8
	workloads = 6
	replicas  = 12
	// tainted is how many nodes have a taint at the same time, at most: the others have room for all pods.
	tainted = 3

	// The limits of the policy.
	mostInWindow = 60
	window       = 10 * time.Second
	mostInFlight = 3 // of a workload

	// leastIntents is how many intents a run has to bring at least for each minute that it is to last, so that a run in which
	// nothing was wanted fails.
	leastIntents = 100
	// enoughWithin is how much longer than that a run may take on a slow machine until it has them.
	enoughWithin = 4 * time.Minute
	// quietWithin is how long it may take until everything is over. The longest of it are a lease, a control plane that has
	// to find back after its API server was away, and intents that wait for room.
	quietWithin = 4 * time.Minute
)

// policyText takes the limits in their order above.
const policyText = `apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
rate: {evictionsPerSecond: 20, burst: 5}
maxNoOfPodsToEvictTotal: %d
limits: {window: %v, inFlight: {perWorkload: %d}}
circuitBreakers: {workload: {delay: 0s}, cluster: {nodes: 0%%, pending: 0, failures: 0%%}}
profiles:
  - name: default
    pluginConfig: [{name: RemovePodsViolatingNodeTaints}]
    plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
`

// run is one run.
type run struct {
	stage
	t       *testing.T
	nodes   []string
	servers *bustest.Servers
	policy  string // file
	pods    pods

	mu       sync.Mutex
	roles    map[string]*program.Program
	counts   map[string]int // of what was done
	restarts []time.Time    // of the API server
	breaks   []time.Time    // when the actuator or the bus was killed
	wrong    []string       // what failed so far
}

func TestNothingIsMovedTwiceAndNothingIsLostWhateverIsKilled(t *testing.T) {
	r := &run{stage: theStage, t: t, roles: map[string]*program.Program{}, counts: map[string]int{}, pods: pods{all: map[types.UID]*seen{}}}
	t.Logf("%d minutes, seed %d; again: go test ./test/faults -timeout 30m -args -minutes %[1]d -seed %[2]d", r.minutes, r.seed)
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
	for i := range workloads {
		name := fmt.Sprint("workload-", i)
		_, err := r.cluster.AddDeployment(ctx, namespace, name, replicas)
		r.must(err)
		if i%2 == 0 { // the others are spared by what the policy allows to be unavailable
			r.must(r.budget(ctx, name))
		}
	}
	for i := range workloads {
		r.must(r.cluster.WaitReady(ctx, namespace, fmt.Sprint("workload-", i)))
	}
	r.followPods()
	r.policy = filepath.Join(r.t.TempDir(), "policy.yaml")
	r.must(os.WriteFile(r.policy, fmt.Appendf(nil, policyText, mostInWindow, window, mostInFlight), 0o600))
	r.servers = bustest.Cluster(r.t, 3)
	setup, err := program.Start(r.rehome, []string{"setup"}, append(r.environment(), "REHOME_NATS_REPLICAS=3"))
	r.must(err)
	if err := setup.Err(); err != nil {
		r.must(fmt.Errorf("rehome setup: %w\n%s", err, setup.Log))
	}
	r.t.Cleanup(r.end)
	for _, role := range []string{"watcher", "functions", "actuator", "maintenance"} {
		r.start(role)
	}
	r.ready()
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
func (r *run) budget(ctx context.Context, workload string) error {
	d, err := r.cluster.Client().AppsV1().Deployments(namespace).Get(ctx, workload, metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = r.cluster.Client().PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: workload},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: d.Spec.Selector, MaxUnavailable: new(intstr.FromInt32(2)),
		},
	}, metav1.CreateOptions{})
	return err
}

func (r *run) environment() []string {
	return []string{
		"KUBECONFIG=" + r.cluster.Kubeconfig(), "REHOME_NAMESPACE=" + namespace, "REHOME_LEASE_DURATION=3s",
		"REHOME_CLUSTER=faults", "REHOME_NATS_URL=" + r.servers.URL(),
	}
}

// start starts a role, in the place of the process that has it.
func (r *run) start(role string) {
	arguments := []string{role}
	if role != "functions" {
		arguments = append(arguments, "--policy", r.policy)
	}
	p, err := program.Start(r.rehome, arguments, r.environment())
	if err != nil {
		r.fail("start %s: %v", role, err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roles[role] = p
}

// kill kills the process that has a role and starts another one.
func (r *run) kill(role string) {
	r.mu.Lock()
	p := r.roles[role]
	r.counts["kills of the "+role]++
	r.mu.Unlock()
	select {
	case <-p.Ended:
		r.t.Logf("the %s said:\n%s", role, p.Log)
		r.fail("the %s ended by itself: %v", role, p.Err())
	default:
	}
	p.Kill()
	r.start(role)
}

// ready waits until all roles are.
func (r *run) ready() {
	r.t.Helper()
	for role, p := range r.roles {
		bustest.Eventually(r.t, role+" is ready", func() bool {
			status, _ := p.Get("readyz")
			return status == http.StatusOK
		})
	}
}

// end kills all roles.
func (r *run) end() {
	for role, p := range r.roles {
		p.Kill()
		if r.t.Failed() {
			r.t.Logf("the last %s said:\n%s", role, p.Log)
		}
	}
}

// random is a source of its own for each kind of fault, so that they do not wait for each other.
func (r *run) random(kind uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, kind)) }

// disturb wishes for moves and breaks things, for as long as the run is to be. How long a restart takes is up to the machine:
// the run goes on until all restarts are done and enough was wished for.
func (r *run) disturb() {
	all := time.Duration(r.minutes) * time.Minute
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	var work, restarts sync.WaitGroup
	work.Go(func() { r.taint(ctx, r.random(1)) })
	work.Go(func() { r.killActuators(ctx, r.random(2)) })
	work.Go(func() { r.killOthers(ctx, r.random(3)) })
	restarts.Go(func() { r.restartAPIServer(ctx, all, r.random(4)) })
	restarts.Go(func() { r.restartBus(ctx, all, r.random(5)) })
	pause(ctx, all)
	restarts.Wait()
	r.untilEnough(ctx)
	cancel()
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
		r.change(ctx, node, []corev1.Taint{{Key: "faults", Effect: corev1.TaintEffectNoSchedule}})
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

func (r *run) killActuators(ctx context.Context, random *rand.Rand) {
	for pause(ctx, between(random, 5*time.Second, 20*time.Second)) {
		r.broken()
		r.kill("actuator")
	}
}

// broken notes that the actuator or the bus is killed now.
func (r *run) broken() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breaks = append(r.breaks, time.Now())
}

func (r *run) killOthers(ctx context.Context, random *rand.Rand) {
	for pause(ctx, between(random, 20*time.Second, 60*time.Second)) {
		r.kill([]string{"watcher", "functions"}[random.IntN(2)])
	}
}

// restartAPIServer kills the API server twice and starts it again after some seconds.
func (r *run) restartAPIServer(ctx context.Context, all time.Duration, random *rand.Rand) {
	for range 2 {
		if !pause(ctx, between(random, all/4, all*2/5)) {
			r.fail("the test ended before a restart of the API server")
			return
		}
		r.mu.Lock()
		r.restarts = append(r.restarts, time.Now())
		r.mu.Unlock()
		if err := r.cluster.StopAPIServer(); err != nil {
			r.fail("%v", err)
		}
		time.Sleep(between(random, 0, 4*time.Second))
		if err := r.cluster.StartAPIServer(r.t.Context()); err != nil {
			r.fail("%v", err)
		}
		r.count("restarts of the API server")
	}
}

// restartBus stops all servers of the bus twice and starts them again on what they had stored.
func (r *run) restartBus(ctx context.Context, all time.Duration, random *rand.Rand) {
	for range 2 {
		if !pause(ctx, between(random, all/5, all*2/5)) {
			r.fail("the test ended before a restart of the bus")
			return
		}
		r.broken()
		for i := range 3 {
			r.servers.Stop(i)
		}
		time.Sleep(between(random, 0, 4*time.Second))
		for i := range 3 {
			r.servers.Start(r.t, i)
		}
		r.count("restarts of the bus")
	}
}

// calm takes all taints off and waits until all pods run.
func (r *run) calm() {
	for _, n := range r.nodes {
		r.change(r.t.Context(), n, nil)
	}
	for i := range workloads {
		r.must(r.cluster.WaitReady(r.t.Context(), namespace, fmt.Sprint("workload-", i)))
	}
	r.ready()
}
