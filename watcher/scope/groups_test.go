package scope

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
	"github.com/rehome-dev/rehome/test/kit/scopetest"
)

// world is a random cluster.
type world struct {
	*rand.Rand
	nodes map[string]*corev1.Node
	pods  map[types.UID]*corev1.Pod
	made  int
}

func pick[T any](w *world, of ...T) T { return of[w.IntN(len(of))] }

func (w *world) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
	if w.IntN(5) > 0 {
		n.Labels["zone"] = pick(w, "a", "b", "c")
	}
	if w.IntN(6) == 0 {
		n.Labels["pool"] = pick(w, "off", "on")
	}
	if w.IntN(4) == 0 {
		n.Spec.Taints = []corev1.Taint{{Key: "t", Value: pick(w, "x", "y"), Effect: corev1.TaintEffectNoSchedule}}
	}
	status := corev1.ConditionTrue
	if w.IntN(8) == 0 {
		status = corev1.ConditionFalse
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(pick(w, "4", "8"))}
	return n
}

func (w *world) pod() *corev1.Pod {
	w.made++
	app := pick(w, "web", "api", "db")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pick(w, "one", "two"), Name: fmt.Sprintf("%s-%d", app, w.made), UID: types.UID(fmt.Sprint("uid-", w.made)),
			Labels:          map[string]string{"app": app, "hash": pick(w, "1", "2")},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: app}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: pick(w, "v1", "v2"), Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse(pick(w, "100m", "1"))},
		}}}},
	}
	for range pick(w, 0, 0, 1, 1, 2) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, w.constraint(app))
	}
	if w.IntN(3) == 0 {
		p.Spec.NodeSelector = map[string]string{"zone": pick(w, "a", "b")}
	}
	if w.IntN(3) == 0 {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{w.term(app)},
		}}
	}
	return p
}

func (w *world) constraint(app string) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{
		MaxSkew: int32(1 + w.IntN(2)), TopologyKey: pick(w, "zone", "kubernetes.io/hostname"), WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}
	if w.IntN(3) == 0 {
		c.MatchLabelKeys = []string{"hash"}
	}
	if w.IntN(3) == 0 {
		honor := corev1.NodeInclusionPolicyHonor
		c.NodeTaintsPolicy = &honor
	}
	if w.IntN(4) == 0 {
		c.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	}
	return c
}

func (w *world) term(app string) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{
		TopologyKey:   pick(w, "zone", "kubernetes.io/hostname", "rack"),
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(w, app, "db")}},
	}
	if w.IntN(3) == 0 {
		t.NamespaceSelector = &metav1.LabelSelector{}
	}
	return t
}

// change makes one random change, applies it to the groups, and returns the affected keys.
func (w *world) change(b *Builder, now time.Time) GroupKeys {
	switch name := fmt.Sprint("n", w.IntN(8)); w.IntN(9) {
	case 0:
		if old := w.nodes[name]; old != nil {
			delete(w.nodes, name)
			return first(b.NodeChanged(old, nil))
		}
	case 1, 2:
		old, n := w.nodes[name], w.node(name)
		w.nodes[name] = n
		return first(b.NodeChanged(old, n))
	case 3:
		if p := randtest.Value(w.Rand, w.pods); p != nil {
			delete(w.pods, p.UID)
			return b.PodChanged(p, nil, now)
		}
	case 4, 5:
		if old := randtest.Value(w.Rand, w.pods); old != nil {
			p := w.altered(old)
			w.pods[p.UID] = p
			return b.PodChanged(old, p, now)
		}
	default:
		p := w.pod()
		if w.IntN(5) > 0 {
			p.Spec.NodeName = name
		}
		w.pods[p.UID] = p
		return b.PodChanged(nil, p, now)
	}
	return nil
}

func (w *world) altered(old *corev1.Pod) *corev1.Pod {
	p := old.DeepCopy()
	switch w.IntN(5) {
	case 0:
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_790_000_000, 0)}
	case 1:
		p.Status.Phase = pick(w, corev1.PodSucceeded, corev1.PodRunning)
	case 2:
		p.Labels["app"] = pick(w, "web", "api", "db")
	case 3:
		if p.Spec.NodeName == "" {
			p.Spec.NodeName = fmt.Sprint("n", w.IntN(8))
		}
	case 4:
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "t", Operator: corev1.TolerationOpExists})
	}
	return p
}

