package scope

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/scopetest"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// replica returns a pod of the ReplicaSet api with a spread constraint over zones.
func replica(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "api"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "api"}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "api"}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}},
			}},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
}

func TestCooldown(t *testing.T) {
	n := node("n1", "a")
	first, second := replica("first"), replica("second")
	stranger := replica("stranger", func(p *corev1.Pod) {
		p.Labels, p.OwnerReferences = map[string]string{"app": "db"}, []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "db"}}
	})
	bound := func(p *corev1.Pod) *corev1.Pod {
		p = p.DeepCopy()
		p.Spec.NodeName = "n1"
		return p
	}
	for _, c := range []struct {
		name    string
		happens func(g *groups)
		want    time.Time
	}{
		{"nothing has happened", func(*groups) {}, time.Time{}},
		{"a pod has left", func(g *groups) { g.setPod(nil, bound(second), now); g.setPod(bound(second), nil, now) }, now.Add(time.Second)},
		{"another pod has left", func(g *groups) { g.setPod(nil, bound(stranger), now); g.setPod(bound(stranger), nil, now) }, time.Time{}},
		{"a replacement has no node", func(g *groups) { g.setPod(nil, second, now) }, now.Add(30 * time.Second)},
		{"a replacement has found a node", func(g *groups) {
			g.setPod(nil, second, now)
			g.setPod(second, bound(second), now.Add(time.Second))
		}, time.Time{}},
		{"another pod has no node", func(g *groups) { g.setPod(nil, stranger, now) }, time.Time{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			compiled, err := Compile(scopetest.GroupPolicy())
			expect.Must(t, err)
			b := NewBuilder(emptyCache(t), compiled)
			b.NodeChanged(nil, n)
			b.PodChanged(nil, bound(first), now)
			c.happens(b.groups)
			for _, s := range compiled.Strategies[:2] { // workloads and spreads
				key := b.KeysOf(s, bound(first))[0]
				if got := b.EarliestBuild(s, key); !got.Equal(c.want) {
					t.Errorf("%s: earliest build at %v, want %v", s.Scope, got, c.want)
				}
			}
		})
	}
}

func TestUsageCooldown(t *testing.T) {
	compiled, err := Compile(scopetest.GroupPolicy())
	expect.Must(t, err)
	b, s := NewBuilder(emptyCache(t), compiled), compiled.Strategies[3]
	want := func(what string, want time.Time) {
		t.Helper()
		if got := b.EarliestBuild(s, Cluster); !got.Equal(want) {
			t.Errorf("%s: earliest build at %v, want %v", what, got, want)
		}
	}
	b.PodChanged(nil, replica("anybody"), now)
	b.PodChanged(replica("anybody"), nil, now)
	b.PodChanged(nil, replica("pending"), now.Add(-PendingCooldown))
	want("pods come and go", time.Time{})
	b.Moved(s, now)
	want("a pod was moved", now.Add(time.Second))
	b.PodChanged(nil, replica("replacement"), now.Add(time.Second))
	want("its replacement has no node", now.Add(31*time.Second))
	b.Rebuild(now)
	want("after a rebuild", now.Add(31*time.Second))
	b.PodChanged(replica("replacement"), nil, now.Add(2*time.Second))
	b.PodChanged(nil, replica("early"), now.Add(9*time.Second))
	b.Moved(s, now.Add(10*time.Second))
	want("a replacement came before its verdict", now.Add(39*time.Second))
	b.PodChanged(nil, replica("unrelated"), now.Add(40*time.Second))
	want("a pod without a node came much later", now.Add(39*time.Second))
}

// A scope is built from a copy without the lock. A change in the meantime must not change the copy.
func TestUsageCopy(t *testing.T) {
	n := node("n1", "a")
	large := func(name string) member { // two of them request more than an int64 holds
		return member{replica(name, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("5Ei")}
		}), n}
	}
	memory := func(list []nodeRequests) string {
		sum := list[0].requested["memory"]
		return sum.String()
	}
	u := newUsage()
	u.setNode(nil, n)
	u.add(large("a"))
	u.add(large("b"))
	before := u.nodes()
	u.add(large("c"))
	added := u.nodes()
	u.remove(large("a"))
	u.remove(large("b"))
	got := []string{memory(before), memory(added), memory(u.nodes())}
	if want := []string{"10Ei", "15Ei", "5Ei"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUsageOfResizedPod resizes a pod from 2Gi to 1Gi in place. The kubelet reports the resources that it has not changed yet.
func TestUsageOfResizedPod(t *testing.T) {
	compiled, err := Compile(scopetest.GroupPolicy())
	expect.Must(t, err)
	b := NewBuilder(emptyCache(t), compiled)
	b.NodeChanged(nil, node("n1", "a"))
	pod := func(requests, held string) *corev1.Pod {
		return replica("a", func(p *corev1.Pod) {
			p.Spec.NodeName = "n1"
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"memory": resource.MustParse(requests)}
			if held != "" {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{
					Name: p.Spec.Containers[0].Name, AllocatedResources: corev1.ResourceList{"memory": resource.MustParse(held)},
				}}
			}
		})
	}
	var got []string
	var before *corev1.Pod
	for _, p := range []*corev1.Pod{pod("2Gi", ""), pod("1Gi", "2Gi"), pod("1Gi", "")} {
		b.PodChanged(before, p, now)
		before = p
		memory := b.groups.indexes[3].index.(usage).nodes()[0].requested["memory"]
		got = append(got, memory.String())
	}
	if want := []string{"2Gi", "2Gi", "1Gi"}; !slices.Equal(got, want) {
		t.Errorf("before, during, and after the resize: got %q, want %q", got, want)
	}
}

