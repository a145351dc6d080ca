package equivalence

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// world is a random cluster.
type world struct {
	*rand.Rand
	now   time.Time
	nodes map[string]*corev1.Node
	pods  map[types.UID]*corev1.Pod
	made  int
}

func newWorld(seed uint64) *world {
	return &world{
		Rand: rand.New(rand.NewPCG(seed, 0)), now: time.Now(),
		nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{},
	}
}

// wait lets time pass.
func (w *world) wait(d time.Duration) {
	time.Sleep(d)
	w.now = time.Now()
}

func (w *world) one(of ...string) string { return of[w.IntN(len(of))] }

// often is true in n of 10 cases.
func (w *world) often(n int) bool { return w.IntN(10) < n }

// objects returns copies of all objects, in a random order. A cache removes fields from the objects that it gets.
func (w *world) objects() []any {
	var list []any
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		list = append(list, w.nodes[name].DeepCopy())
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		list = append(list, w.pods[uid].DeepCopy())
	}
	w.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// change makes one random change and hands a copy of the object over.
func (w *world) change(set, remove func(object any)) {
	name := fmt.Sprint("n", w.IntN(7))
	switch w.IntN(12) {
	case 0:
		if n := w.nodes[name]; n != nil {
			delete(w.nodes, name)
			remove(n)
		}
	case 1, 2:
		w.nodes[name] = w.node(name)
		set(w.nodes[name].DeepCopy())
	case 3, 4:
		if p := randtest.Value(w.Rand, w.pods); p != nil {
			delete(w.pods, p.UID)
			remove(p)
		}
	case 5, 6, 7:
		if p := randtest.Value(w.Rand, w.pods); p != nil {
			w.pods[p.UID] = w.altered(p)
			set(w.pods[p.UID].DeepCopy())
		}
	default:
		p := w.pod(name)
		w.pods[p.UID] = p
		set(p.DeepCopy())
	}
}

func (w *world) node(name string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			"cpu": resource.MustParse(w.one("2", "4")), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse(w.one("5", "20")),
		}},
	}
	if w.often(8) {
		n.Labels["zone"] = w.one("a", "b", "c")
	}
	if w.often(3) {
		n.Labels["disk"] = w.one("ssd", "hdd")
	}
	if w.often(3) {
		effect := corev1.TaintEffect(w.one("NoSchedule", "PreferNoSchedule", "NoExecute"))
		n.Spec.Taints = []corev1.Taint{{Key: "t", Value: w.one("x", "y"), Effect: effect}}
	}
	if w.often(1) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	ready := corev1.ConditionTrue
	if w.often(1) {
		ready = corev1.ConditionUnknown
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func (w *world) pod(node string) *corev1.Pod {
	w.made++
	app := w.one("web", "api", "db")
	priority := int32(w.IntN(3) * 100)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.one("one", "two"), Name: fmt.Sprintf("%s-%d", app, w.made), UID: types.UID(fmt.Sprint("uid-", w.made)),
			Labels: map[string]string{"app": app}, CreationTimestamp: metav1.NewTime(w.now.Add(-time.Duration(w.IntN(7200)) * time.Second)),
		},
		Spec: corev1.PodSpec{
			Priority:   &priority,
			Containers: []corev1.Container{{Name: "c", Image: w.one("v1", "v2"), Resources: corev1.ResourceRequirements{Requests: w.requests()}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
	}
	if w.often(9) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID(app)}}
	}
	if w.often(9) {
		p.Spec.NodeName = node
		started := metav1.NewTime(p.CreationTimestamp.Add(time.Second))
		p.Status.StartTime = &started
	}
	w.place(p, app)
	w.status(p)
	return p
}

func (w *world) requests() corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(w.one("100m", "500m", "1")), "memory": resource.MustParse(w.one("64Mi", "1Gi"))}
}

// place adds scheduling constraints and preferences.
func (w *world) place(p *corev1.Pod, app string) {
	p.Spec.Affinity = &corev1.Affinity{}
	if w.often(2) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "t", Operator: corev1.TolerationOpEqual, Value: w.one("x", "y")}}
	}
	disk := []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{w.one("ssd", "hdd")}}}
	switch w.IntN(8) {
	case 0:
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: disk}}}}
	case 1:
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: int32(1 + w.IntN(9)), Preference: corev1.NodeSelectorTerm{MatchExpressions: disk}}}}
	case 2:
		p.Spec.NodeSelector = map[string]string{"zone": w.one("a", "b")}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	if w.often(3) {
		p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: w.one("zone", "kubernetes.io/hostname"), LabelSelector: selector}}}
	}
	if w.often(5) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: w.one("zone", "zone", "kubernetes.io/hostname"), LabelSelector: selector,
			WhenUnsatisfiable: corev1.UnsatisfiableConstraintAction(w.one("DoNotSchedule", "ScheduleAnyway")),
		}}
	}
}

// status makes some pods failed, restarting or done. A pod that has ended keeps its phase, as in Kubernetes.
func (w *world) status(p *corev1.Pod) {
	if schemas.Ended(p) {
		return
	}
	switch w.IntN(8) {
	case 0:
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, w.one("OutOfcpu", "Evicted")
	case 1:
		p.Status.Phase = corev1.PodSucceeded
	case 2:
		before := int32(0)
		if len(p.Status.ContainerStatuses) > 0 {
			before = p.Status.ContainerStatuses[0].RestartCount // which never falls
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: before + int32(w.IntN(8))}}
	}
}

func (w *world) altered(old *corev1.Pod) *corev1.Pod {
	p := old.DeepCopy()
	switch w.IntN(5) {
	case 0:
		deleted := metav1.NewTime(w.now)
		p.DeletionTimestamp = &deleted
	case 1:
		w.status(p)
	case 2:
		p.Labels["app"] = w.one("web", "api", "db")
	default:
		if p.Spec.NodeName == "" {
			p.Spec.NodeName = fmt.Sprint("n", w.IntN(7))
			started := metav1.NewTime(w.now)
			p.Status.StartTime = &started
		}
	}
	return p
}

// budget returns a budget that does not affect decisions.
func budget(namespace string) *policyv1.PodDisruptionBudget {
	least := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{}},
	}
}
