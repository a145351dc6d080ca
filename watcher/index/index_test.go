package index

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
}

// replica is a pod of the ReplicaSet api that is to be spread over zones.
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

func constraints(p *corev1.Pod) []corev1.TopologySpreadConstraint {
	return p.Spec.TopologySpreadConstraints
}

func TestAGroupIsAtRestWhenItsPodsHaveBeenReplaced(t *testing.T) {
	n := node("n1", "a")
	first, second := replica("first"), replica("second")
	stranger := replica("stranger", func(p *corev1.Pod) {
		p.Labels, p.OwnerReferences = map[string]string{"app": "db"}, []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "db"}}
	})
	for _, c := range []struct {
		name    string
		happens func(Index)
		want    time.Time
	}{
		{"nothing has happened", func(Index) {}, time.Time{}},
		{"a pod has left", func(ix Index) { ix.Left(second, now) }, now.Add(time.Second)},
		{"a pod of others has left", func(ix Index) { ix.Left(stranger, now) }, time.Time{}},
		{"a replacement waits for a node", func(ix Index) { ix.Waits(second, true, now) }, now.Add(30 * time.Second)},
		{"it is told so twice", func(ix Index) {
			ix.Waits(second, true, now)
			ix.Waits(second, true, now.Add(time.Second))
		}, now.Add(30 * time.Second)},
		{"it has found one", func(ix Index) {
			ix.Waits(second, true, now)
			ix.Waits(second, false, now.Add(time.Second))
		}, time.Time{}},
		{"a pod of others waits", func(ix Index) { ix.Waits(stranger, true, now) }, time.Time{}},
	} {
		for kind, ix := range map[string]Index{"workloads": NewWorkloads(), "spreads": NewSpreads(constraints)} {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				ix.SetNode(nil, n)
				key := ix.Add(Member{Pod: first, Node: n})[0]
				c.happens(ix)
				if got := ix.Rest(key); !got.Equal(c.want) {
					t.Errorf("at rest at %v, want %v", got, c.want)
				}
			})
		}
	}
}

func TestTheUsageOfAllNodesIsAtRestWhenItsOwnMovesHaveSettled(t *testing.T) {
	u := NewUsage()
	u.Left(replica("somebody"), now)
	u.Waits(replica("anybody"), true, now)
	if got := u.Rest(Cluster); !got.IsZero() {
		t.Errorf("pods come and go: at rest at %v, want at once", got)
	}
	u.Moved(now)
	if got, want := u.Rest(Cluster), now.Add(time.Second); !got.Equal(want) {
		t.Errorf("a pod was moved: at rest at %v, want %v", got, want)
	}
	u.Waits(replica("replacement"), true, now.Add(time.Second))
	if got, want := u.Rest(Cluster), now.Add(31*time.Second); !got.Equal(want) {
		t.Errorf("its replacement waits: at rest at %v, want %v", got, want)
	}
	u.Waits(replica("replacement"), false, now.Add(2*time.Second))
	if got, want := u.Rest(Cluster), now.Add(time.Second); !got.Equal(want) {
		t.Errorf("it is placed: at rest at %v, want %v", got, want)
	}
}

func TestAnotherLabelOfANamespaceChangesWhomATermKeepsAway(t *testing.T) {
	n := node("n1", "a")
	of := map[string]labels.Set{}
	d := NewDomains(func(namespace string) labels.Set { return of[namespace] })
	keeper := replica("keeper", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "data"}},
			}},
		}}
	})
	db := replica("db", func(p *corev1.Pod) { p.Namespace, p.Labels = "data", map[string]string{"app": "db"} })
	d.Add(Member{Pod: keeper, Node: n})
	d.Add(Member{Pod: db, Node: n})
	for _, step := range []struct {
		labels  labels.Set
		touched []string
		want    []Contender
	}{
		{nil, []string{"zone=a"}, []Contender{}},
		{labels.Set{"team": "data"}, []string{"zone=a"}, []Contender{{Pod: db}, {Pod: keeper, Repels: []*corev1.Pod{db}}}},
		{labels.Set{"team": "web"}, []string{"zone=a"}, []Contender{}},
	} {
		of["data"] = step.labels
		if got := d.NamespaceChanged("data"); !reflect.DeepEqual(got, step.touched) {
			t.Errorf("labels %v: concerned are %q, want %q", step.labels, got, step.touched)
		}
		if got := d.Contenders("zone=a"); !reflect.DeepEqual(got, step.want) {
			t.Errorf("labels %v: got %v, want %v", step.labels, got, step.want)
		}
		if got := d.Has("zone=a"); got != (len(step.want) > 0) {
			t.Errorf("labels %v: there is something to move: %v", step.labels, got)
		}
	}
}

func TestADomainWithoutTheLabelIsTheNodeAlone(t *testing.T) {
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	d := NewDomains(func(string) labels.Set { return nil })
	alone := func(name string) *corev1.Pod {
		return replica(name, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}},
				}},
			}}
		})
	}
	d.Add(Member{Pod: alone("a"), Node: bare})
	d.Add(Member{Pod: alone("b"), Node: bare})
	d.Add(Member{Pod: alone("c"), Node: node("n1", "a")})
	if got, want := d.Keys(), []string{"zone@bare"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := TopologyKey("zone@bare"); got != "zone" {
		t.Errorf("the topology key is %q", got)
	}
}

func TestAWorkloadWithoutACrowdCountsOnlyWhereEveryOneDoes(t *testing.T) {
	const key = "shop/ReplicaSet/api"
	for _, every := range []bool{false, true} {
		w := NewWorkloads()
		w.Every = every
		n1, n2 := node("n1", "a"), node("n2", "b")
		w.SetNode(nil, n1)
		w.SetNode(nil, n2)
		type state struct {
			has  bool
			keys []string
		}
		look := func() state { return state{w.Has(key), w.Keys()} }
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
			{"one pod", func() { w.Add(Member{replica("a"), n1}) }, alone},
			{"two pods on two nodes", func() { w.Add(Member{replica("b"), n2}) }, alone},
			{"two pods on one node", func() { w.Add(Member{replica("c"), n1}) }, counts},
			{"one left", func() { w.Remove(Member{replica("c"), n1}) }, alone},
			{"all left", func() {
				w.Remove(Member{replica("a"), n1})
				w.Remove(Member{replica("b"), n2})
			}, not},
		} {
			step.do()
			if got := look(); !reflect.DeepEqual(got, step.want) {
				t.Errorf("every %v, %s: got %v, want %v", every, step.name, got, step.want)
			}
		}
	}
}
