package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
)

const (
	// namespace is where most pods of the measurement are, and followNamespace where those are that RemoveDuplicates leaves
	// alone: a workload with more replicas than there are nodes has duplicates.
	namespace       = "bench"
	followNamespace = "bench-follow"
	// deploymentSize is how many replicas a Deployment has at most, unless its class says otherwise.
	deploymentSize = 100
	// timeout ends a measurement that does not come to its end: far more than anything here takes.
	timeout = 20 * time.Minute
	// inFlight is how many bare calls run at once: as many as Rehome's own by default.
	inFlight = 64
	// quiet is the pause before a measurement, so that effects of the previous one end.
	quiet = 300 * time.Millisecond
	// tenth is how much smaller the cluster is that the whole one is compared with.
	tenth = 10
)

// class is a part of the pods. A taint with the key of a class moves its pods alone: all others tolerate it.
type class struct {
	name, namespace string
	percent         int // of all pods
	deployments     int // how many; 0 means as many as have deploymentSize replicas each
	spread          bool
}

// The classes. Those of spreadPods have a topology spread constraint.
var (
	spreadPods = class{name: "spread", namespace: namespace, percent: 55, spread: true}
	plainPods  = class{name: "plain", namespace: namespace, percent: 25}
	largePods  = class{name: "large", namespace: followNamespace, percent: 10, deployments: 1}
	smallPods  = class{name: "small", namespace: followNamespace, percent: 10, deployments: 40}
	classes    = []class{spreadPods, plainPods, largePods, smallPods}
)

// has reports whether a pod, by its namespace and name, is of the class.
func (c class) has(pod string) bool { return strings.HasPrefix(pod, c.namespace+"/"+c.name+"-") }

// taint returns the key of the taint that moves the class.
func (c class) taint() string { return taintPrefix + c.name }

// replicas divides pods among the Deployments of the class, in a cluster of so many nodes.
func (c class) replicas(pods, nodes int) []int {
	size := max(min(deploymentSize, nodes/2), 1)
	if c.deployments > 0 {
		size = max(pods/c.deployments, 1)
	}
	var each []int
	for ; pods > 0; pods -= size {
		each = append(each, min(size, pods))
	}
	return each
}

// template returns the pod template of a Deployment of the class.
func (c class) template(labels map[string]string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "none"}}, TerminationGracePeriodSeconds: new(int64(0)),
		},
	}
	for _, other := range classes {
		if other.name != c.name {
			t.Spec.Tolerations = append(t.Spec.Tolerations, corev1.Toleration{Key: other.taint(), Operator: corev1.TolerationOpExists})
		}
	}
	if c.spread {
		constraint := func(key string, skew int32, otherwise corev1.UnsatisfiableConstraintAction) corev1.TopologySpreadConstraint {
			return corev1.TopologySpreadConstraint{
				TopologyKey: key, MaxSkew: skew, WhenUnsatisfiable: otherwise, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
			}
		}
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			constraint(corev1.LabelTopologyZone, deploymentSize, corev1.DoNotSchedule),
			constraint(corev1.LabelHostname, 1, corev1.ScheduleAnyway),
		}
	}
	return t
}

// stage is the cluster with its pods, and a Rehome that watches it.
type stage struct {
	options
	progress  *progress
	cluster   *cluster.Cluster
	client    kubernetes.Interface
	view      *view
	rehome    *process
	dir       string        // for the policy, and the stores of the programs
	starts    int           // how often rehome was started
	small     costs         // of changes in a tenth of the cluster
	idleShare float64       // of one core, that rehome uses while nothing happens; 0 means not measured yet
	evaluated time.Duration // from the start of rehome to the end of its first full evaluation
	began     time.Time
	made      map[string]int // pods of each class
	present   int            // pods of all classes
	added     int            // nodes
	next      int            // the node that is measured next
}

// newStage starts a control plane and fills it. With the part scale it measures a tenth of the cluster on the way.
func newStage(ctx context.Context, o options, p *progress) (*stage, error) {
	s := &stage{options: o, progress: p, began: time.Now(), made: map[string]int{}}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(err, s.clear())
	}
	return s, nil
}