// keeperAndDB returns the index of a pod on a node that repels another one there, as long as the namespace data of the other
// one has the label team=data in of.
func keeperAndDB(n *corev1.Node, of map[string]labels.Set) (d *domains, keeper, db *corev1.Pod) {
	d = newDomains(func(namespace string) labels.Set { return of[namespace] })
	keeper = replica("keeper", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "data"}},
			}},
		}}
	})
	db = replica("db", func(p *corev1.Pod) { p.Namespace, p.Labels = "data", map[string]string{"app": "db"} })
	d.add(member{pod: keeper, node: n})
	d.add(member{pod: db, node: n})
	return d, keeper, db
}

func TestDomainNamespaceChanged(t *testing.T) {
	of := map[string]labels.Set{}
	d, keeper, db := keeperAndDB(node("n1", "a"), of)
	for _, step := range []struct {
		labels  labels.Set
		touched []string
		want    []contender
	}{
		{nil, []string{"zone=a"}, []contender{}},
		{labels.Set{"team": "data"}, []string{"zone=a"}, []contender{{pod: db}, {pod: keeper, repels: []*corev1.Pod{db}}}},
		{labels.Set{"team": "web"}, []string{"zone=a"}, []contender{}},
	} {
		of["data"] = step.labels
		if got := d.namespaceChanged("data"); !reflect.DeepEqual(got, step.touched) {
			t.Errorf("labels %v: concerned are %q, want %q", step.labels, got, step.touched)
		}
		if got := d.contenders("zone=a"); !reflect.DeepEqual(got, step.want) {
			t.Errorf("labels %v: got %v, want %v", step.labels, got, step.want)
		}
		if got := d.has("zone=a"); got != (len(step.want) > 0) {
			t.Errorf("labels %v: there is something to move: %v", step.labels, got)
		}
	}
}

// The informer of pods can be faster than the informer of namespaces, but the cache has the new labels.
func TestDomainBeforeNamespaceEvent(t *testing.T) {
	n, moved := node("n1", "a"), node("n1", "b")
	for _, c := range []struct {
		name    string
		change  func(d *domains, db *corev1.Pod) []string
		touched []string
	}{
		{"a pod is gone", func(d *domains, db *corev1.Pod) []string { return d.remove(member{db, n}) }, []string{"zone=a"}},
		{"its node has another zone", func(d *domains, db *corev1.Pod) []string { return d.setPodNode(db, n, moved) }, []string{"zone=a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := map[string]labels.Set{"data": {"team": "data"}}
			d, _, db := keeperAndDB(n, of)
			of["data"] = labels.Set{"team": "web"}
			if got := c.change(d, db); !slices.Equal(got, c.touched) {
				t.Errorf("concerned are %q, want %q", got, c.touched)
			}
			d.namespaceChanged("data")
			if got := d.keys(); len(got) > 0 {
				t.Errorf("got %q, want no domain with a conflict", got)
			}
		})
	}
}

