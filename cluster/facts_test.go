package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// driven is a cache whose objects a test sets directly.
type driven struct {
	t *testing.T
	*Cache
}

func offline(t *testing.T) *driven {
	t.Helper()
	c, err := NewOffline(append(PlacementKinds(), append(WorkloadKinds(), PriorityClasses)...)...)
	expect.Must(t, err)
	return &driven{t, c}
}

// set adds objects, or replaces them.
func (d *driven) set(objects ...metav1.Object) {
	d.t.Helper()
	each(d.t, d.Set, objects)
}

// remove removes objects.
func (d *driven) remove(objects ...metav1.Object) {
	d.t.Helper()
	each(d.t, d.Remove, objects)
}

func TestReplicasInAnyPhase(t *testing.T) {
	d := offline(t)
	c := d.Cache
	ended := guest("c", "", ofOwners("rs"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	a := guest("a", "n1", ofOwners("rs"))
	expect.Equal(d.t, "nothing yet", c.Replicas("rs"), 0)
	d.set(a, guest("b", "n1", ofOwners("rs", "job", "rs")), ended, guest("other", "n1", ofOwners("other")))
	expect.Equal(d.t, "pods of an owner", []int{c.Replicas("rs"), c.Replicas("job"), c.Replicas("none")}, []int{3, 1, 0})
	d.set(guest("a", "n1", ofOwners("rs"), asks("1")))
	expect.Equal(d.t, "a pod that changed", c.Replicas("rs"), 3)
	d.set(guest("a", "n1", ofOwners("other")))
	expect.Equal(d.t, "a pod that changed its owner", []int{c.Replicas("rs"), c.Replicas("other")}, []int{2, 2})
	d.remove(ended)
	expect.Equal(d.t, "a pod that is gone", c.Replicas("rs"), 1)
}

func TestBudgetCoversSelectedPods(t *testing.T) {
	d := offline(t)
	c := d.Cache
	app := guest("app", "n1") // has the label app=api
	elsewhere := guest("app", "n1", func(p *corev1.Pod) { p.Namespace = "shop" })
	other := guest("other", "n1", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} })
	covered := func() []bool { return []bool{c.Budgeted(app), c.Budgeted(elsewhere), c.Budgeted(other)} }
	expect.Equal(d.t, "no budget", covered(), []bool{false, false, false})
	d.set(pdb("one", selecting("app", "api")))
	expect.Equal(d.t, "one that selects by label", covered(), []bool{true, false, false})
	allowing := pdb("one", selecting("app", "api"))
	allowing.Status.DisruptionsAllowed = 1
	d.set(allowing)
	expect.Equal(d.t, "the allowed disruptions change nothing", covered(), []bool{true, false, false})
	d.set(pdb("one", selecting("app", "db")))
	expect.Equal(d.t, "its selector changed", covered(), []bool{false, false, true})
	d.set(pdb("one", &metav1.LabelSelector{}))
	expect.Equal(d.t, "an empty selector selects all", covered(), []bool{true, false, true})
	d.set(pdb("one", nil))
	expect.Equal(d.t, "none selects none", covered(), []bool{false, false, false})
	d.set(pdb("two", selecting("app", "api")))
	d.remove(pdb("one", nil))
	expect.Equal(d.t, "another one stays", covered(), []bool{true, false, false})
	d.remove(pdb("two", nil))
	expect.Equal(d.t, "all are gone", covered(), []bool{false, false, false})
}

func TestReadsFromCache(t *testing.T) {
	d := offline(t)
	c := d.Cache
	unclassed := claimed("unclassed", "", "")
	unclassed.Spec.StorageClassName = nil
	d.set(namespace("web", map[string]string{"team": "shop"}), namespace("plain", nil), priorityClass(7), claimed("data", "fast", ""), unclassed)
	type answer struct {
		value any
		found bool
	}
	answers := func(value any, found bool) answer { return answer{value, found} }
	class := func(namespace, name string) answer {
		v, found := c.StorageClass(namespace, name)
		return answers(v, found)
	}
	value := func(name string) answer { v, found := c.Priority(name); return answers(v, found) }
	of := func(name string) answer { v, found := c.NamespaceLabels(name); return answers(v, found) }
	for _, q := range []struct {
		name      string
		got, want answer
	}{
		{"a claim's class", class("web", "data"), answer{"fast", true}},
		{"a claim without a class", class("web", "unclassed"), answer{"", true}},
		{"a claim of another namespace", class("shop", "data"), answer{"", false}},
		{"a priority class", value("high"), answer{int32(7), true}},
		{"a priority class that is missing", value("low"), answer{int32(0), false}},
		{"a namespace", of("web"), answer{labels.Set{"team": "shop"}, true}},
		{"a namespace without labels", of("plain"), answer{labels.Set(nil), true}},
		{"a namespace that is missing", of("none"), answer{labels.Set(nil), false}},
	} {
		expect.Equal(d.t, q.name, q.got, q.want)
	}
}

// TestPlacementKindsReachCapacity adds the objects that a pod needs one by one. Each makes one more node fit.
func TestPlacementKindsReachCapacity(t *testing.T) {
	d := offline(t)
	c := d.Cache
	asked := guest("asked", "here", claims("data"))
	one, yes := int32(1), true
	gib := amount("storage", "9Gi")["storage"]
	volume := "left"
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: csi, NodeName: "there", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
	}}
	steps := []struct {
		name   string
		change func()
		want   string
	}{
		{"pod and node", func() { d.set(asked, roomy("here"), roomy("there")) }, "claim-unusable"},
		{"claim", func() { d.set(claimed("data", "waits", "")) }, "claim-unusable"},
		{"storage class", func() { d.set(storageClass("waits")) }, ""},
		{"driver that reports what it has", func() {
			d.set(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csi}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &yes}})
		}, "volume-unavailable"},
		{"capacity", func() {
			d.set(&storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "csi", Name: "c"}, StorageClassName: "waits",
				Capacity: &gib, NodeTopology: &metav1.LabelSelector{}})
		}, ""},
		{"volume and attachment, with a limit of the node", func() {
			d.set(disk("left", "x"), attachment, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "there"},
				Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: csi, Allocatable: &storagev1.VolumeNodeResources{Count: &one}}}}})
		}, "volume-limit"},
		{"no attachment any more", func() { d.remove(attachment) }, ""},
	}
	for _, step := range steps {
		step.change()
		fits, _, why := c.Elsewhere(asked, policy.Targets{})
		if fits != (step.want == "") || strings.TrimPrefix(why, "does not fit on the only other node: ") != step.want {
			t.Errorf("%s: got %v, %q, want %q", step.name, fits, why, step.want)
		}
	}
	d.set(namespace("shop", map[string]string{"team": "b"}), guest("other", "there", func(p *corev1.Pod) { p.Namespace = "shop" }))
	apart := guest("apart", "here", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: selecting("app", "api"), NamespaceSelector: selecting("team", "b"), TopologyKey: corev1.LabelHostname,
			}},
		}}
	})
	if fits, _, why := c.Elsewhere(apart, policy.Targets{}); fits || why != "does not fit on the only other node: pod-anti-affinity" {
		t.Errorf("namespace: got %v, %q", fits, why)
	}
}
