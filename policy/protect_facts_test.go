package policy

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// told are facts that a test sets. The zero value has none.
type told struct {
	replicas   map[types.UID]int
	budgeted   bool
	classes    map[string]string // by NAMESPACE/CLAIM
	priorities map[string]int32
	namespaces map[string]labels.Set
	room       bool
	asked      *[]string // the node selectors of the calls of Elsewhere
}

func (f told) Replicas(owner types.UID) int { return f.replicas[owner] }

func (f told) Budgeted(*corev1.Pod) bool { return f.budgeted }

func (f told) StorageClass(namespace, claim string) (string, bool) {
	class, found := f.classes[namespace+"/"+claim]
	return class, found
}

func (f told) Priority(class string) (int32, bool) {
	value, found := f.priorities[class]
	return value, found
}

func (f told) NamespaceLabels(name string) (labels.Set, bool) {
	of, found := f.namespaces[name]
	return of, found
}

func (f told) Elsewhere(_ *corev1.Pod, to Targets) (fits, judged bool, why string) {
	if f.asked != nil {
		selector := "all"
		if to.Nodes != nil {
			selector = to.Nodes.String()
		}
		*f.asked = append(*f.asked, selector)
	}
	if f.room {
		return true, true, ""
	}
	return false, true, "fits on none of 3 other nodes: resource on 3"
}

// ownedBy gives the owners a name that is not their UID.
func ownedBy(uids ...types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = nil
		for _, uid := range uids {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "ReplicaSet", Name: "api", UID: uid})
		}
	}
}

func ofClasses(names ...string) EvictorArgs {
	args := on(PodsWithPVC)
	for _, name := range names {
		classes := &args.PodProtections.Config.PodsWithPVC.ProtectedStorageClasses
		*classes = append(*classes, StorageClass{Name: name})
	}
	return args
}

