package fit_test

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	heavyRuntime  = "heavy"
	driver        = "csi.test.rehome.dev"
	trackedDriver = "tracked.test.rehome.dev"
	feature       = "RestartAllContainersOnContainerExits"
	device        = corev1.ResourceName("test.rehome.dev/device")
	rareDevice    = corev1.ResourceName("test.rehome.dev/rare-device")
	lostLabel     = "test.rehome.dev/lost"
	zone          = corev1.LabelTopologyZone
	region        = corev1.LabelTopologyRegion
	hostname      = corev1.LabelHostname
	// waitingAsked is how many pods of each scene have claims that wait for them. A placed one takes a second.
	waitingAsked = 4
)

func namespaces() []string { return []string{"one", "two", "three"} }

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// chance is true in that share of cases.
func (j *judge) chance(share float64) bool { return j.random.Float64() < share }

// upTo returns a number from 0 to n.
func (j *judge) upTo(n int) int { return j.random.IntN(n + 1) }

func pick[T any](j *judge, from ...T) T { return from[j.random.IntN(len(from))] }

func (s *scene) name(kind string) string { return kind + "-" + strconv.Itoa(s.number) }

func (s *scene) randomState() state {
	var made state
	for _, name := range namespaces() {
		n := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if team := pick(s.judge, "red", "blue", ""); team != "" {
			n.Labels["team"] = team
		}
		made.Namespaces = append(made.Namespaces, n)
	}
	s.randomStorage(&made)
	for _, name := range s.nodes {
		made.Nodes = append(made.Nodes, s.randomNode(name))
		if s.chance(0.7) {
			made.CSINodes = append(made.CSINodes, s.randomLimits(name))
		}
	}
	for i := range 24 {
		made.Pods = append(made.Pods, s.existingPod(i))
	}
	dropSharedPorts(made.Pods)
	for i := range 3 {
		made.Pods = append(made.Pods, s.nominatedPod(i))
	}
	s.state = made
	return made
}

// dropSharedPorts lets every port of a node belong to one pod. The scheduler never places two pods with the same one, and
// forgets the port when the first of two such pods ends.
func dropSharedPorts(pods []corev1.Pod) {
	taken := map[string]bool{}
	for i := range pods {
		for _, p := range pods[i].Spec.Containers[0].Ports {
			address := p.HostIP
			if address == "" {
				address = "0.0.0.0"
			}
			key := fmt.Sprint(pods[i].Spec.NodeName, " ", address, p.Protocol, p.HostPort)
			if taken[key] {
				pods[i].Spec.Containers[0].Ports = nil
			}
			taken[key] = true
		}
	}
}

func (s *scene) randomNode(name string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostname: name}}}
	if s.chance(0.85) {
		n.Labels[zone] = pick(s.judge, "a", "b", "c")
		n.Labels[region] = pick(s.judge, "north", "north", "south")
	}
	if s.chance(0.7) {
		n.Labels["disk"] = pick(s.judge, "ssd", "hdd")
	}
	if s.chance(0.7) {
		n.Labels["size"] = strconv.Itoa(s.upTo(5))
	}
	if s.chance(0.12) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
			Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	for _, key := range []string{"dedicated", "flaky"} {
		if s.chance(0.15) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key: key, Value: pick(s.judge, "x", "y"),
				Effect: pick(s.judge, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
			})
		}
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:              quantity(strconv.Itoa(1 + s.upTo(3))),
		corev1.ResourceMemory:           quantity(fmt.Sprintf("%dMi", 512*(1+s.upTo(4)))),
		corev1.ResourceEphemeralStorage: quantity(fmt.Sprintf("%dMi", 512*(1+s.upTo(4)))),
		corev1.ResourcePods:             quantity(strconv.Itoa(pick(s.judge, 3, 5, 8, 10, 10))),
	}
	if s.chance(0.5) {
		n.Status.Allocatable[device] = quantity(strconv.Itoa(s.upTo(3)))
	}
	if s.chance(0.3) {
		n.Status.Allocatable["hugepages-2Mi"] = quantity("8Mi")
	}
	n.Status.Capacity = n.Status.Allocatable
	if s.chance(0.4) {
		n.Status.DeclaredFeatures = []string{feature}
	}
	return n
}

func (s *scene) randomLimits(node string) storagev1.CSINode {
	n := storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	d := storagev1.CSINodeDriver{Name: driver, NodeID: node}
	if s.chance(0.85) {
		d.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(s.upTo(3)))}
	}
	n.Spec.Drivers = append(n.Spec.Drivers, d)
	return n
}

