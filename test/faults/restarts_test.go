package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
)

const (
	// restartTime is the shortest duration of the faults. A fifth of -minutes is added.
	restartTime = 2 * time.Minute
	// leastMoves is the number of intents below which the run fails, because it tests too little.
	leastMoves = 20
	// restartPolicy is added to the policy. With this cooldown, a Deployment moves again and again.
	restartPolicy = "restart: {workloads: Annotated, method: Surge, blockedByBudget: true, cooldown: 1s}\n"

	maintenanceLease = "rehome-maintenance"
)

// The steps of a restart and of a maintenance. The actuator takes the first ones, the maintenance role those of a node.
const (
	recordWritten   = "record written"
	replicaAdded    = "replica added"
	rolloutBegun    = "rollout begun"
	replacementDue  = "waiting for the replacement"
	podEvicted      = "eviction"
	replicaReturned = "replicas returned"
	nodeCordoned    = "cordon"
	nodeDrains      = "drain"
	nodeUncordoned  = "uncordon"
)

// The annotations of a restart, see package restart.
const (
	restartedAt   = "rehome.dev/restarted-at"
	restartUndo   = "rehome.dev/restart-undo"
	surgeReplicas = "rehome.dev/surge-replicas"
	surgeCost     = "rehome.dev/surge-cost-before"
)

// deployments are the Deployments of the run, two of each kind. A budget requires the least number of ready pods.
var deployments = map[string]struct {
	mark            string // the annotation rehome.dev/restart
	replicas, least int32
}{
	"one-surge-0": {"surge", 1, 1}, "one-rollout-0": {"restart", 1, 1}, "surge-0": {"surge", 3, 3}, "rollout-0": {"restart", 3, 3},
	"one-surge-1": {"surge", 1, 1}, "one-rollout-1": {"restart", 1, 1}, "surge-1": {"surge", 3, 3}, "rollout-1": {"restart", 3, 3},
	"evicted-0": {"false", 4, 3}, "evicted-1": {"false", 4, 3},
}

// restarts is a run with moves of several steps.
type restarts struct {
	*run
	kinds   rest.Interface
	pool    []string // nodes under maintenance
	random  *rand.Rand
	begun   chan begun        // steps; only a fault that waits for one receives it
	leaders map[string]string // role by lease
	hits    map[string]int    // by step, of the role that takes it

	readiness sync.Mutex
	up        map[string]map[types.UID]bool // ready pods by Deployment
	low       map[types.UID]string          // pods whose end left too few ready ones, and how many
}

// begun is a step that has begun.
type begun struct {
	step, deployment string
	at               string // of the record
}

func TestFaultsDuringRestarts(t *testing.T) {
	s := &restarts{
		run: newRun(t), random: rand.New(rand.NewPCG(*seed, 2)), begun: make(chan begun), leaders: map[string]string{},
		up: map[string]map[types.UID]bool{}, low: map[types.UID]string{}, hits: map[string]int{
			recordWritten: 0, replicaAdded: 0, rolloutBegun: 0, replacementDue: 0, podEvicted: 0, replicaReturned: 0,
			nodeCordoned: 0, nodeDrains: 0, nodeUncordoned: 0,
		},
	}
	var err error
	s.kinds, err = apply.NewClient(s.cluster.RESTConfig())
	s.must(errors.Join(err, s.cluster.AddKinds(t.Context())))
	s.pool, s.nodes = s.nodes[:nodes/2], s.nodes[nodes/2:]
	for name, is := range deployments {
		s.up[name] = map[types.UID]bool{}
		_, err := s.cluster.AddDeployment(t.Context(), namespace, name, int(is.replicas), func(d *appsv1.Deployment) {
			d.Annotations, d.Spec.MinReadySeconds = map[string]string{policy.RestartMark: is.mark}, 2
		})
		s.must(err)
	}
	for name, is := range deployments {
		s.must(s.cluster.WaitReady(t.Context(), namespace, name))
		budget := policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(is.least))}
		_, err := s.cluster.AddBudget(t.Context(), namespace, name, name, budget)
		s.must(err)
	}
	s.followPods()
	s.startRehome(restartPolicy)
	s.followSteps()
	s.disturb()
	for _, n := range s.nodes {
		s.setTaints(n)
	}
	s.must(s.maintain("last", s.pool, len(s.pool)))
	s.judge(leastMoves)
	s.checkEnd()
}

