package fit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schedulertest"
)

// nodeCount is how many nodes every scene has.
const nodeCount = 8

func newJudge(t *testing.T, c *cluster.Cluster, random *rand.Rand) *judge {
	t.Helper()
	config := c.RESTConfig()
	config.WarningHandler = rest.NoWarnings{} // Of the API server, about selectors of nothing and disks of old kinds.
	client, err := kubernetes.NewForConfig(config)
	expect.Must(t, err)
	j := &judge{
		t: t, ctx: t.Context(), cluster: c, client: client, random: random, asker: newAsker(t.Context(), t, client),
	}
	j.seen.reasons = map[fit.Reason]int{}
	version, err := client.Discovery().ServerVersion()
	expect.Must(t, err)
	if j.minor, err = strconv.Atoi(version.Minor); err != nil {
		t.Fatal(err)
	}
	nodes, err := c.AddNodes(t.Context(), nodeCount)
	expect.Must(t, err)
	j.nodes = nodes
	for _, name := range namespaces() {
		if err := c.AddNamespace(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	_, err = client.NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: heavyRuntime}, Handler: "heavy",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: quantity("700m")}},
	}, metav1.CreateOptions{})
	expect.Must(t, err)
	schedulertest.Freeze(t, c, binaries.Kwok)
	return j
}

// renewLeases says for the nodes that they live, as their kubelets would. All scenes together can take longer than a node
// counts as alive without it.
func (j *judge) renewLeases() {
	j.t.Helper()
	leases := j.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for _, node := range j.nodes {
		lease, err := leases.Get(j.ctx, node, metav1.GetOptions{})
		if err != nil {
			j.t.Fatal(err)
		}
		lease.Spec.RenewTime = new(metav1.NowMicro())
		if _, err := leases.Update(j.ctx, lease, metav1.UpdateOptions{}); err != nil {
			j.t.Fatal(err)
		}
	}
}

// scene is one state of the cluster.
type scene struct {
	*judge
	number int
	state  state
	// full is the state as package fit sees it, bare is it without the pods that are nominated.
	full, bare *fit.Cluster
}

// state is the created or the current state.
type state struct {
	Namespaces []corev1.Namespace
	Nodes      []corev1.Node
	CSINodes   []storagev1.CSINode
	Drivers    []storagev1.CSIDriver
	Capacities []storagev1.CSIStorageCapacity
	Classes    []storagev1.StorageClass
	Volumes    []corev1.PersistentVolume
	Claims     []corev1.PersistentVolumeClaim
	Pods       []corev1.Pod
}

// set makes a random state and waits until it is settled.
func (j *judge) set(number int) *scene {
	j.t.Helper()
	j.renewLeases()
	s := &scene{judge: j, number: number}
	want := s.randomState()
	s.makeStorage(want)
	each(s, want.Namespaces, s.changeNamespace)
	each(s, want.Nodes, s.changeNode)
	each(s, want.Pods, s.makePod)
	s.awaitClaims(want)
	s.state = s.look()
	return s
}

// each does something with all objects, some at the same time.
func each[T any](s *scene, objects []T, do func(context.Context, *T) error) {
	s.t.Helper()
	schedulertest.Each(s.ctx, s.t, objects, do)
}

func (s *scene) makeStorage(want state) {
	s.t.Helper()
	core, storage := s.client.CoreV1(), s.client.StorageV1()
	options := metav1.CreateOptions{}
	each(s, want.Classes, func(ctx context.Context, o *storagev1.StorageClass) error {
		_, err := storage.StorageClasses().Create(ctx, o, options)
		return err
	})
	each(s, want.CSINodes, func(ctx context.Context, o *storagev1.CSINode) error {
		_, err := storage.CSINodes().Create(ctx, o, options)
		return err
	})
	each(s, want.Drivers, func(ctx context.Context, o *storagev1.CSIDriver) error {
		_, err := storage.CSIDrivers().Create(ctx, o, options)
		return err
	})
	each(s, want.Capacities, func(ctx context.Context, o *storagev1.CSIStorageCapacity) error {
		_, err := storage.CSIStorageCapacities(o.Namespace).Create(ctx, o, options)
		return err
	})
	each(s, want.Volumes, func(ctx context.Context, o *corev1.PersistentVolume) error {
		_, err := core.PersistentVolumes().Create(ctx, o, options)
		return err
	})
	each(s, want.Claims, func(ctx context.Context, o *corev1.PersistentVolumeClaim) error {
		_, err := core.PersistentVolumeClaims(o.Namespace).Create(ctx, o, options)
		return err
	})
}