// A new term looks only at the pods of the namespaces that it can select, and once at the labels of each.
func TestDomainLookups(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*corev1.PodAffinityTerm)
		looked map[string]int
		pods   int
	}{
		{"own namespace", func(*corev1.PodAffinityTerm) {}, map[string]int{"shop": 2}, 3},
		{"named namespace", func(t *corev1.PodAffinityTerm) { t.Namespaces = []string{"data"} }, map[string]int{"shop": 1, "data": 1}, 4},
		{"namespaces by label", func(t *corev1.PodAffinityTerm) {
			t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "data"}}
		}, map[string]int{"shop": 2, "data": 1, "web": 1}, 4},
		{"named namespace and by label", func(t *corev1.PodAffinityTerm) {
			t.Namespaces = []string{"web"}
			t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "data"}}
		}, map[string]int{"shop": 2, "data": 1, "web": 1}, 7},
		{"all namespaces", func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} },
			map[string]int{"shop": 2, "data": 1, "web": 1}, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			looked, n := map[string]int{}, node("n1", "a")
			d := newDomains(func(namespace string) labels.Set {
				looked[namespace]++
				return labels.Set{"team": namespace}
			})
			for namespace, pods := range map[string]int{"shop": 2, "data": 3, "web": 3} {
				for i := range pods {
					d.add(member{replica(fmt.Sprint(namespace, i), func(p *corev1.Pod) { p.Namespace = namespace }), n})
				}
			}
			d.add(member{replica("keeper", func(p *corev1.Pod) {
				term := corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}
				c.change(&term)
				p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
				}}
			}), n})
			expect.Equal(t, "lookups of labels by namespace", looked, c.looked)
			expect.Equal(t, "pods in conflict", len(d.contenders("zone=a")), c.pods)
		})
	}
}

func TestDomainWithoutLabel(t *testing.T) {
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	d := newDomains(func(string) labels.Set { return nil })
	alone := func(name string) *corev1.Pod {
		return replica(name, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}},
				}},
			}}
		})
	}
	d.add(member{pod: alone("a"), node: bare})
	d.add(member{pod: alone("b"), node: bare})
	d.add(member{pod: alone("c"), node: node("n1", "a")})
	if got := d.keys(); len(got) > 0 {
		t.Errorf("got %q, want none: the scheduler lets them share a node without the label", got)
	}
}

func TestWorkloadWithoutDuplicates(t *testing.T) {
	const key = "shop/ReplicaSet/api"
	for _, every := range []bool{false, true} {
		w := newWorkloads(every)
		n1, n2 := node("n1", "a"), node("n2", "b")
		w.setNode(nil, n1)
		w.setNode(nil, n2)
		type state struct {
			has  bool
			keys []string
		}
		look := func() state { return state{w.has(key), slices.Sorted(slices.Values(w.keys()))} }
		counts, not := state{true, []string{key}}, state{}
		alone := not
		if every {
			alone = counts
		}
		for _, step := range []struct {
			name string
			do   func()
			want state
		}{
			{"nothing", func() {}, not},
			{"one pod", func() { w.add(member{replica("a"), n1}) }, alone},
			{"two pods on two nodes", func() { w.add(member{replica("b"), n2}) }, alone},
			{"two pods on one node", func() { w.add(member{replica("c"), n1}) }, counts},
			{"one left", func() { w.remove(member{replica("c"), n1}) }, alone},
			{"all left", func() {
				w.remove(member{replica("a"), n1})
				w.remove(member{replica("b"), n2})
			}, not},
		} {
			step.do()
			if got := look(); !reflect.DeepEqual(got, step.want) {
				t.Errorf("every %v, %s: got %v, want %v", every, step.name, got, step.want)
			}
		}
	}
}

// The scope of a group must be built again when a terminating pod should be gone.
func TestStuckPod(t *testing.T) {
	w, b := newWorld(t, 1)
	for _, name := range []string{"n1", "n2"} {
		n := node(name, "a")
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.nodes[name] = n
	}
	for _, name := range []string{"a", "b"} {
		p := w.pod()
		p.Name, p.UID, p.Spec = name, types.UID(name), corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Image: "v1"}}}
		w.pods[p.UID] = p
	}
	for _, p := range w.pods {
		p.OwnerReferences = w.pods["a"].OwnerReferences
		p.Namespace = "one"
	}
	w.pods["b"].DeletionTimestamp = &metav1.Time{Time: now.Add(30 * time.Second)}
	w.fill(t, b.cluster)
	b.Rebuild(now)
	s := b.policy.Strategies[0]
	keys := b.Keys(s)
	if len(keys) != 1 {
		t.Fatalf("groups are %q, want one", keys)
	}
	for _, c := range []struct {
		at   time.Time
		want time.Time
	}{{now, now.Add(90 * time.Second)}, {now.Add(2 * time.Minute), time.Time{}}} {
		if r, err := b.Build(s.Key(keys[0]), nil, c.at); err != nil || !r.Again.Equal(c.want) {
			t.Errorf("at %v: again at %v, error %v, want %v", c.at, r.Again, err, c.want)
		}
	}
	sooner := w.pods["b"].DeepCopy()
	sooner.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Second)}
	if affected := b.PodChanged(w.pods["b"], sooner, now); !slices.Equal(affected[s], keys) {
		t.Errorf("a shorter grace period affects %q, want %q", affected[s], keys)
	}
}
