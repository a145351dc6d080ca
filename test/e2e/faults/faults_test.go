package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/program"
)

var (
	minutes  = flag.Int("minutes", 1, "duration of the faults")
	seed     = flag.Uint64("seed", rand.Uint64N(1e6), "seed of the order and duration of the faults")
	onlyCore = flag.Bool("core", false, "only kill and restart processes")
	only     = flag.String("only", "", "only the situations whose names match this regular expression")
)

const (
	namespace = "faults"
	refusing  = "faults-refusing" // its evictions can be refused
	nodes     = 12
	workloads = 6
	replicas  = 12
	stateful  = "stateful-set"
	kept      = "kept" // a workload with protected pods
	strategy  = "RemovePodsViolatingNodeTaints"
	byLoad    = "LowNodeUtilization"
	// tainted is the largest number of nodes with a taint. The other nodes have room for all pods. One more tainted node opens the
	// cluster circuit breaker.
	tainted = 3

	// The limits of the policy.
	mostInWindow = 60
	window       = 10 * time.Second
	mostInFlight = 3 // of a workload

	// leastIntents is the number of intents for each minute below which a run fails, because it tests too little.
	leastIntents = 100
	// evictionRate is the number of evictions per second that the policy allows.
	evictionRate = 20
	// enoughLimit is how much longer a run may take on a slow machine until it has them.
	enoughLimit = 2 * time.Minute
	// serverLines is the number of lines of each server of the bus that a failed run prints.
	serverLines = 100
	// quietLimit is the longest time until all moves have completed. It must cover a lease, the recovery of the control
	// plane, delays after failures, and limits.
	quietLimit = 5 * time.Minute
)

// policyText has two strategies by load. No node uses too much CPU, and all could take more. One node uses too much memory, but no
// other has enough left. So neither strategy may move a pod, see measure.
//
// policyText takes the rate, the limits in the order of the constants, and the URL of the function.
const policyText = `apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
rate: {evictionsPerSecond: %d, burst: 5}
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
    - {name: LowNodeUtilization, args: {thresholds: {cpu: 30}, targetThresholds: {cpu: 90}, metricsUtilization: {source: KubernetesMetrics}}}
    plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints, Outside]}, balance: {enabled: [LowNodeUtilization]}}
  - name: memory
    pluginConfig:
    - {name: LowNodeUtilization, args: {thresholds: {memory: 20}, targetThresholds: {memory: 50}, metricsUtilization: {source: KubernetesMetrics}}}
    plugins: {balance: {enabled: [LowNodeUtilization]}}
`

// run is the state of one run.
type run struct {
	t       *testing.T
	cluster *cluster.Cluster
	nodes   []string
	rehome  string // path of the binary
	nats    string // path of the binary
	servers []server
	wires   map[string]*wire // by role
	backup  string           // directory with older stores of the bus
	policy  string           // file
	text    string           // its content
	rate    int              // of evictions per second
	keep    []corev1.Pod     // of the workload with protected pods
	pods    pods

	function   atomic.Pointer[behavior] // nil means it answers correctly
	restarting sync.Mutex               // one role at a time
	dumpOnce   sync.Once

	// memory is the highest resident memory of a process in bytes, and largest is its name. Only watchMemory uses them until
	// it returns.
	memory  float64
	largest string

	mu        sync.Mutex
	running   map[string]*program.Program // by role or server
	awaited   map[*wait]bool
	counts    map[string]int
	logs      map[*program.Log]string // the role of each process so far
	restarts  []time.Time             // of the API server
	faults    []fault
	protected map[types.UID][]interval
	recreated map[types.UID]bool // running pods that the test deleted
	dropped   map[string]bool    // namespaces that the test deleted
	backedUp  time.Time
	losses    []loss
	rewound   []interval      // from the copy of etcd until it was restored
	lost      []schemas.Event // the history before the bus was restored
	failures  []string
}