// followSteps reports each step that begins, until the end of the test.
func (s *restarts) followSteps() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	b, err := s.connect(ctx)
	s.must(err)
	all := informers.NewSharedInformerFactory(s.cluster.Client(), 0)
	_, err1 := all.Apps().V1().Deployments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { s.deploymentChanged(before.(*appsv1.Deployment), after.(*appsv1.Deployment)) }})
	_, err2 := all.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { s.nodeChanged(before.(*corev1.Node), after.(*corev1.Node)) }})
	_, err3 := all.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(p any) { s.podChanged(p.(*corev1.Pod), p.(*corev1.Pod)) },
		UpdateFunc: func(before, after any) { s.podChanged(before.(*corev1.Pod), after.(*corev1.Pod)) },
		DeleteFunc: func(p any) { s.podChanged(p.(*corev1.Pod), &corev1.Pod{}) }})
	s.must(errors.Join(err1, err2, err3))
	var following sync.WaitGroup
	following.Go(func() {
		seen := map[string]bool{}
		_ = b.Ledger().Follow(ctx, "", func(key string, value []byte) { s.recordsChanged(key, value, seen) })
	})
	s.t.Cleanup(func() {
		cancel()
		all.Shutdown()
		following.Wait()
		b.Close()
	})
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
}

// begins reports a step, if it is one and a fault waits.
func (s *restarts) begins(is bool, b begun) {
	if is {
		select {
		case s.begun <- b:
		default:
		}
	}
}

// recordsChanged reports a new restart in a ledger record, or in the records that have no key of their own yet.
func (s *restarts) recordsChanged(key string, value []byte, seen map[string]bool) {
	list := map[string]move.Record{}
	if key != "begun" || json.Unmarshal(value, &list) != nil {
		return
	}
	for _, r := range list {
		state, err := move.Decode[struct{ At string }](r.State)
		if err == nil && move.IsPlanned(r.State) && !seen[state.At] {
			seen[state.At] = true
			s.begins(true, begun{recordWritten, r.Workload.Name, state.At})
		}
	}
}

func (s *restarts) deploymentChanged(before, after *appsv1.Deployment) {
	step := restartStep(after)
	s.begins(step != "" && step != restartStep(before), begun{step: step, deployment: after.Name})
	s.begins(before.Annotations[surgeReplicas] != "" && after.Annotations[surgeReplicas] == "", begun{step: replicaReturned})
}

// restartStep returns the current step of a restart of a Deployment, or "".
func restartStep(d *appsv1.Deployment) string {
	surges, unseen := d.Annotations[surgeReplicas] != "", d.Status.ObservedGeneration < d.Generation
	switch {
	case !surges && d.Annotations[restartUndo] == "":
		return ""
	case unseen && surges:
		return replicaAdded
	case unseen:
		return rolloutBegun
	}
	return replacementDue
}

func (s *restarts) nodeChanged(before, after *corev1.Node) {
	s.begins(!before.Spec.Unschedulable && after.Spec.Unschedulable, begun{step: nodeCordoned})
	s.begins(before.Spec.Unschedulable && !after.Spec.Unschedulable, begun{step: nodeUncordoned})
	drains := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeDrainInProgress && c.Status == corev1.ConditionTrue
	}
	did := slices.ContainsFunc(before.Status.Conditions, drains)
	s.begins(!did && slices.ContainsFunc(after.Status.Conditions, drains), begun{step: nodeDrains})
}

// podChanged also counts the ready pods of a Deployment. Only Rehome stops pods.
func (s *restarts) podChanged(before, after *corev1.Pod) {
	name := workloadOf(before.Name)
	least := int(deployments[name].least)
	if before.Namespace != namespace || least == 0 {
		return
	}
	evicted := func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }
	was := slices.ContainsFunc(before.Status.Conditions, evicted)
	s.begins(!was && slices.ContainsFunc(after.Status.Conditions, evicted), begun{step: podEvicted})
	s.readiness.Lock()
	defer s.readiness.Unlock()
	switch ready := s.up[name]; {
	case cluster.IsReady(after):
		ready[before.UID] = true
	case ready[before.UID]:
		delete(ready, before.UID)
		if len(ready) < least {
			s.low[before.UID] = fmt.Sprintf("%s: pod %s went: %d ready pods are left, want %d", time.Now().Format(clock), before.Name, len(ready), least)
		}
	}
}

