package fit_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// changing is a changing cluster, and its objects by kind and name.
type changing struct {
	random  *rand.Rand
	cluster *fit.Cluster
	objects map[string]any
}

func (c *changing) upTo(n int) int { return c.random.IntN(n + 1) }

func (c *changing) name(kind string, n int) string { return fmt.Sprintf("%s-%d", kind, c.upTo(n)) }

// step changes, adds or removes one object.
func (c *changing) step() {
	kinds := []func(name string) any{
		c.node, c.node, c.pod, c.pod, c.pod, c.pod, c.pod, c.namespace, c.claim, c.volume, c.class, c.csiNode, c.csiDriver,
		c.capacity, c.attachment,
	}
	kind := c.random.IntN(len(kinds))
	o := kinds[kind](fmt.Sprint(c.upTo(12)))
	key := fmt.Sprintf("%T %s", o, o.(metav1.Object).GetName())
	if c.upTo(3) == 0 {
		delete(c.objects, key)
		c.cluster.Remove(o.(metav1.Object))
		return
	}
	c.objects[key] = o
	c.cluster.Set(o.(metav1.Object))
}

func (c *changing) node(name string) any {
	return node(name, in(c.name("zone", 2)), nodeLabel("disk", c.name("disk", 2)), allocatable(string(device), strconv.Itoa(c.upTo(4))))
}

func (c *changing) pod(name string) any {
	p := pod(name, podLabel("app", c.name("app", 2)), requests("cpu", strconv.Itoa(c.upTo(2)), string(device), strconv.Itoa(c.upTo(2))))
	for _, change := range []podChange{
		hostPort("", "", int32(80+c.upTo(2))), apart(term(zone, c.name("app", 2))), uses(c.name("claim", 2)), terminating, ended,
		fixtures.NamedVolume("data", corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{CephMonitors: []string{"m"}, RBDImage: c.name("image", 2)}}),
		apart(term(hostname, c.name("app", 2))), near(term(zone, c.name("app", 2))), fixtures.ControlledBy("ReplicaSet", c.name("set", 2)),
		preferNear(int32(1+c.upTo(2)), term(zone, c.name("app", 2))), preferApart(int32(1+c.upTo(2)), term(zone, c.name("app", 2))),
		spread(zone, func(s *corev1.TopologySpreadConstraint) { s.LabelSelector = selects(c.name("app", 2)) }),
		spread("disk", func(s *corev1.TopologySpreadConstraint) { s.LabelSelector = selects(c.name("app", 2)) }),
	} {
		if c.upTo(3) == 0 {
			change(p)
		}
	}
	if c.upTo(5) > 0 {
		p.Spec.NodeName = fmt.Sprint(c.upTo(12))
	} else if c.upTo(1) > 0 {
		p.Status.NominatedNodeName = fmt.Sprint(c.upTo(12))
	}
	return p
}

func (c *changing) namespace(name string) any {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": c.name("team", 2)}}}
}

func (c *changing) claim(name string) any { return claim(name, bound(c.name("disk", 2))) }

func (c *changing) volume(name string) any {
	return disk(name, inClass(c.name("class", 2)), usableIn(zone, c.name("zone", 2)), labelled(zone, c.name("zone", 2)))
}

func (c *changing) class(name string) any {
	return class(name, c.name("driver", 2), storagev1.VolumeBindingWaitForFirstConsumer)
}

func (c *changing) csiNode(name string) any {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(c.upTo(3)))}},
	}}}
}

func (c *changing) csiDriver(name string) any {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(c.upTo(1) > 0)}}
}

func (c *changing) capacity(name string) any {
	return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, StorageClassName: c.name("class", 2)}
}

func (c *changing) attachment(name string) any {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: driver, NodeName: fmt.Sprint(c.upTo(12)), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(c.name("disk", 2))},
	}}
}

func TestChangedClusterEqualsRebuiltOne(t *testing.T) {
	c := &changing{random: randtest.New(t), cluster: fit.New(), objects: map[string]any{}}
	for n := range 3000 {
		c.step()
		if n%10 > 0 {
			continue
		}
		anew := fit.New()
		for _, o := range c.objects {
			anew.Set(o.(metav1.Object))
		}
		if !fit.Same(c.cluster, anew) {
			t.Fatalf("after %d changes the state differs from a cluster built from\n%s", n+1, slices.Sorted(maps.Keys(c.objects)))
		}
	}
}

