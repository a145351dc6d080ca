package fit_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

const driver = "csi.example.com"

func class(name, provisioner string, mode storagev1.VolumeBindingMode, changes ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}, Provisioner: provisioner, VolumeBindingMode: &mode,
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

// waits returns a class of volumes that wait for the pod; local is one whose volumes are made by hand.
func waits(changes ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	return class("waits", driver, storagev1.VolumeBindingWaitForFirstConsumer, changes...)
}

func local() *storagev1.StorageClass {
	return class("local", "kubernetes.io/no-provisioner", storagev1.VolumeBindingWaitForFirstConsumer)
}

func claim(name string, changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{}}}
	c.Spec.Resources.Requests = list("storage", "2Gi")
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	for _, change := range changes {
		change(c)
	}
	return c
}

func ofClass(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
}

func bound(to string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = to
		c.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
	}
}

func chosen(node string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations["volume.kubernetes.io/selected-node"] = node }
}

func exclusive(c *corev1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
}

// disk returns a volume of the driver of 2 GiB.
func disk(name string, changes ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	v.Spec.Capacity = list("storage", "2Gi")
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
	v.Status.Phase = corev1.VolumeAvailable
	for _, change := range changes {
		change(v)
	}
	return v
}

func usableIn(key, value string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{nodeTerm(key, "In", value)},
		}}
	}
}

func labelled(key, value string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Labels[key] = value }
}

func inClass(name string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = name }
}

func sized(size string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.Capacity = list("storage", size) }
}

func reservedFor(name string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: name}
	}
}

func TestBoundVolumes(t *testing.T) {
	p := pod("p", uses("data"))
	data := claim("data", bound("disk"))
	unusable := verdict(fit.ClaimUnusable, "data")
	beta := corev1.LabelFailureDomainBetaZone
	run(t, []ask{
		{"a volume that can be everywhere", threeZones(data, disk("disk")), p, fits()},
		{"a volume of this zone", threeZones(data, disk("disk", usableIn(zone, "one"))), p, fits()},
		{"a volume of another zone", threeZones(data, disk("disk", usableIn(zone, "two"))), p, verdict(fit.VolumeNode, "disk")},
		{"a volume labelled with this zone", threeZones(data, disk("disk", labelled(zone, "one"))), p, fits()},
		{"a volume labelled with another zone", threeZones(data, disk("disk", labelled(zone, "two"))), p, verdict(fit.VolumeZone, "")},
		{"a volume labelled with several zones", threeZones(data, disk("disk", labelled(zone, "two__one"))), p, fits()},
		{"an old label means the new one of the node", threeZones(data, disk("disk", labelled(beta, "two"))), p, verdict(fit.VolumeZone, "")},
		{"a node without zones has them all", nodes(node("a"), data, disk("disk", labelled(zone, "two"))), p, fits()},
		{"the claim is missing", threeZones(disk("disk")), p, unusable},
		{"the volume is missing", threeZones(data), p, unusable},
		{"the claim is in another namespace", threeZones(data, disk("disk")), pod("p", inNamespace("other"), uses("data")), unusable},
		{"the claim is lost", threeZones(disk("disk"), claim("data", bound("disk"), func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })), p, unusable},
		{"the claim is being deleted", threeZones(disk("disk"), claim("data", bound("disk"), func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })), p, unusable},
		{"the claim is not bound yet", threeZones(disk("disk"), claim("data", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "disk" })), p, unusable},
		{"the claim should be bound and is not", threeZones(class("now", driver, storagev1.VolumeBindingImmediate), claim("data", ofClass("now"))), p, unusable},
		{"the class is missing", threeZones(claim("data", ofClass("now"))), p, unusable},
		{"the same claim of two pods", threeZones(data, disk("disk"), pod("q", on("a"), uses("data"))), p, fits()},
		{"the same claim for one pod only", threeZones(claim("data", bound("disk"), exclusive), disk("disk"), pod("q", on("b"), uses("data"))), p, verdict(fit.ClaimInUse, "data")},
		{"the one pod is the pod itself", threeZones(claim("data", bound("disk"), exclusive), disk("disk"), pod("p", on("b"), uses("data"))), pod("p", on("b"), uses("data")), fits()},
		{"the one pod has ended", threeZones(claim("data", bound("disk"), exclusive), disk("disk"), pod("q", on("b"), uses("data"), ended)), p, fits()},
	})
}