// disturb hits steps until the time is over and each step was hit. Meanwhile taints and maintenances move pods.
func (s *restarts) disturb() {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var work sync.WaitGroup
	done := make(chan struct{})
	work.Go(func() { s.changeTaints(ctx, rand.New(rand.NewPCG(*seed, 0))) })
	work.Go(func() { // maintains three nodes, one after the other, again and again
		random := rand.New(rand.NewPCG(*seed, 1))
		for i := 0; ctx.Err() == nil && !s.failed(); i++ {
			random.Shuffle(len(s.pool), func(i, k int) { s.pool[i], s.pool[k] = s.pool[k], s.pool[i] })
			if err := s.maintain(fmt.Sprint("maintenance-", i), s.pool[:3], 1); err != nil {
				s.fail("%v", err)
			}
			s.count("maintenances")
		}
	})
	work.Go(func() { s.watchMemory(done) })
	lasts := restartTime + time.Duration(*minutes)*time.Minute/5
	limited, stop := context.WithTimeout(ctx, lasts+enoughLimit)
	defer stop()
	s.findLeaders("", time.Time{})
	for began := time.Now(); limited.Err() == nil && !s.failed() && (time.Since(began) < lasts || s.fewestHits() == 0); {
		select {
		case b := <-s.begun:
			if s.hits[b.step] == s.fewestHits() || s.random.IntN(8) == 0 {
				s.strike(b)
			}
		case <-limited.Done():
		}
	}
	cancel()
	close(done)
	work.Wait()
	for step, n := range s.hits {
		s.counts["step hit: "+step] = n // the judge prints them
		if n == 0 {
			s.fail("no fault hit the step %q: %v", step, s.hits)
		}
	}
}

func leaseOf(step string) string {
	if step == nodeCordoned || step == nodeDrains || step == nodeUncordoned {
		return maintenanceLease
	}
	return actuatorLease
}

func (s *restarts) fewestHits() int { return slices.Min(slices.Collect(maps.Values(s.hits))) }

// strike kills or pauses, mostly the leader of the role that takes a step, and waits until each role has a leader again.
func (s *restarts) strike(b begun) {
	lease := leaseOf(b.step)
	switch s.random.IntN(6) {
	case 0:
		faults := slices.DeleteFunc(situations(), func(f situation) bool {
			return f.name != "restart of the bus" && f.name != "pause of a server of the bus"
		})
		s.play(faults[s.random.IntN(len(faults))], s.random)
		s.findLeaders("", time.Time{})
		return
	case 1:
		lease = watcherLease
	}
	role := s.leaders[lease]
	p, sig := s.process(role), syscall.SIGSTOP
	f := situation{ofProcesses, "pause of the leading " + role, 16 * time.Second, nil} // a quarter is longer than the lease
	if s.random.IntN(2) == 0 {
		sig, f.name, f.lasts = syscall.SIGKILL, "kill of the leading "+role, 3*time.Second
	}
	f.begin = func(*run, *rand.Rand) (end func() error, err error) {
		err = signal(p, sig)
		if step := s.stepOf(b); step != "" && lease == leaseOf(step) {
			s.hits[step]++
			s.t.Logf("hit of the step %q", step)
		}
		return func() error {
			if sig == syscall.SIGSTOP {
				return signal(p, syscall.SIGCONT)
			}
			p.Kill() // waits until it is gone
			return s.start(role)
		}, err
	}
	began := time.Now()
	s.play(f, s.random)
	s.findLeaders(role, began)
}

// stepOf returns the step that a fault has hit, which can be the one after the step that it waited for.
func (s *restarts) stepOf(b begun) string {
	if b.step != recordWritten && b.step != replicaAdded && b.step != rolloutBegun {
		return b.step
	}
	d, err := s.cluster.Client().AppsV1().Deployments(namespace).Get(s.t.Context(), b.deployment, metav1.GetOptions{})
	s.must(err)
	if b.step == recordWritten && d.Annotations[restartedAt] != b.at {
		return b.step
	}
	return restartStep(d)
}

