package converge

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
)

const (
	device     = corev1.ResourceName("test.rehome.dev/gpu")
	zone       = corev1.LabelTopologyZone
	hostname   = corev1.LabelHostname
	rack       = "test.rehome.dev/rack"
	replicaSet = "ReplicaSet"
	daemonSet  = "DaemonSet"
	// highPriority and lowPriority are classes whose pods do not preempt others.
	highPriority, lowPriority = "high", "low"
)

// generator makes one random world.
type generator struct {
	*rand.Rand
	*world
	// free is the remaining capacity of each node.
	free map[string]*room
}

type room struct{ cpu, pods, device int64 }

// random makes a world. The same strategy, seed, and number make the same one.
func random(strategy policy.Strategy, seed uint64, number int) *world {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", strategy.Name, number)
	g := &generator{
		Rand:  rand.New(rand.NewPCG(seed, h.Sum64())),
		world: &world{strategy: strategy, seed: seed, number: number},
		free:  map[string]*room{},
	}
	g.args, g.evictor = g.arguments()
	for i := range 2 + g.IntN(5) {
		g.addNode(fmt.Sprint("n", i))
	}
	for i := range 1 + g.IntN(4) {
		g.addWorkload(string(rune('a' + i)))
	}
	return g.world
}

// chance is true in that share of cases.
func (g *generator) chance(share float64) bool { return g.Float64() < share }

// of returns often for worlds of one of the strategies, and seldom for others.
func (g *generator) of(often, seldom float64, strategies ...string) float64 {
	if slices.Contains(strategies, g.strategy.Name) {
		return often
	}
	return seldom
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

const (
	taints       = "RemovePodsViolatingNodeTaints"
	restarts     = "RemovePodsHavingTooManyRestarts"
	lifeTime     = "PodLifeTime"
	failed       = "RemoveFailedPods"
	duplicates   = "RemoveDuplicates"
	antiAffinity = "RemovePodsViolatingInterPodAntiAffinity"
	nodeAffinity = "RemovePodsViolatingNodeAffinity"
	spread       = "RemovePodsViolatingTopologySpreadConstraint"
	low          = "LowNodeUtilization"
	high         = "HighNodeUtilization"
)

// arguments returns arguments for the strategy and for DefaultEvictor. Strategies that move a pod because of the pod or its node alone
// move it to wherever it fits: without nodeFit the policy accepts pods without a node.
func (g *generator) arguments() (args, evictor string) {
	args, evictor = "{}", pick(g, "{}", "{nodeFit: true}")
	switch g.strategy.Name {
	case taints:
		args, evictor = pick(g, "{}", "{}", "{includePreferNoSchedule: true}"), "{nodeFit: true}"
	case restarts:
		args, evictor = "{podRestartThreshold: 3}", "{nodeFit: true}"
	case lifeTime:
		args, evictor = "{maxPodLifeTimeSeconds: 3600}", "{nodeFit: true}"
	case failed:
		args, evictor = "{minPodLifetimeSeconds: 0}", "{nodeFit: true}"
	case nodeAffinity:
		args = pick(g, "{nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}",
			"{nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution, preferredDuringSchedulingIgnoredDuringExecution]}")
	case spread:
		args = pick(g, "{}", "{}", "{constraints: [DoNotSchedule, ScheduleAnyway]}")
	case low:
		args = pick(g, "{thresholds: {cpu: 30}, targetThresholds: {cpu: 60}}", "{thresholds: {cpu: 20, pods: 40}, targetThresholds: {cpu: 50, pods: 60}}",
			"{thresholds: {cpu: 10}, targetThresholds: {cpu: 10}, useDeviationThresholds: true}",
			"{thresholds: {cpu: 40, test.rehome.dev/gpu: 40}, targetThresholds: {cpu: 80, test.rehome.dev/gpu: 60}}")
	case high:
		args = pick(g, "{thresholds: {cpu: 30}}", "{thresholds: {cpu: 50}}", "{thresholds: {cpu: 40, pods: 40}}",
			"{thresholds: {cpu: 60, test.rehome.dev/gpu: 60}}")
	}
	return args, evictor
}

func (g *generator) addNode(name string) {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostname: name}}}
	if g.chance(0.9) {
		n.Labels[zone] = pick(g, "a", "b", "c")
	}
	if g.chance(0.5) {
		n.Labels[rack] = pick(g, "1", "2")
	}
	if g.chance(0.6) {
		n.Labels["disk"] = pick(g, "ssd", "hdd")
	}
	if g.chance(g.of(0.5, 0.15, taints)) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "dedicated", Value: pick(g, "x", "y"), Effect: pick(g,
			corev1.TaintEffectNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)})
	}
	if g.chance(g.of(0.2, 0.08, taints)) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	cpu, pods := pick[int64](g, 1, 2, 2, 4), pick[int64](g, 3, 6, 20)
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: *resource.NewQuantity(pods, resource.DecimalSI),
	}
	var devices int64
	if g.chance(0.3) {
		devices = pick[int64](g, 1, 2, 4)
		n.Status.Allocatable[device] = *resource.NewQuantity(devices, resource.DecimalSI)
	}
	n.Status.Capacity = n.Status.Allocatable
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	g.nodes = append(g.nodes, n)
	g.free[name] = &room{cpu * 1000, pods, devices}
}

