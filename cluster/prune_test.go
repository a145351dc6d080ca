package cluster

import (
	"maps"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rehome-dev/rehome/fit"
	maintenance "github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// give passes an object of any kind to the index of capacity.
func give(t *testing.T, r *capacity, o any) {
	t.Helper()
	c := &Cache{kinds: append(PlacementKinds(), PriorityClasses), capacity: r, workloads: newWorkloads(time.Now)}
	if err := c.hold(); err != nil {
		t.Fatal(err)
	}
	h, _, err := c.find(o)
	expect.Must(t, err)
	c.OnUpdate(h, nil, o, false)
}

// prunedCopy returns an object as a cache stores it. It is pruned twice, as when an informer lists again.
func prunedCopy(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	var pruned any = o.DeepCopyObject()
	for range 2 {
		var err error
		if pruned, err = new(Cache).prune(pruned); err != nil {
			t.Fatal(err)
		}
	}
	return pruned.(runtime.Object)
}

// fitScene is a question about a pod called asked on the node here, and whether it fits on the node there.
type fitScene struct {
	name    string
	objects []runtime.Object
	want    map[fit.Reason]int // why not; empty means it fits, nil that it is not judged
}

func scene(name string, why fit.Reason, objects ...runtime.Object) fitScene {
	want := map[fit.Reason]int{}
	if why != "" {
		want[why] = 1
	}
	return fitScene{name, objects, want}
}

func notJudged(name string, change func(*corev1.Pod)) fitScene {
	return fitScene{name, []runtime.Object{roomy("here"), roomy("there"), guest("asked", "here", change)}, nil}
}

// alone returns a scene of two nodes and the pod with a change.
func alone(name string, why fit.Reason, change func(*corev1.Pod)) fitScene {
	return scene(name, why, roomy("here"), roomy("there"), guest("asked", "here", change))
}

// beside returns a scene of two nodes, the pod, and one more on the other node, both with changes.
func beside(name string, why fit.Reason, asked, other func(*corev1.Pod)) fitScene {
	return scene(name, why, roomy("here"), roomy("there"), guest("asked", "here", asked), guest("other", "there", other))
}

func podScenes() []fitScene {
	unchanged := func(*corev1.Pod) {}
	always := corev1.ContainerRestartPolicyAlways
	port := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{
			Name: "side", RestartPolicy: &always, Ports: []corev1.ContainerPort{{HostPort: 80}},
		}}
	}
	apart := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}, TopologyKey: corev1.LabelHostname,
			}},
		}}
	}
	given := func(allocated, actual string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			asks("2")(p)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "main", AllocatedResources: amount("cpu", allocated),
				Resources: &corev1.ResourceRequirements{Requests: amount("cpu", actual), Limits: amount("cpu", "9")},
			}}
		}
	}
	infeasible := func(p *corev1.Pod) {
		given("1", "1")(p)
		p.Spec.Containers[0].Resources.Requests = amount("cpu", "100")
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
	}
	asAsked := func(p *corev1.Pod) {
		given("2", "2")(p)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
	}
	wholePod := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: amount("cpu", "1")}
		p.Status.Resources = &corev1.ResourceRequirements{Requests: amount("cpu", "3")}
		p.Status.AllocatedResources = amount("cpu", "3")
	}
	hostUsers := false
	scenes := []fitScene{
		alone("nothing in the way", "", unchanged),
		beside("requests", fit.Resource, asks("3"), asks("3")),
		alone("overhead", fit.Resource, func(p *corev1.Pod) { p.Spec.Overhead = amount("cpu", "5") }),
		alone("requests of the whole pod", fit.Resource, func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: amount("cpu", "5")}
		}),
		alone("requests of an init container", fit.Resource, func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: amount("cpu", "5")}}}
		}),
		beside("more was allocated than requested", fit.Resource, asks("2"), given("3", "2")),
		beside("more is in use than requested", fit.Resource, asks("2"), given("2", "3")),
		beside("everything as requested", "", asks("2"), given("2", "2")),
		beside("a resize that is not feasible does not count", "", asks("3"), infeasible),
		beside("the actual resources count, even if as requested", fit.Resource, asks("3"), asAsked),
		beside("a whole pod has more than it asks for", fit.Resource, asks("2"), wholePod),
		beside("host ports of a sidecar", fit.HostPort, port, port),
		alone("node selector", fit.NodeAffinity, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }),
		alone("node affinity", fit.NodeAffinity, func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: onNode("here"),
			}}
		}),
		beside("own anti-affinity", fit.PodAntiAffinity, apart, unchanged),
		beside("another's anti-affinity", fit.ExistingAntiAffinity, unchanged, apart),
		beside("spreading", fit.TopologySpread, func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}},
			}}
		}, unchanged),
		beside("a pod that is being deleted still has its room", fit.Resource, asks("3"), func(p *corev1.Pod) {
			asks("3")(p)
			p.DeletionTimestamp = &metav1.Time{}
		}),
		beside("a nominated pod has room of its own", fit.Resource, asks("3"), func(p *corev1.Pod) {
			asks("3")(p)
			p.Spec.NodeName, p.Status.NominatedNodeName = "", "there"
		}),
		alone("users of the host's own", fit.NodeFeatures, func(p *corev1.Pod) {
			p.Spec.HostNetwork, p.Spec.HostUsers = true, &hostUsers
		}),
		alone("a rule that restarts all containers", fit.NodeFeatures, func(p *corev1.Pod) {
			p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action: corev1.ContainerRestartRuleActionRestartAllContainers,
			}}
		}),
		notJudged("another scheduler", func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }),
		notJudged("gates", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }),
		notJudged("a group", func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} }),
		notJudged("resource claims", func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }),
		scene("a namespace's labels", fit.PodAntiAffinity, roomy("here"), roomy("there"),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "b"}, Finalizers: []string{"f"}}},
			guest("other", "there", func(p *corev1.Pod) { p.Namespace = "shop" }),
			guest("asked", "here", func(p *corev1.Pod) {
				apart(p)
				p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector =
					&metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
			})),
	}
	for _, source := range []corev1.VolumeSource{
		{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}},
		{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "d"}},
		{ISCSI: &corev1.ISCSIVolumeSource{IQN: "d"}},
		{RBD: &corev1.RBDVolumeSource{CephMonitors: []string{"m"}, RBDImage: "i", RBDPool: "p"}},
	} {
		scenes = append(scenes, beside("one disk for two", fit.VolumeConflict, volumed(source), volumed(source)))
	}
	return scenes
}