// bound returns the pods on nodes, unchanged.
func (c *changing) bound() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if p, isPod := c.objects[key].(*corev1.Pod); isPod && p.Spec.NodeName != "" && p.Status.Phase == "" {
			pods = append(pods, p)
		}
	}
	return pods
}

// verdicts returns the answers for all nodes.
func verdicts(c *fit.Cluster, p *corev1.Pod) map[string]fit.Verdict {
	found := map[string]fit.Verdict{}
	for i := range 13 {
		found[fmt.Sprint(i)] = c.Ask(p).On(fmt.Sprint(i))
	}
	return found
}

func TestReplacementJudgedLikePod(t *testing.T) {
	c := &changing{random: randtest.New(t), cluster: fit.New(), objects: map[string]any{}}
	seen := map[fit.Reason]int{}
	for range 120 {
		for range 10 {
			c.step()
		}
		for _, p := range c.bound() {
			got := verdicts(c.cluster, p)
			unbound := p.DeepCopy()
			unbound.Spec.NodeName = ""
			c.cluster.Remove(p)
			want := verdicts(c.cluster, unbound)
			c.cluster.Set(p)
			if !maps.Equal(got, want) {
				t.Fatalf("pod %s on %s: got %v\nwithout it %v", p.Name, p.Spec.NodeName, got, want)
			}
			for _, v := range want {
				seen[v.Reason]++
			}
		}
	}
	for _, reason := range []fit.Reason{
		"", fit.HostPort, fit.Resource, fit.VolumeConflict, fit.TopologySpread, fit.PodAffinity, fit.PodAntiAffinity,
		fit.ExistingAntiAffinity,
	} {
		if seen[reason] == 0 {
			t.Errorf("%q was never the answer: %v", reason, seen)
		}
	}
}

func TestReservationEqualsPod(t *testing.T) {
	c := &changing{random: randtest.New(t), cluster: fit.New(), objects: map[string]any{}}
	decided := 0
	for range 120 {
		for range 10 {
			c.step()
		}
		moving := c.pod("moving").(*corev1.Pod)
		moving.Status.Phase, moving.DeletionTimestamp, moving.Spec.NodeName = "", nil, fmt.Sprint(c.upTo(12))
		for _, p := range c.bound() {
			now := verdicts(c.cluster, p)
			c.cluster.Reserve(moving, moving.Spec.NodeName)
			got := verdicts(c.cluster, p)
			c.cluster.Release(moving.UID)
			c.cluster.Set(moving)
			then := verdicts(c.cluster, p)
			c.cluster.Remove(moving)
			for node, want := range now {
				if want.OK {
					want = then[node]
				}
				if got[node] != want {
					t.Fatalf("pod %s on %s: got %q, now %q, then %q", p.Name, node, got[node], now[node], then[node])
				}
				if now[node].OK && !want.OK {
					decided++
				}
			}
		}
	}
	if decided < 30 {
		t.Errorf("reservations decided %d times, want at least 30", decided)
	}
}

// A question must change nothing, even if it removes the pod itself and reservations from its view.
func TestAskingChangesNothing(t *testing.T) {
	c := &changing{random: randtest.New(t), cluster: fit.New(), objects: map[string]any{}}
	for range 500 {
		c.step()
	}
	before := fit.New()
	for _, o := range c.objects {
		before.Set(o.(metav1.Object))
	}
	for _, o := range c.objects {
		p, isPod := o.(*corev1.Pod)
		if !isPod {
			continue
		}
		c.cluster.Reserve(pod("moving"), "1")
		c.cluster.Ask(p).Elsewhere(fit.Search{All: true})
		c.cluster.Ask(p).On(p.Spec.NodeName)
		c.cluster.Release("moving")
		if !fit.Same(c.cluster, before) {
			t.Fatalf("asking about pod %s has changed the cluster", p.Name)
		}
	}
}