func TestWaitForFirstConsumer(t *testing.T) {
	p := pod("p", uses("data"))
	want := claim("data", ofClass("waits"))
	byHand := claim("data", ofClass("local"))
	none := verdict(fit.VolumeUnavailable, "data")
	allowed := func(zones ...string) func(*storagev1.StorageClass) {
		return func(c *storagev1.StorageClass) {
			c.AllowedTopologies = []corev1.TopologySelectorTerm{{
				MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: zone, Values: zones}},
			}}
		}
	}
	tracked := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)}}
	capacity := func(zoneName, size string) *storagev1.CSIStorageCapacity {
		return &storagev1.CSIStorageCapacity{
			ObjectMeta: metav1.ObjectMeta{Name: zoneName}, StorageClassName: "waits", Capacity: new(resource.MustParse(size)),
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{zone: zoneName}},
		}
	}
	block := func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }
	released := func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased }
	run(t, []ask{
		{"a volume can be made", threeZones(want, waits()), p, fits()},
		{"in allowed zones", threeZones(want, waits(allowed("two", "one"))), p, fits()},
		{"not in others", threeZones(want, waits(allowed("two"))), p, none},
		{"where there is room", threeZones(want, waits(), tracked, capacity("one", "2Gi")), p, fits()},
		{"not where there is too little", threeZones(want, waits(), tracked, capacity("one", "1Gi"), capacity("two", "9Gi")), p, none},
		{"a volume is being made for this node", threeZones(claim("data", ofClass("waits"), chosen("a")), waits()), p, fits()},
		{"a volume is being made for another node", threeZones(claim("data", ofClass("waits"), chosen("b")), waits()), p, none},
		{"none is made by hand", threeZones(byHand, local()), p, none},
		{"one is there", threeZones(byHand, local(), disk("disk", inClass("local"), usableIn(hostname, "a"))), p, fits()},
		{"one is there for another node", threeZones(byHand, local(), disk("disk", inClass("local"), usableIn(hostname, "b"))), p, none},
		{"one of another class", threeZones(byHand, local(), disk("disk")), p, none},
		{"a smaller one", threeZones(byHand, local(), disk("disk", inClass("local"), sized("1Gi"))), p, none},
		{"a block device", threeZones(byHand, local(), disk("disk", inClass("local"), block)), p, none},
		{"one that is used up", threeZones(byHand, local(), disk("disk", inClass("local"), released)), p, none},
		{"one with other access modes", threeZones(claim("data", ofClass("local"), exclusive), local(), disk("disk", inClass("local"))), p, none},
		{"one that is reserved for the claim", threeZones(byHand, local(), disk("disk", inClass("local"), reservedFor("data"))), p, fits()},
		{"one that is reserved for another", threeZones(byHand, local(), disk("disk", inClass("local"), reservedFor("other"))), p, none},
		{
			"one that is reserved elsewhere, whatever else is there",
			threeZones(byHand, local(), disk("disk", inClass("local"), reservedFor("data"), usableIn(hostname, "b")), disk("free", inClass("local"))), p, none,
		},
		{
			"one volume is not enough for two claims",
			threeZones(byHand, claim("more", ofClass("local")), local(), disk("disk", inClass("local"))),
			pod("p", uses("data"), uses("more")), verdict(fit.VolumeUnavailable, "more"),
		},
		{
			"the smaller claim gets the smaller volume",
			threeZones(byHand, claim("more", ofClass("local"), func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Resources.Requests = list("storage", "5Gi")
			}), local(), disk("large", inClass("local"), sized("5Gi")), disk("small", inClass("local"))),
			pod("p", uses("more"), uses("data")), fits(),
		},
	})
}

