package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
)

const (
	// namespace is where all pods of the measurement are.
	namespace = "bench"
	// deploymentSize is the replicas of one Deployment.
	deploymentSize = 100
	// patience ends a measurement that does not come to its end: far more than anything here takes.
	patience = 5 * time.Minute
	// inFlight is how many bare calls run at once: as many as Rehome's own default.
	inFlight = 32
	// quiet is the pause before a measurement, in which what the one before has caused comes to rest.
	quiet = 300 * time.Millisecond
)

// stage is the cluster with its pods, and a Rehome that watches it.
type stage struct {
	options
	progress *progress
	cluster  *cluster.Cluster
	client   kubernetes.Interface
	view     *view
	rehome   *process
	began    time.Time
	next     int // the node that is measured next
}

// onStage sets the stage, measures what needs it and clears it away. others is how many processors were used meanwhile
// by processes that have nothing to do with it.
func onStage(ctx context.Context, o options, p *progress) (rows []row, others float64, err error) {
	dir, err := os.MkdirTemp("", "rehome-bench-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	s := &stage{options: o, progress: p, began: time.Now()}
	p.say("starting the control plane")
	if s.cluster, err = cluster.Start(ctx, cluster.Options{}); err != nil {
		return nil, 0, err
	}
	defer func() {
		if stopErr := s.cluster.Stop(); err == nil {
			err = stopErr
		}
	}()
	s.client = s.cluster.Client()
	if err := s.fill(ctx); err != nil {
		return nil, 0, err
	}
	if s.rehome, err = startRehome(ctx, dir, s.cluster.Kubeconfig(), p); err != nil {
		return nil, 0, err
	}
	defer s.rehome.stop()
	usage := s.watchOthers()
	rows, err = s.measure(ctx)
	others = usage()
	for _, line := range s.rehome.warnings() {
		p.say("rehome: %s", line)
	}
	if err != nil {
		err = fmt.Errorf("%w\nrehome's last words:\n%s", err, s.rehome.lastWords())
	}
	if err != nil || !s.has("roles") {
		return rows, others, err
	}
	found, err := s.measureRoles(ctx, dir)
	return append(rows, found...), others, err
}

// fill makes the nodes and pods, and waits until the pods run.
func (s *stage) fill(ctx context.Context) error {
	if _, err := s.cluster.AddNodes(ctx, s.nodes); err != nil {
		return err
	}
	s.progress.say("%d nodes are Ready", s.nodes)
	if err := s.cluster.AddNamespace(ctx, namespace); err != nil {
		return err
	}
	var err error
	if s.view, err = newView(ctx, s.client); err != nil {
		return err
	}
	for made := 0; made < s.pods; made += deploymentSize {
		name := fmt.Sprintf("app-%03d", made/deploymentSize)
		if _, err := s.cluster.AddDeployment(ctx, namespace, name, min(deploymentSize, s.pods-made)); err != nil {
			return err
		}
	}
	if err := s.settled(ctx); err != nil {
		return err
	}
	s.progress.say("%d pods run", s.pods)
	return nil
}

// settled waits until all pods run and none is on its way out, and for a moment more.
func (s *stage) settled(ctx context.Context) error {
	err := s.view.until(ctx, "all pods run", func() bool { return s.view.ready == s.pods && s.view.present == s.pods })
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(quiet):
		return nil
	}
}

// measure takes the parts in turn.
func (s *stage) measure(ctx context.Context) ([]row, error) {
	var rows []row
	sampler, err := startSampler(s.profile, s.rehome.pid())
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context) ([]row, error)
	}{{"taints", s.measureTaints}, {"drain", s.measureDrain}, {"idle", s.measureIdle}} {
		if !s.has(part.name) {
			continue
		}
		if part.name == "idle" {
			if err := sampler.stop(); err != nil {
				return nil, err
			}
		}
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		found, err := part.measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		rows = append(rows, found...)
	}
	return rows, sampler.stop()
}

// watchOthers returns a function that says how many processors other processes used since. 0 where it is not known.
func (s *stage) watchOthers() func() float64 {
	pids := append(s.controlPlane(), s.rehome.pid(), os.Getpid())
	began := time.Now()
	machineBegan, machineErr := watchMachine()
	own, ownErr := processorTime(pids...)
	return func() float64 {
		now, err := processorTime(pids...)
		if err != nil || ownErr != nil || machineErr != nil {
			return 0
		}
		all := machineBegan.busy() * float64(runtime.NumCPU())
		return max(all-(now-own).Seconds()/time.Since(began).Seconds(), 0)
	}
}

func (s *stage) controlPlane() []int {
	var pids []int
	for _, pid := range s.cluster.Pids() {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids
}

// takeNode returns the next node, in turn, that runs at least n pods.
func (s *stage) takeNode(n int) (name string, pods map[types.UID]string, err error) {
	for range s.nodes {
		name = fmt.Sprintf("node-%03d", s.next%s.nodes)
		s.next++
		if pods = s.view.on(name); len(pods) >= n {
			return name, pods, nil
		}
	}
	return "", nil, fmt.Errorf("no node runs %d pods", n)
}

// parallel calls do with each of list, at most limit calls at once, and returns the first error.
func parallel[T any](list []T, limit int, do func(T) error) error {
	var (
		calls sync.WaitGroup
		once  sync.Once
		first error
	)
	next := make(chan T)
	for range min(limit, len(list)) {
		calls.Go(func() {
			for x := range next {
				if err := do(x); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	for _, x := range list {
		next <- x
	}
	close(next)
	calls.Wait()
	return first
}