func (s *scene) changeNamespace(ctx context.Context, want *corev1.Namespace) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := s.client.CoreV1().Namespaces().Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		delete(now.Labels, "team")
		maps.Copy(now.Labels, want.Labels)
		_, err = s.client.CoreV1().Namespaces().Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
}

// changeNode turns a node into another one.
func (s *scene) changeNode(ctx context.Context, want *corev1.Node) error {
	nodes := s.client.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := nodes.Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Labels, now.Spec.Taints, now.Spec.Unschedulable = want.Labels, want.Spec.Taints, want.Spec.Unschedulable
		if now, err = nodes.Update(ctx, now, metav1.UpdateOptions{}); err != nil {
			return err
		}
		now.Status.Capacity, now.Status.Allocatable = want.Status.Capacity, want.Status.Allocatable
		now.Status.DeclaredFeatures = want.Status.DeclaredFeatures
		_, err = nodes.UpdateStatus(ctx, now, metav1.UpdateOptions{})
		return err
	})
}

// terminatingLabel marks pods that must be terminating, endedLabel pods that must have ended.
const (
	terminatingLabel = "test.rehome.dev/terminating"
	endedLabel       = "test.rehome.dev/ended"
)

func (s *scene) makePod(ctx context.Context, want *corev1.Pod) error {
	pods := s.client.CoreV1().Pods(want.Namespace)
	made, err := pods.Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, toYAML(want))
	}
	if _, ended := want.Labels[endedLabel]; ended {
		made.Status.Phase = corev1.PodSucceeded
		_, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	}
	if want.Status.NominatedNodeName != "" {
		made.Status.NominatedNodeName = want.Status.NominatedNodeName
		_, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	}
	if _, terminating := want.Labels[terminatingLabel]; terminating {
		err = pods.Delete(ctx, want.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(3600))})
	}
	return err
}

// awaitClaims waits until the controllers have bound the claims that should be bound, and the other volumes are
// available.
func (s *scene) awaitClaims(want state) {
	s.t.Helper()
	for i := range want.Claims {
		if c := &want.Claims[i]; c.Spec.VolumeName != "" && c.Labels[lostLabel] == "" {
			s.awaitPhase(c.Namespace, c.Name)
		}
	}
	for i := range want.Volumes {
		s.awaitVolume(want.Volumes[i].Name)
	}
}

func (s *scene) awaitPhase(namespace, name string) {
	s.t.Helper()
	w, err := s.client.CoreV1().PersistentVolumeClaims(namespace).Watch(s.ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if c, ok := event.Object.(*corev1.PersistentVolumeClaim); ok && c.Status.Phase == corev1.ClaimBound {
			return
		}
	}
	s.t.Fatalf("claim %s/%s: the watch has ended", namespace, name)
}

func (s *scene) awaitVolume(name string) {
	s.t.Helper()
	w, err := s.client.CoreV1().PersistentVolumes().Watch(s.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if v, ok := event.Object.(*corev1.PersistentVolume); ok && v.Status.Phase != "" && v.Status.Phase != corev1.VolumePending {
			return
		}
	}
	s.t.Fatalf("volume %s: the watch has ended", name)
}

// look lists what is there.
func (s *scene) look() state {
	s.t.Helper()
	core, storage, options := s.client.CoreV1(), s.client.StorageV1(), metav1.ListOptions{}
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	namespaces, err := core.Namespaces().List(s.ctx, options)
	must(err)
	nodes, err := core.Nodes().List(s.ctx, options)
	must(err)
	csiNodes, err := storage.CSINodes().List(s.ctx, options)
	must(err)
	drivers, err := storage.CSIDrivers().List(s.ctx, options)
	must(err)
	capacities, err := storage.CSIStorageCapacities("").List(s.ctx, options)
	must(err)
	classes, err := storage.StorageClasses().List(s.ctx, options)
	must(err)
	volumes, err := core.PersistentVolumes().List(s.ctx, options)
	must(err)
	claims, err := core.PersistentVolumeClaims("").List(s.ctx, options)
	must(err)
	pods, err := core.Pods("").List(s.ctx, options)
	must(err)
	return state{
		Namespaces: namespaces.Items, Nodes: nodes.Items, CSINodes: csiNodes.Items, Drivers: drivers.Items,
		Capacities: capacities.Items, Classes: classes.Items, Volumes: volumes.Items, Claims: claims.Items, Pods: pods.Items,
	}
}