func first(affected GroupKeys, _ bool) GroupKeys { return affected }

// contents returns the groups with a movable pod and everything in them, as text.
func contents(b *Builder) map[string]string {
	all := map[string]string{}
	usable := func(p *corev1.Pod) bool { return b.groups.nodes[p.Spec.NodeName].usable }
	for _, ix := range b.groups.indexes {
		for _, key := range ix.keys() {
			var content string
			switch v := ix.index.(type) {
			case *workloads:
				content = fmt.Sprint(names(sorted(v.groups[key].pods)), places(v, key))
			case *spreads:
				namespace, _, _ := strings.Cut(key, "/")
				c := v.copyOf(v.groups[key], namespace)
				for i, spec := range c.specs {
					content += fmt.Sprint(spec.String(), c.domains[i])
				}
				for _, p := range c.pods {
					content += fmt.Sprint(" ", p.Name, "@", p.place, usable(p.Pod))
				}
				for i, nodes := range c.nodes {
					for _, n := range nodes {
						content += fmt.Sprint(" ", c.places[i], "/", n.Name)
					}
				}
			case *domains:
				for _, c := range v.contenders(key) {
					content += fmt.Sprint(" ", c.pod.Name, usable(c.pod), names(c.repels))
				}
			case usage:
				content = fmt.Sprint(figures(v))
			}
			all[string(ix.strategy.Scope)+" "+key] = content
		}
	}
	return all
}

// places returns the labels and taints of the nodes that are possible for each pod of a group.
func places(w *workloads, key string) []string {
	var list []string
	for _, p := range sorted(w.groups[key].pods) {
		affinity := nodeaffinity.GetRequiredNodeAffinity(p)
		for name, n := range inOrder(w.nodes) {
			if match, err := affinity.Match(n); err == nil && match && fit.Untolerated(n.Spec.Taints, p.Spec.Tolerations) == nil {
				list = append(list, p.Name+"@"+name)
			}
		}
	}
	return list
}

func inOrder[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

func names(pods []*corev1.Pod) []string {
	var list []string
	for _, p := range pods {
		list = append(list, p.Name)
	}
	return list
}

// figures returns the nodes with their requested resources. A missing sum equals zero.
func figures(u usage) []string {
	var list []string
	for _, n := range u.nodes() {
		cpu, pods := n.requested["cpu"], n.requested["pods"]
		list = append(list, fmt.Sprintln(n.node.Name, cpu.MilliValue(), pods.Value(), names(sorted(u[n.node.Name].pods))))
	}
	return list
}

// newWorld returns an empty world and a builder that follows it.
func newWorld(t *testing.T, seed uint64) (*world, *Builder) {
	t.Helper()
	p := scopetest.GroupPolicy()
	if seed%2 == 0 { // the index of spreads sees all nodes
		p.Profiles[0].Strategies[1].Args = json.RawMessage(`{"needsRoom":true}`)
	}
	compiled, err := Compile(p)
	expect.Must(t, err)
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{}}
	return w, NewBuilder(emptyCache(t), compiled)
}

func emptyCache(t testing.TB) *cluster.Cache {
	t.Helper()
	c, err := cluster.NewOffline(cluster.Nodes, cluster.Pods, cluster.Namespaces)
	expect.Must(t, err)
	return c
}

// rebuilt returns a builder that was built from the world at once.
func (w *world) rebuilt(t *testing.T, p *CompiledPolicy, now time.Time) *Builder {
	t.Helper()
	b := NewBuilder(emptyCache(t), p)
	w.fill(t, b.cluster)
	b.Rebuild(now)
	return b
}

