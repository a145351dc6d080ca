package fit_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
	"github.com/rehome-dev/rehome/test/kit/schedulertest"
)

const (
	// placements is how many pods are placed if the environment does not say it.
	placements = 2000
	// placedInScene is how many of them one state of the cluster sees.
	placedInScene = 100
	// predictedNodes is how many nodes a state has. From 100 fitting nodes on, the scheduler looks at a part of them only.
	predictedNodes = 24
	// shownDisagreements is how many disagreements are printed with all scores.
	shownDisagreements = 30
	// agreementWanted is the share of placements that the prediction must name.
	agreementWanted = 0.95
)

// placementsVariable names the environment variable for the number of placements.
const placementsVariable = "REHOME_TEST_PLACEMENTS"

// TestPrediction lets the scheduler place random pods in random clusters. A placement agrees if the prediction names the
// node, alone or with others of the same score.
func TestPrediction(t *testing.T) {
	count := placements
	if text := os.Getenv(placementsVariable); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	s := randtest.Seed(t)
	c := clustertest.New(t, cluster.Options{})
	more, err := c.AddNodes(t.Context(), predictedNodes-nodeCount) // before newJudge stops their kubelets
	expect.Must(t, err)
	j := newJudge(t, c, rand.New(rand.NewPCG(s, 2)))
	j.nodes = append(j.nodes, more...)
	schedulertest.Freeze(t, c, binaries.ControllerManager)
	p := predictions{causes: map[string]int{}, features: map[string][2]int{}}
	start := time.Now()
	for n := 0; p.asked < count; n++ {
		j.predictScene(n, min(placedInScene, count-p.asked), &p)
	}
	rate := float64(p.agreed) / float64(p.placed)
	t.Logf("%d pods, %d placed, %d predicted (%.2f %%), %d of them as the only node; %.1f nodes fit on average, %.1f are named; %v",
		p.asked, p.placed, p.agreed, 100*rate, p.only, float64(p.fitting)/float64(p.placed), float64(p.named)/float64(p.placed),
		time.Since(start).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(p.features)) {
		of := p.features[name]
		t.Logf("%6d of %4d × %s", of[0], of[1], name)
	}
	for _, cause := range slices.Sorted(maps.Keys(p.causes)) {
		t.Logf("%6d disagreements × %s", p.causes[cause], cause)
	}
	if rate < agreementWanted {
		t.Errorf("%.2f %% of %d placements are predicted, want %.0f %%", 100*rate, p.placed, 100*agreementWanted)
	}
	if p.placed < count*4/5 || p.only < p.agreed/2 {
		t.Errorf("%d of %d pods are placed, %d of %d predictions are one node: these worlds say little", p.placed, count, p.only, p.agreed)
	}
}

// predictions has the statistics of a whole run.
type predictions struct {
	asked, placed, agreed, only, fitting, named, shown int
	causes                                             map[string]int
	// features counts the placements that agree, and all, of pods with a feature.
	features map[string][2]int
}

// predictScene makes one state and places many pods in it, one after the other.
func (j *judge) predictScene(number, count int, p *predictions) {
	j.t.Helper()
	j.renewLeases()
	s := &scene{judge: j, number: number}
	controllers := s.makeControllers()
	each(s, namespaces(), func(ctx context.Context, name *string) error {
		n := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: *name}}
		if team := pick(j, "red", "blue", ""); team != "" {
			n.Labels = map[string]string{"team": team}
		}
		return s.changeNamespace(ctx, &n)
	})
	nodes := make([]corev1.Node, len(j.nodes))
	for i, name := range j.nodes {
		nodes[i] = s.sizedNode(name)
	}
	each(s, nodes, s.changeNode)
	s.awaitScheduler(nodes[0])
	pods := make([]corev1.Pod, 3*len(nodes))
	for i := range pods {
		pods[i] = *s.workloadPod(controllers)
		pods[i].Name, pods[i].Spec.NodeName = fmt.Sprintf("existing-%d-%d", number, i), pick(j, j.nodes...)
		if s.chance(0.05) {
			pods[i].Labels[terminatingLabel] = "true"
		}
	}
	each(s, pods, s.makePod)
	s.state = s.look()
	view := s.view()
	for i := range count {
		if s.chance(0.3) {
			s.replace(view, &pods[s.random.IntN(len(pods))], p)
			continue
		}
		asks := s.workloadPod(controllers)
		asks.Name = fmt.Sprintf("candidate-%d-%d", number, i)
		s.predict(view, asks, asks, p)
	}
	s.clear()
}

