package watcher

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// protecting returns a policy with one strategy for each kind of scope and the given protections.
func protecting(t *testing.T, args policy.EvictorArgs) policy.Policy {
	t.Helper()
	evictor, err := policy.NewEvictor(args)
	expect.Must(t, err)
	p := with("", nodesStrategy(), podsStrategy(0))
	p.Profiles[0].Evictor = evictor
	return p
}

// leadingOver runs a leading watcher in a cluster with these objects. The script changes the objects.
func leadingOver(t *testing.T, p policy.Policy, objects []metav1.Object, script func(d *driven, bus *collected)) {
	t.Helper()
	leading(t, newFixture(t, compiled(t, p), objects...), func(w *Watcher, bus *collected) {
		bus.take(t)
		script(drive(t, w), bus)
	})
}

// scopesOf returns the scopes published since the last call, sorted, as STRATEGY KEY with their causes. It omits the
// causes of full evaluations.
func scopesOf(t *testing.T, bus *collected) []string {
	t.Helper()
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	bus.mu.Lock()
	defer bus.mu.Unlock()
	var list []string
	for _, e := range bus.events {
		if e.Type != schemas.ScopeType {
			continue
		}
		h := schematest.Decode[schemas.ScopeHead](t, e)
		text := h.Strategy + " " + h.Key + ":"
		for _, cause := range h.Causes {
			text += " " + string(cause.Kind)
			if cause.Object != nil {
				text += " " + cause.Object.String()
			}
		}
		list = append(list, text)
	}
	bus.events = nil
	slices.Sort(list)
	return list
}