func (s *stage) build(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "rehome-bench-"); err != nil {
		return err
	}
	s.progress.say("starting the control plane")
	if s.cluster, err = cluster.Start(ctx, cluster.Options{Durable: true}); err != nil {
		return err
	}
	s.client = s.cluster.Client()
	for _, name := range []string{namespace, followNamespace} {
		if err := s.cluster.AddNamespace(ctx, name); err != nil {
			return err
		}
	}
	if s.view, err = newView(ctx, s.client); err != nil {
		return err
	}
	if s.has("scale") {
		if s.small, err = s.measureTenth(ctx); err != nil {
			return fmt.Errorf("scale, a tenth of the cluster: %w", err)
		}
	}
	return s.fill(ctx, s.nodes, s.pods, classes...)
}

// clear ends what is left.
func (s *stage) clear() error {
	if s.cluster == nil {
		return os.RemoveAll(s.dir)
	}
	return errors.Join(s.cluster.Stop(), os.RemoveAll(s.dir))
}

// run starts rehome and measures the parts that need a cluster. others is how many processors were used meanwhile by processes
// that have nothing to do with it.
func (s *stage) run(ctx context.Context) (rows []row, others float64, err error) {
	if err := s.start(ctx); err != nil {
		return nil, 0, err
	}
	defer s.rehome.stop()
	usage := s.watchOthers()
	rows, err = s.measure(ctx)
	others = usage()
	for _, line := range s.rehome.warnings() {
		s.progress.say("rehome: %s", line)
	}
	if err != nil {
		err = fmt.Errorf("%w\nthe end of rehome's log:\n%s", err, s.rehome.lastWords())
	}
	if err != nil || !s.has("roles") {
		return rows, others, err
	}
	found, err := s.measureRoles(ctx, s.dir)
	return append(rows, found...), others, err
}

// fill adds what is missing to so many nodes and pods, and waits until the pods run. New pods are on new nodes, as many on each.
// They are made here, with their owners, while no controller runs: that takes a fraction of the time that the controllers and
// the scheduler would need.
func (s *stage) fill(ctx context.Context, nodes, pods int, of ...class) error {
	first := s.added
	if _, err := s.cluster.AddNodes(ctx, nodes-first); err != nil {
		return err
	}
	s.added = nodes
	s.progress.say("%d nodes are Ready", nodes)
	if err := s.cluster.StopControllers(); err != nil {
		return err
	}
	began, placed := time.Now(), 0
	for i, n := range divide(pods, of) {
		c := of[i]
		for k, replicas := range c.replicas(n-s.made[c.name], nodes) {
			from := placed
			node := func(pod int) string { return nodeName(first + (from+pod)%(nodes-first)) }
			if err := s.deploy(ctx, c, fmt.Sprintf("%s-%05d", c.name, s.made[c.name]+k), replicas, node); err != nil {
				return err
			}
			placed += replicas
		}
		s.made[c.name] = n
	}
	s.present = pods
	s.progress.say("%d pods are made after %v", pods, time.Since(began).Round(time.Second))
	if err := s.settled(ctx); err != nil {
		return err
	}
	if err := s.cluster.StartControllers(); err != nil {
		return err
	}
	if err := s.available(ctx); err != nil {
		return err
	}
	s.progress.say("%d pods run after %v", pods, time.Since(began).Round(time.Second))
	return s.settled(ctx)
}