// newRun returns a run whose policy allows that many evictions per second.
func newRun(t *testing.T, rate int) *run {
	r := &run{
		t: t, rate: rate, running: map[string]*program.Program{}, wires: map[string]*wire{}, counts: map[string]int{}, awaited: map[*wait]bool{},
		logs: map[*program.Log]string{}, protected: map[types.UID][]interval{}, pods: pods{all: map[types.UID]*seen{}},
	}
	t.Cleanup(r.conclude)
	return r
}

func TestFaults(t *testing.T) {
	r := newRun(t, evictionRate)
	t.Logf("%d minutes, seed %d; again: make faults MINUTES=%[1]d SEED=%[2]d", *minutes, *seed)
	r.startCluster()
	t.Cleanup(r.watch())
	r.addWorkloads()
	r.startRehome("")
	r.disturb()
	r.settle()
	r.judge(leastIntents * *minutes)
}

// startCluster builds the programs and starts a control plane with nodes.
func (r *run) startCluster() {
	var err error
	r.rehome, err = program.Build()
	r.must(err)
	r.nats, err = program.BuildNATS()
	r.must(err)
	ctx := r.t.Context()
	r.cluster, err = cluster.Start(ctx, cluster.Options{LogDir: filepath.Join(r.t.TempDir(), "logs")})
	r.must(err)
	r.t.Cleanup(func() { _ = r.cluster.Stop() })
	r.nodes, err = r.cluster.AddNodes(ctx, nodes)
	r.must(err)
	r.must(r.cluster.ServeMetrics(ctx))
	r.must(r.measure(usual))
}

// startRehome starts the bus and all roles with the policy and more of its sections.
func (r *run) startRehome(more string) {
	outside := httptest.NewServer(r)
	r.t.Cleanup(outside.Close)
	r.policy = filepath.Join(r.t.TempDir(), "policy.yaml")
	r.text = fmt.Sprintf(policyText, r.rate, mostInWindow, window, mostInFlight, outside.URL) + more
	r.must(r.writePolicy(r.text))
	r.must(r.startServers())
	r.t.Cleanup(r.end)
	r.must(r.runProcess([]string{"setup", "--policy", r.policy}, r.environment("REHOME_NATS_URL="+natsURL(r.serverAddresses()), "REHOME_NATS_REPLICAS=3")...))
	for _, role := range roles {
		r.wires[role] = newWire(r.t, r.serverAddresses())
		r.must(r.start(role))
	}
	r.must(r.ready())
}

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.fail("%v", err)
		r.t.FailNow()
	}
}

// fail records a failure. The run ends early.
func (r *run) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *run) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

// conclude repeats the failures at the very end, after the long logs of the processes.
func (r *run) conclude() {
	if len(r.failures) > 0 {
		r.t.Logf("seed %d: FAILED:\n%s", *seed, strings.Join(r.failures, "\n"))
	}
}

func (r *run) environment(more ...string) []string {
	return append([]string{
		"KUBECONFIG=" + r.cluster.Kubeconfig(), "REHOME_NAMESPACE=" + namespace, "REHOME_LEASE_DURATION=3s", "REHOME_CLUSTER=faults",
	}, more...)
}