// findLeaders waits until each lease has a leader, and all roles are ready. A role that was hit leads only in a newer session.
func (s *restarts) findLeaders(hit string, at time.Time) {
	s.must(s.await("each role has a leader", quietLimit, func(context.Context) error {
		list, err := s.sessions()
		newest := map[string]session{}
		for _, one := range list {
			newest[one.lease] = one
		}
		for _, lease := range []string{actuatorLease, maintenanceLease, watcherLease} {
			if one, held := newest[lease]; !held || one.role == hit && one.from.Before(at) {
				return errors.Join(err, fmt.Errorf("no leader has the lease %s", lease))
			}
			s.leaders[lease] = newest[lease].role
		}
		return err
	}))
	s.must(s.ready())
}

// maintain drains nodes, some at once, returns each when no pod is left on it, and completes the maintenance.
func (s *restarts) maintain(name string, nodes []string, atOnce int) error {
	m := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeMaintenanceSpec{
		Nodes: v1alpha1.NodeSet{Names: nodes}, Stage: v1alpha1.Drain, Reason: "faults", AtOnce: new(intstr.FromInt(atOnce)),
	}}
	do := func(r *rest.Request) error { return r.Resource(v1alpha1.NodeMaintenances).Do(s.t.Context()).Into(m) }
	err := do(s.kinds.Post().Body(m))
	err = errors.Join(err, s.await("maintenance "+name+" completes", quietLimit, func(ctx context.Context) error {
		err := do(s.kinds.Get().Name(name))
		if meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.Completed) {
			return err
		}
		returned := 0
		for _, n := range m.Status.Nodes {
			switch n.Stage {
			case v1alpha1.Returned:
				returned++
			case v1alpha1.IsDrained:
				mark := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, schemas.AnnotationMaintained, name)
				err = errors.Join(err, s.empty(ctx, []string{n.Name}), s.cluster.PatchNode(ctx, n.Name, mark))
			}
		}
		if returned == len(nodes) {
			err = errors.Join(err, do(s.kinds.Patch(types.MergePatchType).Name(name).Body([]byte(`{"spec":{"stage":"Complete"}}`))))
		}
		return errors.Join(err, fmt.Errorf("%s: %+v", m.Status.Summary.Message, m.Status.Nodes))
	}))
	for _, n := range nodes {
		node, getErr := s.cluster.Client().CoreV1().Nodes().Get(s.t.Context(), n, metav1.GetOptions{})
		if err = errors.Join(err, getErr); getErr == nil && (node.Spec.Unschedulable || node.Annotations[schemas.AnnotationMaintenance] != "") {
			err = errors.Join(err, fmt.Errorf("maintenance %s is completed, and node %s is cordoned: %v", name, n, node.Annotations))
		}
	}
	return errors.Join(err, s.kinds.Delete().Resource(v1alpha1.NodeMaintenances).Name(name).Do(s.t.Context()).Error())
}

// checkEnd checks that nothing is left of a restart, and that moves always left enough ready pods.
func (s *restarts) checkEnd() {
	ctx := s.t.Context()
	for name, is := range deployments {
		s.must(s.cluster.WaitReady(ctx, namespace, name))
		d, err := s.cluster.Client().AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		s.must(err)
		if *d.Spec.Replicas != is.replicas || restartStep(d) != "" {
			s.fail("deployment %s has %d replicas and annotations %v, want %d and no restart", name, *d.Spec.Replicas, d.Annotations, is.replicas)
		}
	}
	list, err := s.cluster.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	s.must(err)
	for _, p := range list.Items {
		if _, marked := p.Annotations[surgeCost]; marked {
			s.fail("pod %s has the annotations %v, want no surge", p.Name, p.Annotations)
		}
	}
	h, err := s.readHistory(ctx)
	s.must(err)
	s.readiness.Lock()
	defer s.readiness.Unlock()
	for uid, text := range s.low {
		s.fail("%s: %s", text, h.about(uid))
	}
}
