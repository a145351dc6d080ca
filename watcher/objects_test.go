package watcher

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// driven is a watcher of a cache whose objects a test sets by hand.
type driven struct {
	t       *testing.T
	cluster *cluster.Cache
}

// offline is an empty cache.
func offline(t testing.TB) *cluster.Cache {
	t.Helper()
	c, err := cluster.NewOffline(Kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// drive lets a test drive the cache of a watcher.
func drive(t *testing.T, w *Watcher) *driven {
	t.Helper()
	w.addHandlers()
	return &driven{t: t, cluster: w.cluster}
}

// fixture is a cache with objects, a policy, and a builder that knows both.
type fixture struct {
	cluster *cluster.Cache
	policy  *scope.CompiledPolicy
	scopes  *scope.Builder
}

// newFixture is a fixture with these objects.
func newFixture(t testing.TB, p *scope.CompiledPolicy, objects ...metav1.Object) fixture {
	t.Helper()
	s := fixture{cluster: offline(t), policy: p}
	put(t, s.cluster, objects...)
	s.scopes = scope.NewBuilder(s.cluster, p)
	s.scopes.Rebuild(time.Now())
	return s
}

// set adds objects, or replaces them.
func (d *driven) set(objects ...metav1.Object) {
	d.t.Helper()
	put(d.t, d.cluster, objects...)
}

func put(t testing.TB, c *cluster.Cache, objects ...metav1.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Set(o); err != nil {
			t.Fatal(err)
		}
	}
}

// remove removes an object.
func (d *driven) remove(o metav1.Object) {
	d.t.Helper()
	if err := d.cluster.Remove(o); err != nil {
		d.t.Fatal(err)
	}
}

const csi = "csi.example.com"

// amount makes a list of resources from names and quantities.
func amount(of ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(of); i += 2 {
		l[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
	}
	return l
}

// roomy is a node with room for 4 CPUs in 10 pods, and a label with its name.
func roomy(name string, changes ...func(*corev1.Node)) *corev1.Node {
	return named(name, append([]func(*corev1.Node){func(n *corev1.Node) {
		n.UID = types.UID(name)
		n.Labels = map[string]string{corev1.LabelHostname: name}
		n.Status.Allocatable = amount("cpu", "4", "memory", "8Gi", "pods", "10")
	}}, changes...)...)
}

// guest is a pod in the namespace web on a node, with one container.
func guest(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := placed(name, node)
	p.UID = types.UID(name)
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "image"}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func asks(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amount("cpu", cpu) }
}

func volumed(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", len(p.Spec.Volumes)), VolumeSource: source})
	}
}

func claims(name string) func(*corev1.Pod) {
	return volumed(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
}

func claimed(name, class, volume string, changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "web", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "db"}, Finalizers: []string{"f"},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"},
	}}
	c.Spec.StorageClassName, c.Spec.VolumeName = &class, volume
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = amount("storage", "2Gi")
	if volume != "" {
		c.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func disk(name, class string, changes ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"speed": "fast"}, Annotations: map[string]string{"other": "x"},
	}}
	v.Spec.Capacity, v.Spec.StorageClassName = amount("storage", "2Gi"), class
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi, VolumeHandle: name, VolumeAttributes: map[string]string{"a": "b"}}
	v.Status.Phase = corev1.VolumeAvailable
	for _, change := range changes {
		change(v)
	}
	return v
}

// onNode is a selector of one node by its label.
func onNode(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name},
		}},
	}}}
}

func only(node string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: onNode(node)}
	}
}

func storageClass(name string, changes ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	s := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: csi, VolumeBindingMode: &mode, Parameters: map[string]string{"type": "ssd"},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func ofOwners(uids ...types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = nil
		for _, uid := range uids {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "ReplicaSet", Name: string(uid), UID: uid})
		}
	}
}

func pdb(name string, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name)},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector},
	}
}

func selecting(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func namespace(name string, of map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: of}}
}

func priorityClass(value int32) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high", UID: "high"}, Value: value}
}
