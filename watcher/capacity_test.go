package watcher

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/test/kit/schematest"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// A check must follow when capacity changes after a dependent scope was built.
func TestFitDependents(t *testing.T) {
	f := newFitDependents()
	because := func(name string) trigger { return trigger{cause: schemas.Cause{Event: name}} }
	lacking := scope.Result{LackCapacity: []string{"web/a"}}
	checks := func() bool {
		select {
		case <-f.check:
			return true
		default:
			return false
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"capacity changes before anything depends on it", func() { f.changed(because("1")) }, false},
		{"a scope built after that", func() { f.depend(key("n1"), lacking, f.current()) }, false},
		{"capacity changes", func() { f.changed(because("2")) }, true},
		{"it changes again after a check", func() { f.changed(because("3")); checks(); f.changed(because("4")) }, true},
		{"a scope built before that", func() { f.depend(key("n2"), lacking, f.current()-1) }, true},
		{"a scope that does not depend on it", func() { f.depend(key("n2"), scope.Result{}, f.current()-1) }, false},
	} {
		step.do()
		if got := checks(); got != step.want {
			t.Errorf("%s: a check follows: %v, want %v", step.name, got, step.want)
		}
	}
	keys, why := f.take()
	if want := map[scope.Key]fitAnswer{key("n1"): {lackCapacity: []string{"web/a"}}}; !reflect.DeepEqual(keys, want) || why.cause.Event != "2" {
		t.Errorf("got %v because of %q, want %v because of the first change", keys, why.cause.Event, want)
	}
}

func TestCheckDelay(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 50 * time.Millisecond: time.Second, 51 * time.Millisecond: 1020 * time.Millisecond, 3 * time.Second: time.Minute,
	} {
		if got := checkDelay(took); got != want {
			t.Errorf("after %v: got %v, want %v", took, got, want)
		}
	}
}

func cpus(n string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Status.Allocatable = amount("cpu", n, "memory", "8Gi", "pods", "10") }
}

// crowded returns a cluster of two nodes. The pod big on n1 fits on no other node; the pod small does.
func crowded(more ...metav1.Object) []metav1.Object {
	return append([]metav1.Object{
		roomy("n1", cpus("5")), roomy("n2"), guest("big", "n1", asks("3")), guest("small", "n1", asks("1")),
		guest("left", "n2", asks("1")), guest("right", "n2", asks("1")),
	}, more...)
}