func TestProtectionChange(t *testing.T) {
	classes := policy.EvictorArgs{PodProtections: policy.PodProtections{ExtraEnabled: []string{policy.PodsWithPVC}}}
	classes.PodProtections.Config.PodsWithPVC.ProtectedStorageClasses = []policy.StorageClass{{Name: "fast"}}
	replicas := policy.EvictorArgs{MinReplicas: 3}
	teams := policy.EvictorArgs{NamespaceLabelSelector: selecting("team", "shop")}
	budgets := policy.EvictorArgs{PodProtections: policy.PodProtections{ExtraEnabled: []string{policy.PodsWithoutPDB}}}
	high := policy.EvictorArgs{PriorityThreshold: policy.PriorityThreshold{Name: "high"}}
	aged := policy.EvictorArgs{MinPodAge: metav1.Duration{Duration: time.Hour}}
	none := policy.EvictorArgs{}

	tolerant := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
	inShop := func(p *corev1.Pod) { p.Namespace = "shop" }
	labelled := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }
	undisrupted := func(p *corev1.Pod) { p.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"} }
	started := func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: time.Now().Truncate(time.Second)} }
	described := func(p *corev1.Pod) { p.Annotations = map[string]string{"description": "true"} }
	objects := func(more ...metav1.Object) []metav1.Object {
		return append([]metav1.Object{
			roomy("n1"), roomy("n2"), namespace("web", nil), namespace("shop", nil),
			guest("a", "n1", ofOwners("rs"), claims("data")), guest("b", "n2", ofOwners("rs"), labelled),
			guest("c", "n2", ofOwners("other"), inShop, claims("data")), guest("unbound", "", ofOwners("other"), claims("data")),
		}, more...)
	}
	third, unbound := guest("third", "n2", ofOwners("rs")), guest("third", "", ofOwners("rs"))
	allowing := pdb("b", selecting("app", "db"))
	allowing.Status.DisruptionsAllowed = 1
	for _, c := range []struct {
		name    string
		args    policy.EvictorArgs
		objects []metav1.Object
		change  func(*driven)
		want    []string
	}{
		{"an owner came to have enough pods", replicas, objects(), func(d *driven) { d.set(unbound) }, []string{
			"nodes n1: fact pod/web/third", "nodes n2: fact pod/web/third", "pods web/a: fact pod/web/third", "pods web/b: fact pod/web/third",
		}},
		{"an owner came to have too few pods", replicas, objects(unbound), func(d *driven) { d.remove(unbound) }, []string{
			"nodes n1: fact pod/web/third", "nodes n2: fact pod/web/third", "pods web/a: fact pod/web/third", "pods web/b: fact pod/web/third",
		}},
		{"a pod was taken over by an owner", replicas, objects(guest("third", "n2", ofOwners("lost"))), func(d *driven) { d.set(third) },
			[]string{
				"nodes n1: fact pod/web/third", "nodes n2: fact pod/web/third", "pods web/a: fact pod/web/third",
				"pods web/b: fact pod/web/third", "pods web/third: fact pod/web/third",
			}},
		{"an owner had enough pods before", replicas, objects(third), func(d *driven) { d.set(guest("fourth", "", ofOwners("rs"))) }, nil},
		{"an owner has still too few pods", replicas, objects(), func(d *driven) { d.remove(guest("b", "n2", ofOwners("rs"))) }, nil},
		{"no rule counts the pods", none, objects(), func(d *driven) { d.set(unbound) }, nil},

		{"a namespace has other labels", teams, objects(), func(d *driven) { d.set(namespace("web", map[string]string{"team": "shop"})) },
			[]string{
				"nodes n1: fact namespace/web", "nodes n2: fact namespace/web", "pods web/a: fact namespace/web", "pods web/b: fact namespace/web",
			}},
		{"a namespace is gone", teams, objects(), func(d *driven) { d.remove(namespace("shop", nil)) }, []string{
			"nodes n2: fact namespace/shop", "pods shop/c: fact namespace/shop",
		}},
		{"a namespace has the same labels", teams, objects(), func(d *driven) { d.set(namespace("web", nil)) }, nil},
		{"no rule reads namespaces", none, objects(), func(d *driven) { d.set(namespace("web", map[string]string{"team": "shop"})) }, nil},

		{"a budget was made", budgets, objects(), func(d *driven) { d.set(pdb("b", selecting("app", "db"))) }, []string{
			"nodes n2: fact poddisruptionbudget/web/b", "pods web/b: fact poddisruptionbudget/web/b",
		}},
		{"a budget is gone", budgets, objects(pdb("b", selecting("app", "api"))), func(d *driven) { d.remove(pdb("b", selecting("app", "api"))) },
			[]string{"nodes n1: fact poddisruptionbudget/web/b", "pods web/a: fact poddisruptionbudget/web/b"}},
		{"a budget selects other pods", budgets, objects(pdb("b", selecting("app", "api"))), func(d *driven) { d.set(pdb("b", &metav1.LabelSelector{})) },
			[]string{"nodes n2: fact poddisruptionbudget/web/b", "pods web/b: fact poddisruptionbudget/web/b"}},
		{"a budget allows more", budgets, objects(pdb("b", selecting("app", "db"))), func(d *driven) { d.set(allowing) }, nil},
		{"a pod has other labels", budgets, objects(pdb("b", selecting("app", "db"))), func(d *driven) { d.set(guest("a", "n1", ofOwners("rs"), claims("data"), labelled)) },
			[]string{"nodes n1: fact pod/web/a", "pods web/a: pod.labels pod/web/a fact pod/web/a"}},
		{"no_budget_selects_the_other_labels_of_a_pod", budgets, objects(), func(d *driven) { d.set(guest("b", "n2", ofOwners("rs"))) },
			[]string{"pods web/b: pod.labels pod/web/b"}},
		{"no rule reads budgets", none, objects(), func(d *driven) { d.set(pdb("b", selecting("app", "db"))) }, nil},

		{"a_pod_is_protected_by_an_annotation", none, objects(), func(d *driven) { d.set(guest("b", "n2", ofOwners("rs"), labelled, undisrupted)) },
			[]string{"nodes n2: fact pod/web/b", "pods web/b: fact pod/web/b"}},
		{"a_pod_is_protected_no_longer", none, objects(guest("d", "n2", undisrupted)), func(d *driven) { d.set(guest("d", "n2")) },
			[]string{"nodes n2: fact pod/web/d", "pods web/d: fact pod/web/d"}},
		{"a_pod_has_an_annotation_that_protects_nothing", none, objects(), func(d *driven) { d.set(guest("b", "n2", ofOwners("rs"), labelled, described)) }, nil},
		{"a_pod_tolerates_another_taint", none, objects(), func(d *driven) { d.set(guest("b", "n2", ofOwners("rs"), labelled, tolerant)) },
			[]string{"nodes n2: fact pod/web/b", "pods web/b: fact pod/web/b"}},

		{"a pod has started", aged, objects(), func(d *driven) { d.set(guest("b", "n2", ofOwners("rs"), labelled, started)) },
			[]string{"nodes n2: fact pod/web/b", "pods web/b: fact pod/web/b"}},
		{"no rule reads when a pod has started", none, objects(), func(d *driven) { d.set(guest("b", "n2", ofOwners("rs"), labelled, started)) }, nil},
		{"a pod went to an owner with enough pods", replicas, objects(third, guest("lost", "n1", ofOwners("none"))),
			func(d *driven) { d.set(guest("lost", "n1", ofOwners("rs"))) }, []string{"nodes n1: fact pod/web/lost", "pods web/lost: fact pod/web/lost"}},
		{"a pod got an owner", none, objects(guest("bare", "n2", ofOwners())), func(d *driven) { d.set(guest("bare", "n2", ofOwners("rs"))) },
			[]string{"nodes n2: fact pod/web/bare", "pods web/bare: fact pod/web/bare"}},

		{"a claim was made", classes, objects(), func(d *driven) { d.set(claimed("data", "slow", "")) }, []string{
			"nodes n1: fact persistentvolumeclaim/web/data", "pods web/a: fact persistentvolumeclaim/web/data",
		}},
		{"a claim is gone", classes, objects(claimed("data", "slow", "")), func(d *driven) { d.remove(claimed("data", "slow", "")) },
			[]string{"nodes n1: fact persistentvolumeclaim/web/data", "pods web/a: fact persistentvolumeclaim/web/data"}},
		{"a claim got its class", classes, objects(claimed("data", "", "")), func(d *driven) { d.set(claimed("data", "slow", "")) },
			[]string{"nodes n1: fact persistentvolumeclaim/web/data", "pods web/a: fact persistentvolumeclaim/web/data"}},
		{"a claim got its volume", classes, objects(claimed("data", "slow", "")), func(d *driven) { d.set(claimed("data", "slow", "v")) }, nil},
		{"no rule reads storage classes", none, objects(), func(d *driven) { d.set(claimed("data", "slow", "")) }, nil},

		{"a priority class has another value", high, objects(priorityClass(1)), func(d *driven) { d.set(priorityClass(2)) }, []string{
			"nodes n1: fact priorityclass/high", "nodes n2: fact priorityclass/high", "pods shop/c: fact priorityclass/high",
			"pods web/a: fact priorityclass/high", "pods web/b: fact priorityclass/high",
		}},
		{"a priority class has the same value", high, objects(priorityClass(1)), func(d *driven) { d.set(priorityClass(1)) }, nil},
		{"another priority class is gone", policy.EvictorArgs{PriorityThreshold: policy.PriorityThreshold{Name: "low"}},
			objects(priorityClass(1)), func(d *driven) { d.remove(priorityClass(1)) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leadingOver(t, protecting(t, c.args), c.objects, func(d *driven, bus *collected) {
					c.change(d)
					expect.Equal(t, "scopes", scopesOf(t, bus), c.want)
				})
			})
		})
	}
}