func (s *scene) class(name, provisioner string, mode storagev1.VolumeBindingMode) storagev1.StorageClass {
	return storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(name)}, Provisioner: provisioner, VolumeBindingMode: &mode,
	}
}

func (s *scene) randomStorage(made *state) {
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	zonal := s.class("zonal", driver, waits)
	zonal.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
		{Key: zone, Values: []string{"a", pick(s.judge, "b", "c")}},
	}}}
	made.Classes = []storagev1.StorageClass{
		zonal, s.class("wait", driver, waits), s.class("local", "kubernetes.io/no-provisioner", waits),
		s.class("tracked", trackedDriver, waits), s.class("now", driver, storagev1.VolumeBindingImmediate),
	}
	made.Drivers = []storagev1.CSIDriver{{
		ObjectMeta: metav1.ObjectMeta{Name: trackedDriver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)},
	}}
	for i, in := range []string{"a", "b", "c"} {
		if s.chance(0.6) {
			made.Capacities = append(made.Capacities, storagev1.CSIStorageCapacity{
				ObjectMeta:       metav1.ObjectMeta{Namespace: "one", Name: s.name("capacity-" + strconv.Itoa(i))},
				StorageClassName: s.name("tracked"),
				NodeTopology:     &metav1.LabelSelector{MatchLabels: map[string]string{zone: in}},
				Capacity:         new(quantity(fmt.Sprintf("%dGi", 1+s.upTo(4)))),
			})
		}
	}
	for _, namespace := range namespaces() {
		for i := range 4 {
			s.boundClaim(made, namespace, i)
		}
		s.unboundClaims(made, namespace)
	}
	for i := range 3 {
		made.Volumes = append(made.Volumes, s.localVolume(i))
	}
}

// boundClaim makes a claim and its volume.
func (s *scene) boundClaim(made *state, namespace string, i int) {
	modes := []corev1.PersistentVolumeAccessMode{pick(s.judge, corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod)}
	v := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: s.name(fmt.Sprintf("volume-%s-%d", namespace, i)), Labels: map[string]string{},
	}}
	if s.chance(0.3) {
		v.Labels[zone] = pick(s.judge, "a", "b", "c", "a__b")
	}
	if s.chance(0.15) {
		v.Labels[corev1.LabelFailureDomainBetaRegion] = pick(s.judge, "north", "south")
	}
	v.Spec = corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}, AccessModes: modes,
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:                      &corev1.ObjectReference{Namespace: namespace, Name: s.name(fmt.Sprintf("bound-%d", i))},
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: v.Name},
		},
	}
	if s.chance(0.3) {
		v.Spec.NodeAffinity = onNodes(zone, pick(s.judge, "a", "b", "c"))
	}
	made.Volumes = append(made.Volumes, v)
	made.Claims = append(made.Claims, corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.Spec.ClaimRef.Name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: v.Name, StorageClassName: new(""),
			Resources: storageRequest("1Gi"),
		},
	})
}

func onNodes(key string, values ...string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}},
	}}}}
}

func storageRequest(size string) corev1.VolumeResourceRequirements {
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity(size)}}
}

// unboundClaims makes one claim that is lost, one that should be bound already, and several that wait for a pod.
func (s *scene) unboundClaims(made *state, namespace string) {
	claim := func(name, class, size string) *corev1.PersistentVolumeClaim {
		made.Claims = append(made.Claims, corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name(name)},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName: new(s.name(class)), Resources: storageRequest(size),
			},
		})
		return &made.Claims[len(made.Claims)-1]
	}
	lost := claim("lost", "now", "1Gi")
	lost.Spec.VolumeName = "no-such-volume"
	lost.Labels = map[string]string{lostLabel: "true"}
	lost.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	claim("unbound", "now", "1Gi")
	for _, class := range waitingClasses() {
		claim("waiting-"+class, class, fmt.Sprintf("%dGi", 1+s.upTo(3)))
	}
}

func waitingClasses() []string { return []string{"wait", "local", "zonal", "tracked"} }

func (s *scene) localVolume(i int) corev1.PersistentVolume {
	v := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.name(fmt.Sprintf("local-%d", i))}}
	v.Spec = corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: quantity(fmt.Sprintf("%dGi", 1+s.upTo(4)))},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: s.name("local"),
		NodeAffinity:           onNodes(hostname, pick(s.judge, s.nodes...), pick(s.judge, s.nodes...)),
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
	}
	return v
}