func TestProtectionByFacts(t *testing.T) {
	type list = []schemas.Protection
	three := EvictorArgs{MinReplicas: 3}
	high := EvictorArgs{PriorityThreshold: PriorityThreshold{Name: "high"}}
	shop := EvictorArgs{NamespaceLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}}
	fitting := EvictorArgs{NodeFit: true}
	with := func(args EvictorArgs, change func(*EvictorArgs)) EvictorArgs { change(&args); return args }
	everything := with(on(PodsWithoutPDB), func(a *EvictorArgs) {
		a.MinReplicas, a.PriorityThreshold.Name, a.NodeFit = 3, "high", true
		a.NamespaceLabelSelector = shop.NamespaceLabelSelector
	})
	ofClass := func(class string) told { return told{classes: map[string]string{"web/data": class}} }
	replicas := func(n int) told { return told{replicas: map[types.UID]int{"rs": n}} }
	highIs := told{priorities: map[string]int32{"high": 100}}
	noClass := protected(PriorityThresholdRule, "the PriorityClass high, which is the threshold, does not exist")
	noBudget := protected(PodsWithoutPDB, "no PodDisruptionBudget selects it")
	tooFew := protected(MinReplicasRule, "the ReplicaSet api has 2 of the 3 pods that it must have")
	noNamespace := protected(NamespaceSelectorRule, "its namespace web is not known")
	noRoom := protected(NodeFitRule, "fits on none of 3 other nodes: resource on 3")
	refused := protected(EvictAnnotationFalseRule, `its annotation descheduler.alpha.kubernetes.io/evict is "false"`)
	for _, c := range []struct {
		name  string
		args  EvictorArgs
		facts Facts
		pod   *corev1.Pod
		want  list
	}{
		{"an owner with fewer pods than it must have", three, replicas(2), pod(ownedBy("rs")), list{tooFew}},
		{"an owner with as many pods as it must have", three, replicas(3), pod(ownedBy("rs")), nil},
		{"two owners are not counted", three, replicas(2), pod(ownedBy("rs", "rs")), nil},
		{"no owner is not counted", with(off(FailedBarePods), func(a *EvictorArgs) { a.MinReplicas = 3 }), replicas(0),
			pod(ownedBy(), phase(corev1.PodFailed)), nil},
		{"at least one pod is no limit", EvictorArgs{MinReplicas: 1}, replicas(0), pod(ownedBy("rs")), nil},

		{"no budget", on(PodsWithoutPDB), told{}, pod(), list{noBudget}},
		{"no budget, the older way", EvictorArgs{IgnorePodsWithoutPDB: true}, told{}, pod(), list{noBudget}},
		{"a budget", on(PodsWithoutPDB), told{budgeted: true}, pod(), nil},
		{"no budget does not protect by default", EvictorArgs{}, told{}, pod(), nil},

		{"a claim of a class that is listed", ofClasses("fast", "local"), ofClass("local"), pod(volume("data", claim)),
			list{protected(PodsWithPVC, "its volume data is the claim data of the storage class local")}},
		{"a claim of a class that is not listed", ofClasses("fast"), ofClass("slow"), pod(volume("data", claim)), nil},
		{"a claim without a class", ofClasses("fast"), ofClass(""), pod(volume("data", claim)),
			list{protected(PodsWithPVC, "its volume data is the claim data, which has no storage class")}},
		{"missing claim", ofClasses("fast"), told{}, pod(volume("data", claim)),
			list{protected(PodsWithPVC, "its volume data is the claim data, which does not exist")}},
		{"a claim of the same name in another namespace", ofClasses("fast"),
			told{classes: map[string]string{"shop/data": "slow"}}, pod(volume("data", claim)),
			list{protected(PodsWithPVC, "its volume data is the claim data, which does not exist")}},
		{"no claim, with classes", ofClasses("fast"), told{}, pod(volume("config", config)), nil},
		{"without classes every claim protects", on(PodsWithPVC), ofClass("slow"), pod(volume("data", claim)),
			list{protected(PodsWithPVC, "its volume data is the claim data")}},
		{"classes have no effect when the rule is off", with(ofClasses("fast"), func(a *EvictorArgs) {
			a.PodProtections.ExtraEnabled = nil
		}), ofClass("fast"), pod(volume("data", claim)), nil},

		{"the priority of the class", high, highIs, pod(priority(100)),
			list{protected(PriorityThresholdRule, "its priority 100 is not below the threshold 100 of the PriorityClass high")}},
		{"a priority below the class", high, highIs, pod(priority(99)), nil},
		{"no priority is below every class", high, told{priorities: map[string]int32{"high": -5}}, pod(), nil},
		{"a class that does not exist protects every pod", high, told{}, pod(), list{noClass}},

		{"a namespace with the labels", shop, told{namespaces: map[string]labels.Set{"web": {"team": "shop"}}}, pod(), nil},
		{"a namespace without the labels", shop, told{namespaces: map[string]labels.Set{"web": {"team": "bank"}}}, pod(),
			list{protected(NamespaceSelectorRule, "the labels of its namespace web do not match team=shop")}},
		{"missing namespace", shop, told{}, pod(), list{noNamespace}},
		{"an empty selector selects missing namespaces",
			EvictorArgs{NamespaceLabelSelector: &metav1.LabelSelector{}}, told{}, pod(), nil},

		{"no room elsewhere", fitting, told{}, pod(), list{noRoom}},
		{"room elsewhere", fitting, told{room: true}, pod(), nil},
		{"room is not asked for by default", EvictorArgs{}, told{}, pod(), nil},
		{"a node selector alone asks for nothing", EvictorArgs{NodeSelector: "a=b"}, told{}, pod(), nil},

		{"every rule that applies is listed, in order, and room is not asked for then", everything, replicas(2),
			pod(ownedBy("rs"), annotated(EvictAnnotation, "false")), list{noClass, noBudget, tooFew, noNamespace, refused}},
		{"evict: true lifts neither namespaces", everything, replicas(2),
			pod(ownedBy("rs"), annotated(EvictAnnotation, "true")), list{noNamespace}},
		{"nor the need for room", everything, told{namespaces: map[string]labels.Set{"web": {"team": "shop"}}},
			pod(annotated(EvictAnnotation, "true")), list{noRoom}},
		{"without facts none of these rules applies", everything, nil, pod(ownedBy("rs"), priority(1000)), nil},
		{"nor does the rule for claims of some classes", ofClasses("fast"), nil, pod(volume("data", claim)), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := evictor(t, c.args).Protects(c.pod, noon, c.facts); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestElsewhereAskedLast(t *testing.T) {
	for _, c := range []struct {
		name string
		args EvictorArgs
		pod  *corev1.Pod
		want []string
	}{
		{"on all nodes", EvictorArgs{NodeFit: true}, pod(), []string{"all"}},
		{"on the selected nodes", EvictorArgs{NodeFit: true, NodeSelector: "pool=web, !gpu"}, pod(), []string{"!gpu,pool=web"}},
		{"not for a pod that is protected", EvictorArgs{NodeFit: true}, pod(owned("DaemonSet")), nil},
		{"not without nodeFit", EvictorArgs{NodeSelector: "pool=web"}, pod(), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			evictor(t, c.args).Protects(c.pod, noon, told{asked: &asked})
			if !reflect.DeepEqual(asked, c.want) {
				t.Errorf("asked with %q, want %q", asked, c.want)
			}
		})
	}
}

func TestNodesOfFit(t *testing.T) {
	for _, c := range []struct {
		name string
		e    Evictor
		want string // empty means all nodes
	}{
		{"nodeFit", evictor(t, EvictorArgs{NodeFit: true, NodeSelector: "pool=web"}), "pool=web"},
		{"nodeFit_and_a_strategy", evictor(t, EvictorArgs{NodeFit: true, NodeSelector: "pool=web"}).WithFit(), "pool=web"},
		{"a_strategy_without_nodeFit", evictor(t, EvictorArgs{NodeSelector: "pool=web"}).WithFit(), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			holds, to := c.e.NodeFit()
			got := ""
			if to.Nodes != nil {
				got = to.Nodes.String()
			}
			if !holds || got != c.want {
				t.Errorf("NodeFit applies: %t, on nodes %q; want true and %q", holds, got, c.want)
			}
		})
	}
}

func TestEvictorNeeds(t *testing.T) {
	for _, c := range []struct {
		name string
		args EvictorArgs
		want Needs
	}{
		{"none by default", EvictorArgs{}, Needs{}},
		{"none for disabled rules", EvictorArgs{
			MinReplicas: 1, NamespaceLabelSelector: &metav1.LabelSelector{}, NodeSelector: "a=b",
		}, Needs{}},
		{"none for any claim", on(PodsWithPVC), Needs{}},
		{"classes of claims", ofClasses("fast"), Needs{StorageClasses: true}},
		{"budgets", on(PodsWithoutPDB), Needs{Budgets: true}},
		{"budgets, the older way", EvictorArgs{IgnorePodsWithoutPDB: true}, Needs{Budgets: true}},
		{"all others", EvictorArgs{
			MinReplicas: 2, NodeFit: true, PriorityThreshold: PriorityThreshold{Name: "high"},
			NamespaceLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}},
		}, Needs{Replicas: true, Room: true, PriorityClasses: true, Namespaces: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := evictor(t, c.args).Needs(); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