func nodeScenes() []fitScene {
	on := func(name string, why fit.Reason, change func(*corev1.Node), pod ...func(*corev1.Pod)) fitScene {
		return scene(name, why, roomy("here"), roomy("there", change), guest("asked", "here", pod...))
	}
	hostUsers := false
	return []fitScene{
		on("a taint", fit.Taint, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		}),
		on("a taint that is tolerated", "", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		}, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
		}),
		on("cordoned", fit.Cordoned, func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		on("no more pods", fit.PodCount, func(n *corev1.Node) { n.Status.Allocatable = amount("cpu", "4", "pods", "0") }),
		on("a feature that it declares", "", func(n *corev1.Node) {
			n.Status.DeclaredFeatures = []string{"UserNamespacesHostNetworkSupport"}
		}, func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, &hostUsers }),
	}
}

func volumeScenes() []fitScene {
	with := func(name string, why fit.Reason, objects ...runtime.Object) fitScene {
		return scene(name, why, append([]runtime.Object{roomy("here"), roomy("there"), guest("asked", "here", claims("data"))}, objects...)...)
	}
	yes, one := true, int32(1)
	limit := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "there"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
		Name: csi, NodeID: "n", TopologyKeys: []string{"k"}, Allocatable: &storagev1.VolumeNodeResources{Count: &one},
	}}}}
	two := int32(2)
	roomForTwo := limit.DeepCopy()
	roomForTwo.Spec.Drivers[0].Allocatable.Count = &two
	block := corev1.PersistentVolumeBlock
	of := func(name string) *string { return &name }
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: csi, NodeName: "there", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: of("left")},
	}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csi}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &yes, AttachRequired: &yes}}
	gib := resource.MustParse("3Gi")
	capacity := &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "csi", Name: "c"}, StorageClassName: "waits", Capacity: &gib,
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "there"}},
	}
	zoned := func(v *corev1.PersistentVolume) { v.Labels[corev1.LabelTopologyZone] = "b" }
	zone := func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "a" }
	beta := func(m *metav1.ObjectMeta) { m.Annotations[corev1.BetaStorageClassAnnotation] = "local" }
	generic := volumed(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{},
	}})
	local := func(s *storagev1.StorageClass) { s.Provisioner = "kubernetes.io/no-provisioner" }
	return []fitScene{
		with("a claim that is missing", fit.ClaimUnusable),
		with("a claim that is lost", fit.ClaimUnusable, disk("d", "x"),
			claimed("data", "x", "d", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })),
		with("a volume that goes anywhere", "", claimed("data", "x", "d"), disk("d", "x")),
		with("a volume on this node", fit.VolumeNode, claimed("data", "x", "d"), disk("d", "x", only("here"))),
		scene("a volume in another zone", fit.VolumeZone, roomy("here"), roomy("there", zone), guest("asked", "here", claims("data")),
			claimed("data", "x", "d"), disk("d", "x", zoned)),
		with("a claim for one pod", fit.ClaimInUse, guest("other", "there", claims("data")), disk("d", "x"),
			claimed("data", "x", "d", func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
			})),
		with("as many volumes as the node may attach", fit.VolumeLimit, limit, claimed("data", "x", "d"), disk("d", "x"),
			guest("other", "there", claims("theirs")), claimed("theirs", "x", "e"), disk("e", "x")),
		with("as many as it has attached still", fit.VolumeLimit, limit, attached, claimed("data", "x", "d"), disk("d", "x"),
			disk("left", "x")),
		with("a new volume", "", claimed("data", "waits", ""), storageClass("waits")),
		with("a new volume on the chosen node", fit.VolumeUnavailable, storageClass("waits"),
			claimed("data", "waits", "", func(c *corev1.PersistentVolumeClaim) {
				c.Annotations["volume.kubernetes.io/selected-node"] = "here"
			})),
		with("a new volume where the class allows it", fit.VolumeUnavailable, claimed("data", "waits", ""),
			storageClass("waits", func(s *storagev1.StorageClass) {
				s.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
					{Key: corev1.LabelHostname, Values: []string{"here"}},
				}}}
			})),
		with("a new volume where nothing is left", fit.VolumeUnavailable, claimed("data", "waits", ""), storageClass("waits"), driver),
		with("a new volume where enough is left", "", claimed("data", "waits", ""), storageClass("waits"), driver, capacity),
		with("an existing volume of the claim's selector", "", storageClass("local", local), disk("d", "local"),
			claimed("data", "local", "", func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"speed": "fast"}}
			})),
		with("an existing volume that is in use", fit.VolumeUnavailable, storageClass("local", local), claimed("data", "local", ""),
			disk("d", "local", func(v *corev1.PersistentVolume) {
				v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "web", Name: "theirs", UID: "u"}
			})),
		with("an existing volume that is reserved", "", storageClass("local", local), claimed("data", "local", ""),
			disk("d", "local", func(v *corev1.PersistentVolume) {
				v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "web", Name: "data", UID: "data"}
			})),
		with("classes by the older annotation", "", storageClass("local", local),
			claimed("data", "", "", func(c *corev1.PersistentVolumeClaim) { beta(&c.ObjectMeta) }),
			disk("d", "", func(v *corev1.PersistentVolume) { beta(&v.ObjectMeta) })),
		scene("a new volume of the default class", "", roomy("here"), roomy("there"), storageClass("waits"),
			guest("asked", "here", generic)),
		scene("another pod's claim with a pod's name", fit.VolumeLimit, roomy("here"), roomy("there"), storageClass("waits"), limit,
			guest("asked", "here", generic), guest("other", "there", generic), claimed("other-v0", "waits", "e"), disk("e", "waits")),
		scene("a pod's own claim", "", roomy("here"), roomy("there"), storageClass("waits"), roomForTwo,
			guest("asked", "here", generic), guest("other", "there", generic),
			claimed("other-v0", "waits", "e", func(c *corev1.PersistentVolumeClaim) {
				c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "other", UID: "other", Controller: &yes}}
			}), disk("e", "waits")),
		with("a claim that is being deleted", fit.ClaimUnusable, disk("d", "x"),
			claimed("data", "x", "d", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })),
		with("an existing volume that was reserved for an older claim of the name", fit.VolumeUnavailable,
			storageClass("local", local), claimed("data", "local", ""), disk("d", "local", func(v *corev1.PersistentVolume) {
				v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "web", Name: "data", UID: "older"}
			})),
		with("an existing volume of another kind", fit.VolumeUnavailable, storageClass("local", local), claimed("data", "local", ""),
			disk("d", "local", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = &block })),
		with("an existing volume with other attributes", fit.VolumeUnavailable, storageClass("local", local),
			claimed("data", "local", ""), disk("d", "local", func(v *corev1.PersistentVolume) {
				v.Spec.VolumeAttributesClassName = of("gold")
			})),
		scene("of several default classes the youngest", "", roomy("here"), roomy("there"), guest("asked", "here", generic),
			storageClass("a", local), storageClass("b", func(s *storagev1.StorageClass) {
				s.CreationTimestamp = metav1.Unix(1, 0)
			})),
	}
}