// deploy makes a Deployment, its ReplicaSet, and its pods, each on a node.
func (s *stage) deploy(ctx context.Context, c class, name string, replicas int, node func(pod int) string) error {
	labels := map[string]string{"app": name}
	meta := metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: labels}
	selector, template, wanted := &metav1.LabelSelector{MatchLabels: labels}, c.template(labels), int32(replicas)
	d, err := s.client.AppsV1().Deployments(c.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &wanted, Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make deployment %s: %w", name, err)
	}
	// The Deployment's controller would set a hash as this label.
	template.Labels = map[string]string{"app": name, appsv1.DefaultDeploymentUniqueLabelKey: "bench"}
	meta.Name, meta.Labels = name+"-bench", template.Labels
	meta.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	r, err := s.client.AppsV1().ReplicaSets(c.namespace).Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: meta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &wanted, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make ReplicaSet %s: %w", meta.Name, err)
	}
	meta.Name, meta.GenerateName = "", r.Name+"-"
	meta.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	numbers := make([]int, replicas)
	for i := range numbers {
		numbers[i] = i
	}
	return parallel(numbers, inFlight, func(i int) error {
		p := &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}
		p.Spec.NodeName = node(i)
		if _, err := s.client.CoreV1().Pods(c.namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make a pod of %s: %w", name, err)
		}
		return nil
	})
}

// available waits until the controllers have found that all Deployments have their pods.
func (s *stage) available(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		missing := 0
		for _, n := range []string{namespace, followNamespace} {
			list, err := s.client.AppsV1().Deployments(n).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, d := range list.Items {
				if d.Status.ObservedGeneration != d.Generation || d.Status.AvailableReplicas != *d.Spec.Replicas {
					missing++
				}
			}
		}
		if missing == 0 {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return fmt.Errorf("%d deployments are not available: %w", missing, err)
		}
	}
}

// divide divides pods among classes by their percentages. The first has the rest.
func divide(pods int, of []class) []int {
	sum := 0
	for _, c := range of {
		sum += c.percent
	}
	each, rest := make([]int, len(of)), pods
	for i, c := range of[1:] {
		each[i+1] = pods * c.percent / sum
		rest -= each[i+1]
	}
	each[0] = rest
	return each
}

// start starts a rehome and waits until it has evaluated everything.
func (s *stage) start(ctx context.Context) (err error) {
	s.starts++
	if s.rehome, err = startRehome(ctx, s.dir, fmt.Sprintf("rehome-%d", s.starts), s.cluster.Kubeconfig()); err != nil {
		return err
	}
	s.idleShare = 0
	s.progress.say("rehome runs, process %d", s.rehome.Pid())
	if s.evaluated, err = s.rehome.waitEvaluated(ctx, s.added); err != nil {
		s.rehome.stop()
		return err
	}
	s.progress.say("rehome has evaluated everything after %v", s.evaluated.Round(10*time.Millisecond))
	return nil
}

// settled waits until all pods run and none is on its way out, and for a moment more.
func (s *stage) settled(ctx context.Context) error {
	said := time.Now()
	err := s.view.until(ctx, "all pods run", func() bool {
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			s.progress.say("%d of %d pods run", s.view.ready, s.present)
		}
		return s.view.ready == s.present && s.view.present == s.present
	})
	if err != nil {
		return err
	}
	return pause(ctx, quiet)
}

// measure takes the parts in turn.
func (s *stage) measure(ctx context.Context) ([]row, error) {
	var rows []row
	sampler, err := startSampler(s.profile, s.rehome.Pid())
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context) ([]row, error)
	}{
		{"start", s.measureStart},
		{"idle", s.measureIdle},
		{"changes", s.measureChanges},
		{"scale", s.measureScale},
		{"taints", s.measureTaints},
		{"moves", s.measureMoves},
		{"follow", s.measureFollow},
	} {
		if !s.has(part.name) {
			continue
		}
		s.progress.say("part %s", part.name)
		if err := s.settled(ctx); err != nil {
			return nil, err
		}
		found, err := part.measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		s.progress.rows(found)
		rows = append(rows, found...)
	}
	return rows, sampler.stop()
}

// watchOthers returns a function that says how many processors other processes used since. 0 where it is not known.
func (s *stage) watchOthers() func() float64 {
	pids := append(s.controlPlane(), s.rehome.Pid(), os.Getpid())
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
		name = nodeName(s.next % s.nodes)
		s.next++
		if pods = s.view.on(name); len(pods) >= n {
			return name, pods, nil
		}
	}
	return "", nil, fmt.Errorf("no node runs %d pods", n)
}

// nodeName returns the name that the test cluster gives to its node number i.
func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

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