func (g *generator) addWorkload(name string) {
	l := &workload{name: name, kind: replicaSet}
	cpu, devices := pick[int64](g, 100, 250, 500, 500, 1000, 1500), int64(0)
	if g.strategy.Name == spread {
		cpu = pick[int64](g, 100, 100, 250, 500)
	}
	requests := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI)}
	if g.chance(0.15) {
		devices = 1
		requests[device] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	l.template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name, "tier": pick(g, "front", "back")}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "image-" + name, Resources: corev1.ResourceRequirements{
				Requests: requests, Limits: corev1.ResourceList{},
			}}},
			AutomountServiceAccountToken: new(false),
		},
	}
	if devices > 0 {
		l.template.Spec.Containers[0].Resources.Limits[device] = requests[device]
	}
	g.addRules(l)
	g.workloads = append(g.workloads, l)
	replicas := 1 + g.IntN(6)
	if g.strategy.Name == spread {
		replicas = 2 + g.IntN(8)
	}
	for range replicas {
		g.place(l, cpu, devices)
	}
	if len(l.pods) == 1 && l.kind == replicaSet && g.chance(0.15) {
		l.volume = l.pods[0].node
	}
}

// place puts a pod on a node with capacity. Half of the pods go to the first such node, so that nodes are crowded.
func (g *generator) place(l *workload, cpu, devices int64) {
	var able []string
	for i := range g.nodes {
		name := g.nodes[i].Name
		if f := g.free[name]; f.cpu >= cpu && f.pods > 0 && f.device >= devices && !g.portTaken(l, name) {
			able = append(able, name)
		}
	}
	if len(able) == 0 {
		return
	}
	node := able[0]
	if g.chance(0.5) {
		node = pick(g, able...)
	}
	p := placed{node: node, age: time.Minute}
	if g.chance(0.5) {
		p.age = time.Duration(1+g.IntN(100)) * time.Hour
	}
	if g.chance(g.of(0.4, 0.05, restarts)) {
		p.restarts = int32(1 + g.IntN(9))
	}
	p.failed = g.chance(g.of(0.4, 0, failed))
	l.pods = append(l.pods, p)
	if !p.failed {
		g.free[node].cpu -= cpu
		g.free[node].pods--
		g.free[node].device -= devices
	}
}

// portTaken reports whether a pod on the node has the host port of the workload. All workloads with a port have the
// same.
func (g *generator) portTaken(l *workload, node string) bool {
	if len(l.template.Spec.Containers[0].Ports) == 0 {
		return false
	}
	for _, other := range g.workloads {
		for _, p := range other.pods {
			if len(other.template.Spec.Containers[0].Ports) > 0 && p.node == node {
				return true
			}
		}
	}
	return false
}