func TestPruningKeepsFit(t *testing.T) {
	scenes := append(append(podScenes(), nodeScenes()...), volumeScenes()...)
	for _, c := range scenes {
		t.Run(c.name, func(t *testing.T) {
			for _, prunes := range []bool{false, true} {
				r := newCapacity(true)
				var asked *corev1.Pod
				for _, o := range c.objects {
					if prunes {
						o = prunedCopy(t, o)
					}
					if p, isPod := o.(*corev1.Pod); isPod && p.Name == "asked" {
						asked = p
					}
					give(t, r, o)
				}
				got := r.fit.Ask(asked).Elsewhere(fit.Search{})
				if !reflect.DeepEqual(got.Refused, c.want) || got.Judged != (c.want != nil) || got.OK != (c.want != nil && len(c.want) == 0) {
					t.Errorf("pruned %v: got %+v, want %v", prunes, got, c.want)
				}
			}
		})
	}
}

func TestPrunedObjects(t *testing.T) {
	meta := metav1.ObjectMeta{
		Name: "x", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, Finalizers: []string{"f"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"},
	}
	kept := metav1.ObjectMeta{Name: "x", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}}
	noLabels := kept
	noLabels.Labels = nil
	volume, inline := "v", corev1.PersistentVolumeSpec{}
	for _, c := range []struct {
		name      string
		got, want runtime.Object
	}{
		{"a namespace to its labels",
			&corev1.Namespace{ObjectMeta: meta, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"f"}}},
			&corev1.Namespace{ObjectMeta: kept}},
		{"a priority class without metadata", &schedulingv1.PriorityClass{ObjectMeta: meta, Value: 7},
			&schedulingv1.PriorityClass{ObjectMeta: kept, Value: 7}},
		{"a claim to its spec and phase",
			&corev1.PersistentVolumeClaim{ObjectMeta: meta, Status: corev1.PersistentVolumeClaimStatus{
				Phase: corev1.ClaimBound, Capacity: amount("storage", "1Gi")}},
			&corev1.PersistentVolumeClaim{ObjectMeta: noLabels, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}},
		{"a volume to where and how large it is",
			&corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{
				MountOptions: []string{"ro"}, Capacity: amount("storage", "1Gi"),
				PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s"}},
			}},
			&corev1.PersistentVolume{ObjectMeta: kept, Spec: corev1.PersistentVolumeSpec{Capacity: amount("storage", "1Gi")}}},
		{"an attachment to its volume and node",
			&storagev1.VolumeAttachment{ObjectMeta: meta, Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "a", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume, InlineVolumeSpec: &inline},
			}, Status: storagev1.VolumeAttachmentStatus{Attached: true}},
			&storagev1.VolumeAttachment{ObjectMeta: kept, Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "a", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
			}}},
		{"a pod without what its containers run", &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "i", Command: []string{"run"}, VolumeMounts: []corev1.VolumeMount{{Name: "v"}},
		}}}}, &corev1.Pod{
			ObjectMeta: func() metav1.ObjectMeta { m := kept; m.Finalizers = meta.Finalizers; return m }(),
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := c.got.DeepCopyObject()
			// Pruning a pod changes its annotations in place.
			if got := prunedCopy(t, object); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
	if want := map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}; !maps.Equal(meta.Annotations, want) {
		t.Errorf("the annotations of the test's own object became %v", meta.Annotations)
	}
}

