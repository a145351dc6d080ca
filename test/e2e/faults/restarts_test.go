package faults

import (
	"context"
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
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/policy"
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

func TestFaultsDuringRestarts(t *testing.T) {
	s := &restarts{
		run: newRun(t, evictionRate), random: rand.New(rand.NewPCG(*seed, 2)), begun: make(chan begun), leaders: map[string]string{},
		up: map[string]map[types.UID]bool{}, low: map[types.UID]string{}, hits: map[string]int{
			recordWritten: 0, replicaAdded: 0, rolloutBegun: 0, replacementDue: 0, podEvicted: 0, replicaReturned: 0,
			nodeCordoned: 0, nodeDrains: 0, nodeUncordoned: 0,
		},
	}
	s.startCluster()
	t.Cleanup(s.watch())
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
