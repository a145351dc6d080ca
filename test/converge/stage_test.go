package converge

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schedulertest"
)

const (
	namespace     = "shop"
	workloadLabel = "app"
	// probeName is a pod that shows that the scheduler knows all nodes of a world.
	probeName = "probe"
)

// stage is a control plane for one world after the other. Its scheduler places pods. The test does the work of the kubelets and
// the controllers.
type stage struct {
	t      expect.T
	ctx    context.Context
	client kubernetes.Interface
	pods   *schedulertest.Pods
	// owners are the UIDs of the workloads of the world.
	owners map[string]types.UID
	// nodes and volumes, with their claims, are as the API server made them.
	nodes   []corev1.Node
	volumes []metav1.Object
	// beginning has the pods of the beginning.
	beginning map[types.UID]placed
	made      int
}

func newStage(t *testing.T, options cluster.Options) *stage {
	t.Helper()
	c := clustertest.New(t, options)
	schedulertest.Freeze(t, c, binaries.Kwok)
	config := c.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	expect.Must(t, err)
	s := &stage{t: expect.T{TB: t}, ctx: t.Context(), client: client}
	for name, value := range map[string]int32{lowPriority: 100, highPriority: 1000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: new(corev1.PreemptNever)}
		if _, err := client.SchedulingV1().PriorityClasses().Create(s.ctx, class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.AddNamespace(s.ctx, namespace); err != nil {
		t.Fatal(err)
	}
	if err := c.StopControllers(); err != nil {
		t.Fatal(err)
	}
	s.pods = schedulertest.WatchPods(s.ctx, t, client, "")
	return s
}

// set makes the objects of a world.
func (s *stage) set(w *world) {
	s.t.Helper()
	s.owners, s.beginning, s.nodes, s.made = map[string]types.UID{}, map[types.UID]placed{}, nil, 0
	s.nodes = make([]corev1.Node, len(w.nodes))
	for i := range w.nodes {
		w.nodes[i].DeepCopyInto(&s.nodes[i])
	}
	last := len(s.nodes) - 1
	schedulertest.Each(s.ctx, s.t, s.nodes[:last], s.addNode)
	s.t.Must(s.addNode(s.ctx, &s.nodes[last]))
	s.awaitNodes()
	for _, l := range w.workloads {
		s.addWorkload(l)
	}
	s.addBeginning(w)
	s.volumes = s.listVolumes()
}

func (s *stage) addNode(ctx context.Context, n *corev1.Node) error {
	nodes := s.client.CoreV1().Nodes()
	made, err := nodes.Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Spec.Taints = n.Spec.Taints // without the one of new nodes
	if made, err = nodes.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	*n = *made
	return nil
}

// awaitNodes waits until the scheduler knows the nodes: it places a pod on the last one.
func (s *stage) awaitNodes() {
	s.t.Helper()
	last := s.nodes[len(s.nodes)-1]
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: probeName},
		Spec: corev1.PodSpec{
			Containers:   []corev1.Container{{Name: "main", Image: "none"}},
			NodeSelector: map[string]string{hostname: last.Name},
		},
	}
	for _, taint := range last.Spec.Taints {
		probe.Spec.Tolerations = append(probe.Spec.Tolerations, corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpExists})
	}
	pods := s.client.CoreV1().Pods(namespace)
	made, err := pods.Create(s.ctx, probe, metav1.CreateOptions{})
	s.t.Must(err)
	late := time.After(schedulertest.Patience)
	for {
		switch p := s.pods.Next(late); {
		case p == nil:
			s.t.Fatalf("the scheduler does not know node %s", last.Name)
		case p.UID == made.UID && p.Spec.NodeName != "":
			s.t.Must(pods.Delete(s.ctx, probeName, now()))
			return
		}
	}
}

func now() metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))} }

// addWorkload makes the owner and the volume. The scheduler derives its default spreading from the owner.
func (s *stage) addWorkload(l *workload) {
	s.t.Helper()
	s.owners[l.name] = types.UID("uid-of-" + l.name)
	if l.kind == replicaSet {
		made, err := s.client.AppsV1().ReplicaSets(namespace).Create(s.ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: l.name},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: new(int32(len(l.pods))), Template: l.template,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{workloadLabel: l.name}},
			},
		}, metav1.CreateOptions{})
		s.t.Must(err)
		s.owners[l.name] = made.UID
	}
	if l.volume != "" {
		s.addVolume(l)
	}
}

// addVolume makes a volume on one node and a claim that is bound to it, as the controllers would have bound it.
func (s *stage) addVolume(l *workload) {
	s.t.Helper()
	claim, err := s.client.CoreV1().PersistentVolumeClaims(namespace).Create(s.ctx, newClaim(l), metav1.CreateOptions{})
	s.t.Must(err)
	claim.Status.Phase = corev1.ClaimBound
	_, err = s.client.CoreV1().PersistentVolumeClaims(namespace).UpdateStatus(s.ctx, claim, metav1.UpdateOptions{})
	s.t.Must(err)
	volume, err := s.client.CoreV1().PersistentVolumes().Create(s.ctx, newVolume(l, claim.UID), metav1.CreateOptions{})
	s.t.Must(err)
	volume.Status.Phase = corev1.VolumeBound
	_, err = s.client.CoreV1().PersistentVolumes().UpdateStatus(s.ctx, volume, metav1.UpdateOptions{})
	s.t.Must(err)
}