func TestPruneConditionMessage(t *testing.T) {
	signed := "a new kernel" + maintenance.Signature("kernel")
	n := named("n1", func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
			{Type: corev1.NodeDrainInProgress, Reason: maintenance.AdminRequested, Message: signed},
			{Type: corev1.NodeDrained, Reason: maintenance.AdminRequested, Message: "by hand"},
		}
	})
	if _, err := new(Cache).prune(n); err != nil {
		t.Fatal(err)
	}
	want := []corev1.NodeCondition{
		{Type: corev1.NodeReady, Reason: "KubeletReady"},
		{Type: corev1.NodeDrainInProgress, Reason: maintenance.AdminRequested, Message: signed},
		{Type: corev1.NodeDrained, Reason: maintenance.AdminRequested},
	}
	if got := n.Status.Conditions; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPruneKeepsStrategyInputs(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	states := func(message string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{
			{Name: "a", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: message}}},
			{Name: "b", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "OOMKilled", ExitCode: 137, StartedAt: at, FinishedAt: at, Message: message,
			}}},
		}
	}
	live := func(message string) *corev1.Pod {
		p := placed("api", "n1")
		func() {
			p.CreationTimestamp = at
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j"}}
			p.Status = corev1.PodStatus{
				Phase: corev1.PodFailed, Reason: "Evicted", Message: message, StartTime: &at,
				Conditions: []corev1.PodCondition{{
					Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodFailed", LastTransitionTime: at, Message: message,
				}},
				ContainerStatuses: states(message), InitContainerStatuses: states(message), EphemeralContainerStatuses: states(message),
			}
		}()
		return p
	}
	got, err := new(Cache).prune(live("long"))
	want := live("")
	want.Status.Conditions[0].Message = "long" // says why it is not ready
	for _, statuses := range [][]corev1.ContainerStatus{
		want.Status.ContainerStatuses, want.Status.InitContainerStatuses, want.Status.EphemeralContainerStatuses,
	} {
		statuses[0].State.Waiting.Message = "long"
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, want)
	}
}