func TestPodWithoutCapacity(t *testing.T) {
	ended := guest("left", "n2", asks("1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	resizing := func(p *corev1.Pod) { // the kubelet has not freed the second CPU yet
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", AllocatedResources: amount("cpu", "2"), Resources: &corev1.ResourceRequirements{Requests: amount("cpu", "2")},
		}}
	}
	full := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	ready := conditioned
	tainted := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} }
	larger := cpus("8")
	inPool := func(n *corev1.Node) { n.Labels["pool"] = "web" }
	wants := guest("picky", "n1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": "web"} })
	claiming := guest("db", "n1", claims("data"))
	both := func(pod, cause string) []string {
		return []string{"nodes n1: " + cause, "pods web/" + pod + ": " + cause}
	}
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for _, c := range []struct {
		name    string
		objects []metav1.Object
		change  func(*driven)
		want    []string
	}{
		{"a pod is gone", crowded(), func(d *driven) { d.remove(guest("left", "n2", asks("1"))) }, both("big", "room pod/web/left")},
		{"a pod has ended", crowded(), func(d *driven) { d.set(ended) }, both("big", "room pod/web/left")},
		{"a pod was resized", crowded(roomy("n2", cpus("5")), guest("left", "n2", asks("1"), resizing)), func(d *driven) {
			d.set(guest("left", "n2", asks("1")))
		}, both("big", "room pod/web/left")},
		{"a pod that held nothing is gone", crowded(guest("unbound", "")), func(d *driven) { d.remove(guest("unbound", "")) }, nil},
		{"a pod that is gone leaves too little", crowded(guest("bigger", "n1", asks("4"))), func(d *driven) {
			d.remove(guest("big", "n1", asks("3")))
		}, nil},
		{"a node was added", crowded(), func(d *driven) { d.set(roomy("n3")) }, both("big", "node.added node/n3")},
		{"a node became ready", crowded(roomy("n3", ready(corev1.ConditionFalse))), func(d *driven) { d.set(roomy("n3", ready(corev1.ConditionTrue))) },
			both("big", "node.ready node/n3")},
		{"a node was uncordoned", crowded(roomy("n3", full)), func(d *driven) { d.set(roomy("n3")) }, both("big", "node.unschedulable node/n3")},
		{"a node lost a taint", crowded(roomy("n3", tainted)), func(d *driven) { d.set(roomy("n3")) },
			[]string{"nodes n1: node.taints node/n3", "nodes n3: node.taints node/n3", "pods web/big: node.taints node/n3"}},
		{"a node got larger", crowded(), func(d *driven) { d.set(roomy("n2", larger)) }, both("big", "node.allocatable node/n2")},
		{"a node got the label", []metav1.Object{roomy("n1"), roomy("n2"), wants}, func(d *driven) { d.set(roomy("n2", inPool)) },
			both("picky", "node.labels node/n2")},
		{"a claim was made", []metav1.Object{roomy("n1"), roomy("n2"), claiming, disk("d", "x")}, func(d *driven) { d.set(claimed("data", "x", "d")) },
			both("db", "room persistentvolumeclaim/web/data")},
		{"a volume can be used elsewhere", []metav1.Object{roomy("n1"), roomy("n2"), claiming, claimed("data", "x", "d"), disk("d", "x", only("n1"))},
			func(d *driven) { d.set(disk("d", "x")) }, both("db", "room persistentvolume/d")},
		{"an attachment is gone and nothing fits", crowded(attachment), func(d *driven) { d.remove(attachment) }, nil},
		{"a node is no longer emptied", crowded(roomy("n3", fixtures.RestartedByKured)), func(d *driven) { d.set(roomy("n3")) },
			[]string{"nodes n1: room node/n3", "nodes n3: resync", "pods web/big: room node/n3"}},
		{"a node that does not help", crowded(), func(d *driven) { d.set(roomy("n3", full)) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := protecting(t, policy.EvictorArgs{NodeFit: true})
				leadingOver(t, p, c.objects, func(d *driven, bus *collected) {
					c.change(d)
					expect.Equal(t, "scopes", scopesOf(t, bus), c.want)
				})
			})
		})
	}
}