func TestEphemeralVolumes(t *testing.T) {
	of := func(class *string) podChange {
		return fixtures.NamedVolume("data", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class}},
		}})
	}
	ownedBy := func(uid string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{UID: pod(uid).UID, Controller: new(true)}}
		}
	}
	isDefault := func(c *storagev1.StorageClass) { c.Annotations["storageclass.kubernetes.io/is-default-class"] = "true" }
	run(t, []ask{
		{"a pod that waits for its claim", threeZones(), pod("p", of(new("waits"))), verdict(fit.ClaimUnusable, "p-data")},
		{"a pod that has its claim", threeZones(waits(), claim("p-data", ofClass("waits"), ownedBy("p"))), pod("p", of(new("waits"))), fits()},
		{"a claim of that name that is not its own", threeZones(waits(), claim("p-data", ofClass("waits"), ownedBy("q"))), pod("p", of(new("waits"))), verdict(fit.ClaimUnusable, "p-data")},
		{
			"a replacement gets a new volume, wherever the old one is",
			threeZones(waits(), claim("p-data", bound("disk"), ownedBy("p")), disk("disk", usableIn(zone, "two"))),
			pod("p", on("b"), of(new("waits"))), fits(),
		},
		{"of the default class if it names none", threeZones(waits(isDefault)), pod("p", on("b"), of(nil)), fits()},
		{
			"the place of an immediate volume is unknown", threeZones(class("now", driver, storagev1.VolumeBindingImmediate)),
			pod("p", on("b"), of(new("now"))), fit.Verdict{Reason: fit.NewVolume, Detail: "p-data"},
		},
	})
}

func TestHowManyVolumes(t *testing.T) {
	limit := func(n int32) *storagev1.CSINode {
		return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: &n}},
		}}}
	}
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "left"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("other-disk")},
		},
	}
	state := func(more ...any) []any {
		return threeZones(append(more, claim("data", bound("disk")), disk("disk"), claim("other", bound("other-disk")), disk("other-disk"),
			waits(), claim("waiting", ofClass("waits")))...)
	}
	p := pod("p", uses("data"))
	full := verdict(fit.VolumeLimit, driver)
	run(t, []ask{
		{"no limit", state(pod("q", on("a"), uses("other"))), p, fits()},
		{"one of one", state(limit(1)), p, fits()},
		{"two of one", state(limit(1), pod("q", on("a"), uses("other"))), p, full},
		{"two of two", state(limit(2), pod("q", on("a"), uses("other"))), p, fits()},
		{"the same volume counts once", state(limit(1), pod("q", on("a"), uses("data"))), p, fits()},
		{"a volume that will be made counts", state(limit(1), pod("q", on("a"), uses("other"))), pod("p", uses("waiting")), full},
		{"a volume that is attached without a pod counts", state(limit(1), attachment), p, full},
		{"the volumes of the pod itself are gone", state(limit(1), pod("p", on("a"), uses("data"))), pod("p", on("a"), uses("data")), fits()},
		{"none is allowed", state(limit(0)), p, full},
	})
}

func TestUnsharedDisks(t *testing.T) {
	gce := func(name string, readOnly bool) podChange {
		return fixtures.NamedVolume("data", corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: name, ReadOnly: readOnly}})
	}
	aws := fixtures.NamedVolume("data", corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "x", ReadOnly: true}})
	iscsi := func(readOnly bool) podChange {
		return fixtures.NamedVolume("data", corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{IQN: "x", ReadOnly: readOnly}})
	}
	rbd := func(monitors ...string) podChange {
		return fixtures.NamedVolume("data", corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{CephMonitors: monitors, RBDImage: "x"}})
	}
	beside := func(change podChange) []any { return nodes(node("a"), pod("q", on("a"), change)) }
	no := verdict(fit.VolumeConflict, "data")
	run(t, []ask{
		{"the same disk", beside(gce("x", false)), pod("p", gce("x", true)), no},
		{"the same disk, both only reading", beside(gce("x", true)), pod("p", gce("x", true)), fits()},
		{"another disk", beside(gce("x", false)), pod("p", gce("y", false)), fits()},
		{"an Amazon disk, even only reading", beside(aws), pod("p", aws), no},
		{"the same target", beside(iscsi(false)), pod("p", iscsi(false)), no},
		{"the same target, both only reading", beside(iscsi(true)), pod("p", iscsi(true)), fits()},
		{"the same image by a common monitor", beside(rbd("m", "n")), pod("p", rbd("n", "o")), no},
		{"the same name by other monitors", beside(rbd("m", "n")), pod("p", rbd("o")), fits()},
		{"disks of two kinds", beside(aws), pod("p", iscsi(false)), fits()},
		{"the disk on another node", nodes(node("a"), node("b"), pod("q", on("b"), aws)), pod("p", aws), fits()},
	})
}