// protectionsOf returns the protections of the pods in the last scope of a key.
func protectionsOf(t *testing.T, bus *collected, key string) []schemas.Protection {
	t.Helper()
	time.Sleep(checkPause + 10*time.Millisecond) // the second check is delayed
	synctest.Wait()
	bus.mu.Lock()
	defer bus.mu.Unlock()
	for _, e := range slices.Backward(bus.events) {
		var scope schemas.PodScope
		if e.Type == schemas.ScopeType && json.Unmarshal(e.Data, &scope) == nil && scope.Key == key {
			return scope.Pod.Protected
		}
	}
	t.Fatalf("no scope of %s", key)
	return nil
}

func TestScopeHasProtectionsByFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := protecting(t, policy.EvictorArgs{MinReplicas: 2, NodeFit: true})
		start := []metav1.Object{roomy("n1"), roomy("n2"), guest("big", "n1", asks("3"), ofOwners("rs"))}
		leadingOver(t, p, start, func(d *driven, bus *collected) {
			full := guest("full", "n2", asks("4"))
			steps := []struct {
				name   string
				change func()
				want   []schemas.Protection
			}{
				{"it is the only pod of its owner", func() { d.set(guest("big", "n1", asks("3"), ofOwners("rs"), relabelled("1"))) },
					[]schemas.Protection{{Rule: policy.MinReplicasRule, Detail: "the ReplicaSet rs has 1 of the 2 pods that it must have"}}},
				{"it is one of two", func() { d.set(guest("pending", "", ofOwners("rs"))) }, nil},
				{"there is no room elsewhere", func() { d.set(full, guest("big", "n1", asks("3"), ofOwners("rs"), relabelled("2"))) },
					[]schemas.Protection{{Rule: policy.NodeFitRule, Detail: "does not fit on the only other node: resource"}}},
				{"there is room again", func() { d.remove(full) }, nil},
			}
			for _, step := range steps {
				step.change()
				expect.Equal(t, step.name, protectionsOf(t, bus, "web/big"), step.want)
			}
		})
	})
}

// relabelled gives a pod a label that no rule reads, to cause its evaluation.
func relabelled(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": "api", "step": value} }
}