// The pod small fits on n2 first. Its scopes are published again when it fits nowhere.
func TestLostCapacity(t *testing.T) {
	filler := func(node string) *corev1.Pod { return guest("filler-"+node, node, asks("3")) }
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	pool := func(n *corev1.Node) { n.Labels["pool"] = "web" }
	picky := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": "web"} }
	notReady := conditioned(corev1.ConditionFalse)
	both := func(cause string) []string { return []string{"nodes n1: " + cause, "pods web/small: " + cause} }
	for _, c := range []struct {
		name   string
		more   []metav1.Object
		change func(*driven)
		still  bool // it fits on n2 after the change
		want   []string
	}{
		{"a_pod_takes_it", []metav1.Object{filler("n3")}, func(d *driven) { d.set(filler("n2")) }, false, both("room pod/web/filler-n2")},
		{"another_node_has_room", nil, func(d *driven) { d.set(filler("n2")) }, false, nil},
		{"both_nodes_are_taken", nil, func(d *driven) { d.set(filler("n2")); d.set(filler("n3")) }, false, both("room pod/web/filler-n2")},
		{"its_node_is_cordoned", []metav1.Object{filler("n3")}, func(d *driven) { d.set(roomy("n2", cordoned)) }, false,
			both("node.unschedulable node/n2")},
		{"its_node_is_not_ready", []metav1.Object{filler("n3")}, func(d *driven) { d.set(roomy("n2", notReady)) }, false,
			both("node.ready node/n2")},
		{"its_node_is_gone", []metav1.Object{filler("n3"), roomy("n4", cpus("1"))}, func(d *driven) { d.remove(roomy("n2")) }, false,
			both("node.removed node/n2")},
		{"its_node_shrinks", []metav1.Object{filler("n3")}, func(d *driven) { d.set(roomy("n2", cpus("1"))) }, false,
			both("node.allocatable node/n2")},
		{"its_node_loses_a_label", []metav1.Object{roomy("n2", pool), guest("small", "n1", asks("2"), picky)},
			func(d *driven) { d.set(roomy("n2")) }, false, both("node.labels node/n2")},
		{"the_pod_grows", []metav1.Object{filler("n3")}, func(d *driven) { d.set(guest("small", "n1", asks("5"))) }, false,
			both("room pod/web/small")},
		{"an_unrelated_label", []metav1.Object{filler("n3")}, func(d *driven) { d.set(roomy("n2", pool)) }, true, nil},
		{"room_that_is_left", nil, func(d *driven) { d.set(guest("filler", "n2", asks("1"))) }, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := append([]metav1.Object{
					roomy("n1", cpus("8")), roomy("n2"), roomy("n3"), guest("small", "n1", asks("2")),
				}, c.more...)
				p := compiled(t, protecting(t, policy.EvictorArgs{NodeFit: true}))
				leading(t, newFixture(t, p, objects...), func(w *Watcher, bus *collected) {
					bus.take(t)
					scopes, key := w.session.Load().scopes, scope.Key{Profile: "p", Strategy: "nodes", Kind: schemas.NodeKind, Name: "n1"}
					before, err := scopes.Build(key, nil, time.Now())
					expect.Equal(t, "error", err, nil)
					expect.Equal(t, "fits", before.Fits, []scope.Fit{{Pod: "web/small", Node: "n2"}})
					c.change(drive(t, w))
					expect.Equal(t, "still fits", scopes.StillFit(key, before.Fits), c.still)
					expect.Equal(t, "scopes", scopesOf(t, bus), c.want)
				})
			})
		})
	}
}

func TestFitCheckInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leadingOver(t, protecting(t, policy.EvictorArgs{NodeFit: true}), crowded(), func(d *driven, bus *collected) {
			d.set(roomy("n2", func(n *corev1.Node) { n.Status.Allocatable = amount("cpu", "4", "memory", "1Gi", "pods", "10") }))
			expect.Equal(t, "a node that got no larger", scopesOf(t, bus), nil)
			d.set(roomy("n3"))
			time.Sleep(900 * time.Millisecond)
			expect.Equal(t, "less than a second after the last round", scopesOf(t, bus), nil)
			time.Sleep(100 * time.Millisecond)
			want := []string{"nodes n1: node.added node/n3", "pods web/big: node.added node/n3"}
			expect.Equal(t, "a second after the last round", scopesOf(t, bus), want)
			time.Sleep(time.Minute)
			d.remove(guest("left", "n2", asks("1")))
			expect.Equal(t, "once nothing waits any more", scopesOf(t, bus), nil)
		})
	})
}

func TestDeferredPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leadingOver(t, protecting(t, policy.EvictorArgs{}), crowded(), func(d *driven, bus *collected) {
			v := schemas.Verdict{
				Outcome: schemas.Deferred, Reason: schemas.ReasonNodeFit, Profile: "p", Strategy: "nodes",
				Scope:  schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"},
				Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "big", UID: "big"}, Node: "n1"},
			}
			e := schematest.Event(t, "/test", v, time.Now(), schemas.Event{})
			bus.tell(e)
			synctest.Wait()
			d.remove(guest("unrelated", "n1"))
			d.remove(guest("right", "n2", asks("1")))
			expect.Equal(t, "scopes", scopesOf(t, bus), []string{"nodes n1: retry pod/web/big room pod/web/right"})
		})
	})
}