// view returns the state as package fit sees it.
func (s *scene) view() *fit.Cluster {
	c := fit.New()
	c.MinorVersion = s.minor
	for i := range s.state.Namespaces {
		c.Set(&s.state.Namespaces[i])
	}
	for i := range s.state.Nodes {
		c.Set(&s.state.Nodes[i])
	}
	for i := range s.state.CSINodes {
		c.Set(&s.state.CSINodes[i])
	}
	for i := range s.state.Drivers {
		c.Set(&s.state.Drivers[i])
	}
	for i := range s.state.Capacities {
		c.Set(&s.state.Capacities[i])
	}
	for i := range s.state.Classes {
		c.Set(&s.state.Classes[i])
	}
	for i := range s.state.Volumes {
		c.Set(&s.state.Volumes[i])
	}
	for i := range s.state.Claims {
		c.Set(&s.state.Claims[i])
	}
	for i := range s.state.Pods {
		c.Set(&s.state.Pods[i])
	}
	return c
}

// clear removes what the scene has made.
func (s *scene) clear() {
	s.t.Helper()
	core, storage := s.client.CoreV1(), s.client.StorageV1()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	each(s, s.state.Pods, func(ctx context.Context, o *corev1.Pod) error {
		return core.Pods(o.Namespace).Delete(ctx, o.Name, now)
	})
	each(s, s.state.Claims, func(ctx context.Context, o *corev1.PersistentVolumeClaim) error {
		return core.PersistentVolumeClaims(o.Namespace).Delete(ctx, o.Name, now)
	})
	each(s, s.state.Volumes, func(ctx context.Context, o *corev1.PersistentVolume) error {
		return core.PersistentVolumes().Delete(ctx, o.Name, now)
	})
	each(s, s.state.Classes, func(ctx context.Context, o *storagev1.StorageClass) error {
		return storage.StorageClasses().Delete(ctx, o.Name, now)
	})
	each(s, s.state.CSINodes, func(ctx context.Context, o *storagev1.CSINode) error {
		return storage.CSINodes().Delete(ctx, o.Name, now)
	})
	each(s, s.state.Drivers, func(ctx context.Context, o *storagev1.CSIDriver) error {
		return storage.CSIDrivers().Delete(ctx, o.Name, now)
	})
	each(s, s.state.Capacities, func(ctx context.Context, o *storagev1.CSIStorageCapacity) error {
		return storage.CSIStorageCapacities(o.Namespace).Delete(ctx, o.Name, now)
	})
	s.awaitNothing()
}

// awaitNothing waits until claims and volumes, which are protected for a moment, are gone.
func (s *scene) awaitNothing() {
	s.t.Helper()
	w, err := s.client.CoreV1().PersistentVolumes().Watch(s.ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Stop()
	for {
		left, err := s.client.CoreV1().PersistentVolumes().List(s.ctx, metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		claims, err := s.client.CoreV1().PersistentVolumeClaims("").List(s.ctx, metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		if len(left.Items)+len(claims.Items) == 0 {
			return
		}
		if len(left.Items) > 0 {
			<-w.ResultChan()
		}
	}
}

// replay is everything that a difference is about, as YAML.
func (s *scene) replay(pod *corev1.Pod) string {
	return toYAML(struct {
		State state
		Asked *corev1.Pod
	}{s.state, pod})
}

// toYAML writes what JSON has, without the fields that the API server keeps for itself.
func toYAML(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return err.Error()
	}
	dropManaged(plain)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(plain); err != nil {
		return err.Error()
	}
	return b.String()
}

func dropManaged(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "managedFields")
		for _, child := range v {
			dropManaged(child)
		}
	case []any:
		for _, child := range v {
			dropManaged(child)
		}
	}
}