func (w *world) fill(t *testing.T, c *cluster.Cache) {
	t.Helper()
	for _, n := range w.nodes {
		if err := c.Set(n.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range w.pods {
		if err := c.Set(p.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIndexes(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	t.Run("kept change by change equal indexes made at once", func(t *testing.T) {
		for range 20 {
			seed := rand.Uint64()
			w, kept := newWorld(t, seed)
			for step := range 120 {
				w.change(kept, now)
				if step%10 != 9 {
					continue
				}
				if got, want := contents(kept), contents(w.rebuilt(t, kept.policy, now)); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, step %d: kept change by change\n%v\nwant, as made at once\n%v", seed, step, got, want)
				}
			}
		}
	})
	// Every group whose content differs after a change must be among the returned groups, unless it had no movable pod
	// before and after.
	t.Run("return the groups that a change affects", func(t *testing.T) {
		for range 20 {
			seed := rand.Uint64()
			w, b := newWorld(t, seed)
			before := contents(b)
			for step := range 100 {
				named := map[string]bool{}
				for s, keys := range w.change(b, now) {
					for _, key := range keys {
						named[string(s.Scope)+" "+key] = true
					}
				}
				after := contents(b)
				for key := range merged(before, after) {
					if before[key] != after[key] && !named[key] {
						t.Fatalf("seed %d, step %d: %s changed and was not named\nbefore %v\nafter  %v", seed, step, key, before[key], after[key])
					}
				}
				before = after
			}
		}
	})
	t.Run("a node label that nothing selects affects no group", func(t *testing.T) {
		seed := rand.Uint64()
		w, b := newWorld(t, seed)
		for range 200 {
			w.change(b, now)
		}
		want := contents(b)
		for name, old := range inOrder(w.nodes) {
			n := old.DeepCopy()
			n.Labels["turn"] = "1"
			for s, keys := range first(b.NodeChanged(old, n)) {
				if len(keys) > 0 && !s.Opaque {
					t.Errorf("seed %d: node %s: affected are %s %q", seed, name, s.Scope, keys)
				}
			}
		}
		if got := contents(b); !reflect.DeepEqual(got, want) {
			t.Errorf("seed %d: after the changes\n%v\nwant\n%v", seed, got, want)
		}
	})
	t.Run("heal at a rebuild", func(t *testing.T) {
		seed := rand.Uint64()
		w, b := newWorld(t, seed)
		for range 200 {
			w.change(b, now)
		}
		want := contents(b)
		w.fill(t, b.cluster)
		for _, ix := range b.groups.indexes { // as a bug in an index could leave it
			switch v := ix.index.(type) {
			case *workloads:
				clear(v.groups)
			case *spreads:
				clear(v.groups)
			case *domains:
				clear(v.at)
			case usage:
				clear(v)
			}
		}
		clear(b.groups.pods)
		if got := contents(b); reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: the indexes are not corrupted", seed)
		}
		b.Rebuild(now)
		if got := contents(b); !reflect.DeepEqual(got, want) {
			t.Errorf("seed %d: after a rebuild\n%v\nwant\n%v", seed, got, want)
		}
	})
	t.Run("forget a pod deleted during a rebuild", func(t *testing.T) {
		seed := rand.Uint64()
		for !deletedDuringRebuild(t, seed) { // this world has no pod with constraints
			seed++
		}
	})
}

// deletedDuringRebuild deletes a pod during a rebuild, and compares the indexes with the world afterwards. It reports
// whether there was a pod.
func deletedDuringRebuild(t *testing.T, seed uint64) bool {
	t.Helper()
	w, _ := newWorld(t, seed)
	listed := func(*corev1.Pod) {}
	p := scopetest.GroupPolicy()
	p.Profiles[0].Strategies[1].NewArgs = func() policy.Args { return &listing{listed: &listed} }
	compiled, err := Compile(p)
	expect.Must(t, err)
	b := NewBuilder(emptyCache(t), compiled)
	for range 50 {
		w.change(b, now)
	}
	w.fill(t, b.cluster)
	listed = func(pod *corev1.Pod) {
		listed = func(*corev1.Pod) {}
		if err := b.cluster.Remove(pod); err != nil {
			t.Error(err)
		}
		delete(w.pods, pod.UID)
		b.PodChanged(pod, nil, now)
	}
	before := len(w.pods)
	b.Rebuild(now)
	if len(w.pods) == before {
		return false
	}
	if got, want := contents(b), contents(w.rebuilt(t, compiled, now)); !reflect.DeepEqual(got, want) {
		t.Errorf("seed %d: after a rebuild\n%v\nwant\n%v", seed, got, want)
	}
	return true
}

// listing are arguments that call a function when the builder reads the constraints of a pod.
type listing struct {
	scopetest.Args
	listed *func(*corev1.Pod)
}

func (l *listing) Constraints(p *corev1.Pod) []corev1.TopologySpreadConstraint {
	(*l.listed)(p)
	return p.Spec.TopologySpreadConstraints
}

func merged(a, b map[string]string) map[string]string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}