// addRules adds placement rules, and the cost of moving the pods.
func (g *generator) addRules(l *workload) {
	spec := &l.template.Spec
	if g.chance(0.08) {
		l.kind = daemonSet
	}
	if g.chance(0.3) {
		spec.PriorityClassName = pick(g, lowPriority, highPriority)
	}
	if g.chance(0.15) {
		l.template.Annotations = map[string]string{policy.PreferNoEviction: "true"}
	}
	if g.chance(g.of(0.4, 0.2, taints)) {
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual,
			Value: pick(g, "x", "y"), Effect: corev1.TaintEffectNoSchedule})
	}
	if g.chance(0.1) {
		spec.NodeSelector = map[string]string{"disk": pick(g, "ssd", "hdd")}
	}
	if g.chance(0.07) {
		spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	g.addNodeAffinity(l)
	if g.chance(g.of(0.85, 0.1, spread)) {
		g.addSpread(l)
		if g.chance(0.3) {
			g.addSpread(l)
		}
	}
	if g.chance(g.of(0.7, 0.1, antiAffinity)) {
		term := corev1.PodAffinityTerm{TopologyKey: pick(g, hostname, hostname, zone), LabelSelector: g.selector(l)}
		affinityOf(spec).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	}
	if g.chance(0.04) {
		term := corev1.PodAffinityTerm{TopologyKey: zone, LabelSelector: g.selector(l)}
		affinityOf(spec).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	}
}

func affinityOf(spec *corev1.PodSpec) *corev1.Affinity {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	return spec.Affinity
}

// selector selects the pods of the workload, or sometimes all of a tier.
func (g *generator) selector(l *workload) *metav1.LabelSelector {
	if g.chance(0.25) {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"tier": pick(g, "front", "back")}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": l.name}}
}

func (g *generator) addNodeAffinity(l *workload) {
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: "disk", Operator: pick(g, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{pick(g, "ssd", "hdd")},
	}}}
	a := corev1.NodeAffinity{}
	if g.chance(g.of(0.5, 0.05, nodeAffinity)) {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
	}
	if g.chance(g.of(0.4, 0.05, nodeAffinity)) {
		term.MatchExpressions[0].Operator = corev1.NodeSelectorOpIn
		a.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: pick[int32](g, 1, 50, 100), Preference: term}}
	}
	if a.RequiredDuringSchedulingIgnoredDuringExecution != nil || a.PreferredDuringSchedulingIgnoredDuringExecution != nil {
		affinityOf(&l.template.Spec).NodeAffinity = &a
	}
}

// addSpread adds a constraint with a key that the workload does not have yet.
func (g *generator) addSpread(l *workload) {
	c := corev1.TopologySpreadConstraint{
		MaxSkew: pick[int32](g, 1, 1, 1, 2), TopologyKey: pick(g, zone, zone, hostname, rack),
		WhenUnsatisfiable: pick(g, corev1.DoNotSchedule, corev1.DoNotSchedule, corev1.ScheduleAnyway), LabelSelector: g.selector(l),
	}
	for _, other := range l.template.Spec.TopologySpreadConstraints {
		if other.TopologyKey == c.TopologyKey {
			return
		}
	}
	if g.chance(0.05) {
		c.LabelSelector = &metav1.LabelSelector{}
	}
	if g.chance(0.15) && c.WhenUnsatisfiable == corev1.DoNotSchedule {
		c.MinDomains = new(int32(1 + g.IntN(4)))
	}
	if g.chance(0.2) {
		c.NodeTaintsPolicy = new(corev1.NodeInclusionPolicyHonor)
	}
	if g.chance(0.1) {
		c.NodeAffinityPolicy = new(corev1.NodeInclusionPolicyIgnore)
	}
	l.template.Spec.TopologySpreadConstraints = append(l.template.Spec.TopologySpreadConstraints, c)
}

// podName returns the name of the pod of a workload with this number.
func podName(l *workload, number int) string { return l.name + "-" + strconv.Itoa(number) }