// replace lets the scheduler place the replacement of a pod, while the prediction is made for the pod on its node. Afterwards the pod
// is there again.
func (s *scene) replace(view *fit.Cluster, placed *corev1.Pod, p *predictions) {
	s.t.Helper()
	if placed.Labels[terminatingLabel] != "" {
		return
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if err := s.client.CoreV1().Pods(placed.Namespace).Delete(s.ctx, placed.Name, now); err != nil {
		s.t.Fatal(err)
	}
	asks := placed.DeepCopy()
	asks.Name, asks.Spec.NodeName = "replacement-of-"+placed.Name, ""
	i := slices.IndexFunc(s.state.Pods, func(p corev1.Pod) bool { return p.Namespace == placed.Namespace && p.Name == placed.Name })
	s.predict(view, asks, &s.state.Pods[i], p)
	if err := s.makePod(s.ctx, placed); err != nil {
		s.t.Fatal(err)
	}
}

// awaitScheduler places a pod that needs the last change of a node, so that the scheduler has seen all changes of
// nodes. The nodes are still empty means a node without room would never get the pod.
func (s *scene) awaitScheduler(last corev1.Node) {
	s.t.Helper()
	last.Labels["scene"], last.Spec.Taints = s.name("scene"), nil
	each(s, []corev1.Node{last}, s.changeNode)
	probe := plainPod(namespaces()[0], "probe")
	probe.Name, probe.Spec.NodeSelector = s.name("probe"), map[string]string{"scene": s.name("scene")}
	for n := 0; s.asker.ask(probe).node == ""; n++ {
		if n == 100 {
			s.t.Fatalf("the scheduler does not place %s on the empty node %s", probe.Name, last.Name)
		}
		probe.Name = s.name(fmt.Sprintf("probe-%d", n))
	}
}

// predict compares the placement of a pod with the prediction for the same pod, or for the pod that it replaces.
func (s *scene) predict(view *fit.Cluster, asks, predicted *corev1.Pod, p *predictions) {
	s.t.Helper()
	got := s.asker.ask(asks)
	p.asked++
	if got.node == "" {
		return
	}
	p.placed++
	kind := "replacement"
	if predicted == asks {
		kind, predicted = "new pod", got.pod
	}
	q := view.Ask(predicted)
	var best []string
	for _, n := range score.Predict(q, score.Default(), nil) {
		best = append(best, n.Name)
	}
	p.fitting += len(q.Candidates(nil))
	p.named += len(best)
	agrees := slices.Contains(best, got.node)
	for _, f := range append(features(asks), kind) {
		n := p.features[f]
		n[1]++
		if agrees {
			n[0]++
		}
		p.features[f] = n
	}
	if agrees {
		p.agreed++
		if len(best) == 1 {
			p.only++
		}
		return
	}
	p.causes[strings.Join(features(asks), ", ")]++
	if p.shown++; p.shown > shownDisagreements {
		return
	}
	s.t.Logf("%s went to %s, predicted %v:\n%s", asks.Name, got.node, best, toYAML(asks))
}

// features names what of a pod the score plugins look at.
func features(p *corev1.Pod) []string {
	var all []string
	add := func(name string, has bool) {
		if has {
			all = append(all, name)
		}
	}
	spec := &p.Spec
	a := affinity(p.DeepCopy())
	owner := metav1.GetControllerOf(p)
	if owner != nil {
		add("default spread of "+owner.Kind, len(spec.TopologySpreadConstraints) == 0)
	}
	add("resources of the pod", spec.Resources != nil)
	add("own spread", slices.ContainsFunc(spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.ScheduleAnyway
	}))
	add("preferred nodes", a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0)
	add("preferred affinity", a.PodAffinity != nil && len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0)
	add("preferred anti-affinity", a.PodAntiAffinity != nil && len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0)
	add("tolerations", len(spec.Tolerations) > 0)
	requests := spec.Containers[0].Resources.Requests
	add("no requests", len(requests) == 0 && spec.Resources == nil)
	add("device", !requests.Name(device, "").IsZero())
	add("plain", len(all) == 0)
	return all
}

// controller is an object that makes pods, with what its pods are like.
type controller struct {
	owner    metav1.OwnerReference
	template *corev1.Pod
}

// makeControllers makes workloads and Services that select their pods.
func (s *scene) makeControllers() []controller {
	s.t.Helper()
	var made []controller
	for i := range 6 {
		p := s.predictedPod()
		name := fmt.Sprintf("workload-%d-%d", s.number, i)
		p.Labels["app"] = pick(s.judge, "web", "db", "cache")
		p.Labels["workload"] = name
		meta := metav1.ObjectMeta{Namespace: p.Namespace, Name: name}
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"workload": name}}
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
		if s.chance(0.5) {
			s.must(s.client.CoreV1().Services(p.Namespace).Create(s.ctx, &corev1.Service{
				ObjectMeta: meta, Spec: corev1.ServiceSpec{
					Selector: map[string]string{"app": p.Labels["app"]}, Ports: []corev1.ServicePort{{Port: 80}},
				},
			}, metav1.CreateOptions{}))
		}
		kind, version, uid := "ReplicaSet", "apps/v1", types.UID("")
		switch s.upTo(3) {
		case 0:
			kind = "StatefulSet"
			set, err := s.client.AppsV1().StatefulSets(p.Namespace).Create(s.ctx, &appsv1.StatefulSet{
				ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template},
			}, metav1.CreateOptions{})
			s.must(set, err)
			uid = set.UID
		case 1:
			kind, version = "ReplicationController", "v1"
			set, err := s.client.CoreV1().ReplicationControllers(p.Namespace).Create(s.ctx, &corev1.ReplicationController{
				ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: selector.MatchLabels, Template: &template},
			}, metav1.CreateOptions{})
			s.must(set, err)
			uid = set.UID
		default:
			set, err := s.client.AppsV1().ReplicaSets(p.Namespace).Create(s.ctx, &appsv1.ReplicaSet{
				ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template},
			}, metav1.CreateOptions{})
			s.must(set, err)
			uid = set.UID
		}
		made = append(made, controller{
			metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: uid, Controller: new(true)}, p,
		})
	}
	return made
}