func newClaim(l *workload) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: l.name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: l.name, StorageClassName: new(""),
			Resources: corev1.VolumeResourceRequirements{Requests: sizeOf(l)},
		},
	}
}

func newVolume(l *workload, claim types.UID) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: l.name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: sizeOf(l), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: l.name, UID: claim},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: hostname, Operator: corev1.NodeSelectorOpIn, Values: []string{l.volume}}},
			}}}},
		},
	}
}

func sizeOf(l *workload) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *l.template.Spec.Containers[0].Resources.Requests.Cpu()}
}

// newPod returns the next pod of the workload.
func (s *stage) newPod(l *workload) *corev1.Pod {
	s.made++
	p := &corev1.Pod{ObjectMeta: *l.template.ObjectMeta.DeepCopy(), Spec: *l.template.Spec.DeepCopy()}
	p.Namespace, p.Name = namespace, podName(l, s.made)
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: l.kind, Name: l.name, UID: s.owners[l.name], Controller: new(true),
	}}
	if l.volume != "" {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: l.name},
		}}}
	}
	return p
}

// addBeginning makes the pods of the beginning on their nodes.
func (s *stage) addBeginning(w *world) {
	s.t.Helper()
	var all []corev1.Pod
	var at []placed
	for _, l := range w.workloads {
		for _, p := range l.pods {
			pod := s.newPod(l)
			pod.Spec.NodeName = p.node
			if p.failed {
				pod.Status.Phase = corev1.PodFailed
			}
			all, at = append(all, *pod), append(at, p)
		}
	}
	schedulertest.Each(s.ctx, s.t, all, func(ctx context.Context, p *corev1.Pod) error {
		made, err := s.client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
		if err == nil && p.Status.Phase == corev1.PodFailed {
			made.Status.Phase = corev1.PodFailed
			made, err = s.client.CoreV1().Pods(namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
		*p = *made
		return nil
	})
	for i := range all {
		s.beginning[all[i].UID] = at[i]
	}
}

// listVolumes returns the claims and volumes of the world.
func (s *stage) listVolumes() (all []metav1.Object) {
	s.t.Helper()
	claims, err := s.client.CoreV1().PersistentVolumeClaims(namespace).List(s.ctx, metav1.ListOptions{})
	s.t.Must(err)
	for i := range claims.Items {
		all = append(all, &claims.Items[i])
	}
	volumes, err := s.client.CoreV1().PersistentVolumes().List(s.ctx, metav1.ListOptions{})
	s.t.Must(err)
	for i := range volumes.Items {
		all = append(all, &volumes.Items[i])
	}
	return all
}

// objects returns the objects for a decision, with the status that kubelets and time would give them.
func (s *stage) objects() ([]metav1.Object, []corev1.Pod) {
	s.t.Helper()
	objects := []metav1.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}}
	for i := range s.nodes {
		objects = append(objects, s.nodes[i].DeepCopy())
	}
	for _, o := range s.volumes {
		objects = append(objects, o.(runtime.Object).DeepCopyObject().(metav1.Object))
	}
	pods, err := s.client.CoreV1().Pods(namespace).List(s.ctx, metav1.ListOptions{})
	s.t.Must(err)
	for i := range pods.Items {
		objects = append(objects, s.running(pods.Items[i].DeepCopy()))
	}
	return objects, pods.Items
}

// running gives a pod that has a node the status of a kubelet, and a pod of the beginning its history.
func (s *stage) running(p *corev1.Pod) *corev1.Pod {
	at := s.beginning[p.UID]
	p.CreationTimestamp = metav1.NewTime(p.CreationTimestamp.Add(-at.age))
	if p.Spec.NodeName == "" {
		return p
	}
	p.Status.StartTime = &p.CreationTimestamp
	if p.Status.Phase == corev1.PodPending {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: at.restarts, Ready: !at.failed}}
	return p
}

// clear removes the world.
func (s *stage) clear() {
	s.t.Helper()
	core, all := s.client.CoreV1(), metav1.ListOptions{}
	s.t.Must(core.Pods(namespace).DeleteCollection(s.ctx, now(), all))
	s.t.Must(s.client.AppsV1().ReplicaSets(namespace).DeleteCollection(s.ctx, now(), all))
	s.t.Must(core.Nodes().DeleteCollection(s.ctx, now(), all))
	// Claims and volumes have finalizers that no controller removes.
	for _, o := range s.volumes {
		patch := []byte(`{"metadata": {"finalizers": null}}`)
		var err error
		switch o.(type) {
		case *corev1.PersistentVolumeClaim:
			_, err = core.PersistentVolumeClaims(namespace).Patch(s.ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
			s.t.Must(err)
			err = core.PersistentVolumeClaims(namespace).Delete(s.ctx, o.GetName(), now())
		default:
			_, err = core.PersistentVolumes().Patch(s.ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
			s.t.Must(err)
			err = core.PersistentVolumes().Delete(s.ctx, o.GetName(), now())
		}
		s.t.Must(err)
	}
}