// ready waits until all roles are ready.
func (r *run) ready() error {
	for _, role := range roles {
		err := r.await("the "+role+" is ready", quietLimit, func(ctx context.Context) error {
			return get(ctx, "http://"+r.process(role).Address+"/readyz")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// end kills all processes and, after a failure, logs the output of the roles.
func (r *run) end() {
	r.killAll()
	if !r.t.Failed() {
		return
	}
	r.t.Log(r.output())
}

// output returns the output of the roles, and the last lines of the servers of the bus.
func (r *run) output() string {
	var b strings.Builder
	for _, role := range roles {
		if p := r.process(role); p != nil {
			fmt.Fprintf(&b, "the last %s:\n%s\n", role, p.Log)
		}
	}
	for _, s := range r.servers {
		if p := r.process(s.name); p != nil {
			lines := strings.Split(p.Log.String(), "\n")
			fmt.Fprintf(&b, "the last lines of %s:\n%s\n", s.name, strings.Join(lines[max(0, len(lines)-serverLines):], "\n"))
		}
	}
	return b.String()
}

// disturb changes taints and plays the situations until the time is over, each situation had its turn, and there are enough intents.
func (r *run) disturb() {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	enough, stop := context.WithTimeout(ctx, time.Duration(*minutes)*time.Minute)
	defer stop()
	all := situations()
	if *onlyCore {
		all = core()
	}
	chosen, err := regexp.Compile(*only)
	r.must(err)
	all = slices.DeleteFunc(all, func(s situation) bool { return !chosen.MatchString(s.name) })
	var work, suffering sync.WaitGroup
	done := make(chan struct{})
	work.Go(func() { r.changeTaints(ctx, rand.New(rand.NewPCG(*seed, 0))) })
	work.Go(func() { r.watchMemory(done) })
	for f := range families {
		list := slices.DeleteFunc(slices.Clone(all), func(s situation) bool { return s.family != f })
		if len(list) > 0 {
			suffering.Go(func() { r.suffer(enough, list, rand.New(rand.NewPCG(*seed, uint64(f)+1))) })
		}
	}
	suffering.Wait()
	if !r.failed() {
		<-enough.Done()
		r.awaitIntents()
	}
	cancel()
	close(done)
	work.Wait()
}

// awaitIntents waits until there are enough intents. The judge reports if they do not come.
func (r *run) awaitIntents() {
	err := r.await("there are enough intents", enoughLimit, func(ctx context.Context) error {
		h, err := r.rememberedHistory()
		if err == nil {
			err = r.readBus(ctx, h)
		}
		if err != nil {
			return err
		}
		if n := h.intentCount(); n < leastIntents**minutes {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	if err != nil {
		r.t.Log(err)
	}
}

func (r *run) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// settle keeps the taints of two nodes and waits until no pod is left on them that may move. Then it removes the taints and waits
// until all pods and roles are ready.
//
// It first restarts the controllers, which wait up to five minutes for pods that they tried to create when the API server died.
func (r *run) settle() {
	r.must(r.cluster.StopControllers())
	r.must(r.cluster.StartControllers())
	left := r.nodes[:2]
	for i, n := range r.nodes {
		if i < len(left) {
			r.setTaints(n, leave)
		} else {
			r.setTaints(n)
		}
	}
	leaves := func(ctx context.Context) error { return r.empty(ctx, left) }
	if err := r.await("all pods leave the tainted nodes", quietLimit, leaves); err != nil {
		r.fail("%v", err)
		return
	}
	for _, n := range left {
		r.setTaints(n)
	}
	r.waitReady()
	if err := r.ready(); err != nil {
		r.fail("%v", err)
	}
}

// empty returns an error that tells the story of the pods that are still on the nodes, unless they are protected.
func (r *run) empty(ctx context.Context, nodes []string) error {
	list, err := r.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "app!=" + kept})
	if err != nil {
		return err
	}
	stay := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !slices.Contains(nodes, p.Spec.NodeName) })
	if len(stay) == 0 {
		return nil
	}
	pause(ctx, 3*time.Second)
	h, err := r.readHistory(ctx)
	if err != nil {
		return fmt.Errorf("%d pods are still there: %w", len(stay), err)
	}
	var stories []string
	for _, p := range stay {
		stories = append(stories, fmt.Sprintf("%s/%s on %s: %s", p.Namespace, p.Name, p.Spec.NodeName, h.about(p.UID)))
	}
	return fmt.Errorf("%d pods are still there:\n%s", len(stay), strings.Join(firstOf(3, stories), "\n"))
}