// controlled gives a pod a ReplicaSet.
var controlled = fixtures.ControlledBy("ReplicaSet", "rs")

func TestReservation(t *testing.T) {
	// Two pods of 3 CPUs on n1; n2 has 4, so one of them fits there.
	first, second := guest("a", "n1", asks("3"), controlled), guest("second", "n1", asks("3"), controlled)
	tells := func(dryRun bool) func(*testing.T, *collected) {
		return func(t *testing.T, bus *collected) {
			toldOf(t, bus, schemas.Evicted, schemas.ReasonEvictionAccepted, dryRun)
		}
	}
	none, moved, dry := func(*testing.T, *collected) {}, tells(false), tells(true)
	renewing := func(p policy.Policy) policy.Policy {
		for i := range p.Profiles[0].Strategies {
			p.Profiles[0].Strategies[i].RenewsPods = true
		}
		return p
	}
	for _, c := range []struct {
		name   string
		args   policy.EvictorArgs
		tell   func(*testing.T, *collected)
		then   func(*driven)
		fits   bool
		renews bool // the strategies move old pods
	}{
		{"nothing was moved", policy.EvictorArgs{NodeFit: true}, none, func(*driven) {}, true, false},
		{"the gap is promised", policy.EvictorArgs{NodeFit: true}, moved, func(*driven) {}, false, false},
		{"it is in a dry run, which would have moved the pod", policy.EvictorArgs{NodeFit: true}, dry, func(*driven) {}, false, false},
		{"without nodeFit", policy.EvictorArgs{}, moved, func(*driven) {}, false, false},
		{"strategies renew pods, wherever they run", policy.EvictorArgs{}, moved, func(*driven) {}, true, true},
		{"the replacement went elsewhere", policy.EvictorArgs{NodeFit: true}, moved, func(d *driven) {
			d.set(guest("replacement", "n1", controlled))
		}, true, false},
		{"another pod was placed", policy.EvictorArgs{NodeFit: true}, moved, func(d *driven) {
			d.set(guest("stranger", "n1"))
		}, false, false},
		{"the replacement does not come", policy.EvictorArgs{NodeFit: true}, moved, func(*driven) { time.Sleep(reservationTimeout) }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := []metav1.Object{roomy("n1", cpus("8")), roomy("n2"), first, second}
				p := protecting(t, c.args)
				if c.renews {
					p = renewing(p)
				}
				leadingOver(t, p, objects, func(d *driven, bus *collected) {
					c.tell(t, bus)
					c.then(d)
					synctest.Wait()
					if fits, _, why := d.cluster.Elsewhere(second, policy.Targets{}); fits != c.fits {
						t.Errorf("fits: %v %s, want %v", fits, why, c.fits)
					}
				})
			})
		})
	}
}

// The end of an older move of the pod, which is stored late, does not end the reservation of the newer move.
func TestReservationOfNewerMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moving, second := guest("a", "n1", asks("3"), controlled), guest("second", "n1", asks("3"), controlled)
		objects := []metav1.Object{roomy("n1", cpus("8")), roomy("n2"), moving, second}
		leadingOver(t, protecting(t, policy.EvictorArgs{NodeFit: true}), objects, func(d *driven, bus *collected) {
			var fits []bool
			tell := func(outcome schemas.Outcome, reason schemas.ReasonCode, intent string) {
				toldOf(t, bus, outcome, reason, false, intent)
				synctest.Wait()
				fit, _, _ := d.cluster.Elsewhere(second, policy.Targets{})
				fits = append(fits, fit)
			}
			tell(schemas.Restarted, schemas.ReasonSurgeAccepted, "newer")
			tell(schemas.Settled, schemas.ReasonTakenBack, "older")
			tell(schemas.Settled, schemas.ReasonTakenBack, "newer")
			expect.Equal(t, "fits", fits, []bool{false, false, true})
		})
	})
}