func (s *scene) must(_ any, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// workloadPod returns a pod of a controller, or one of its own.
func (s *scene) workloadPod(of []controller) *corev1.Pod {
	if s.chance(0.2) {
		p := s.predictedPod()
		p.Labels["app"] = "batch" // Services do not select pods that nothing replaces.
		return p
	}
	c := pick(s.judge, of...)
	p := c.template.DeepCopy()
	p.OwnerReferences = []metav1.OwnerReference{c.owner}
	return p
}

// predictedPod returns a pod with one to four of the wishes that score nodes.
func (s *scene) predictedPod() *corev1.Pod {
	p := s.blankPod()
	if s.chance(0.85) {
		s.addResources(p)
	}
	wishes := []func(*corev1.Pod){
		s.addSoftSpread, s.addPreferredNodes, s.addPreferredAffinity, s.addPreferredAntiAffinity, s.addInitContainers,
		s.addPodLevel, s.addSomeTolerations, s.addNodeSelector, s.addOneDevice,
	}
	for range s.upTo(3) {
		wishes[s.random.IntN(len(wishes))](p)
	}
	switch s.upTo(20) {
	case 0:
		s.addSpread(p)
	case 1:
		s.addAffinity(p)
	case 2:
		s.addAntiAffinity(p)
	}
	return p
}

func (s *scene) addSoftSpread(p *corev1.Pod) {
	for range 1 + s.upTo(1) {
		s.addSpread(p)
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		c.WhenUnsatisfiable, c.MinDomains, c.MaxSkew = corev1.ScheduleAnyway, nil, int32(1+s.upTo(3))
	}
}

func (s *scene) addPreferredNodes(p *corev1.Pod) {
	a := affinity(p)
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	for range 1 + s.upTo(2) {
		a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
			a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
				Weight:     int32(1 + s.upTo(99)),
				Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{s.nodeRequirement()}},
			})
	}
}

func (s *scene) addPreferredAffinity(p *corev1.Pod) {
	a := affinity(p)
	if a.PodAffinity == nil {
		a.PodAffinity = &corev1.PodAffinity{}
	}
	a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
		a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, s.weightedTerm())
}

func (s *scene) addPreferredAntiAffinity(p *corev1.Pod) {
	a := affinity(p)
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
		a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, s.weightedTerm())
}

func (s *scene) weightedTerm() corev1.WeightedPodAffinityTerm {
	return corev1.WeightedPodAffinityTerm{Weight: int32(1 + s.upTo(99)), PodAffinityTerm: s.term()}
}

func (s *scene) addSomeTolerations(p *corev1.Pod) {
	p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
		Key: pick(s.judge, "dedicated", "flaky"), Operator: corev1.TolerationOpExists,
		Effect: pick(s.judge, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule),
	})
}

func (s *scene) addOneDevice(p *corev1.Pod) {
	list := corev1.ResourceList{device: quantity("1")}
	p.Spec.Resources = nil
	maps.Copy(list, p.Spec.Containers[0].Resources.Requests)
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: corev1.ResourceList{device: quantity("1")}}
}

// sizedNode returns a node of one of many sizes, some with taints that the scheduler avoids.
func (s *scene) sizedNode(name string) corev1.Node {
	n := s.randomNode(name)
	n.Spec.Unschedulable = false
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
	for i := range n.Spec.Taints {
		if s.chance(0.5) {
			n.Spec.Taints[i].Effect = corev1.TaintEffectPreferNoSchedule
		}
	}
	for range s.upTo(2) {
		if s.chance(0.3) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key: pick(s.judge, "old", "dear", "spot"), Value: "x", Effect: corev1.TaintEffectPreferNoSchedule,
			})
			break
		}
	}
	n.Status.Allocatable = maps.Clone(n.Status.Allocatable)
	n.Status.Allocatable[corev1.ResourceCPU] = quantity(pick(s.judge, "2", "3500m", "4", "8", "15890m", "32"))
	n.Status.Allocatable[corev1.ResourceMemory] = quantity(pick(s.judge, "4Gi", "7654321Ki", "8Gi", "16Gi", "64Gi"))
	n.Status.Allocatable[corev1.ResourcePods] = quantity(pick(s.judge, "8", "30", "110"))
	n.Status.Capacity = n.Status.Allocatable
	return n
}
