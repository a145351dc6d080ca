package moves

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// guarded has workloads on one node. Each has its own profile with one protection of its pods.
type guarded struct {
	*scene.Scene
	events *scene.Recording
	pods   map[string]map[types.UID]string // of each workload, before anything moved
	lifted map[string]time.Time            // when the protection of a workload ended
}

// TestProtectionsHoldAndEnd protects a pod as long as what its protection depends on.
func TestProtectionsHoldAndEnd(t *testing.T) {
	t.Parallel()
	s := scene.New(t, 2)
	s.LabelNode(s.Nodes[0], "room", "large")
	priorityClass(s, "high", 1000)
	priorityClass(s, "important", 1000)
	g := guard(s, map[string]string{
		"free":      "{}",
		"fit":       "{nodeFit: true}",
		"replicas":  "{minReplicas: 3}",
		"namespace": "{namespaceLabelSelector: {matchLabels: {moves: freely}}}",
		"budget":    "{podProtections: {extraEnabled: [PodsWithoutPDB]}}",
		"priority":  "{priorityThreshold: {name: " + s.Namespace + "-important}}",
	}, map[string]func(*corev1.PodTemplateSpec){
		"fit":      func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector["room"] = "large" },
		"priority": prioritized(s, "high"),
	})

	g.lift("free", func() { s.Taint(s.Nodes[0], "dedicated") })
	s.CheckMoved(0, 2)
	for _, answer := range scene.Payloads[schemas.Intents](g.events) {
		for _, i := range answer.Intents {
			if answer.Profile != "free" || !strings.HasPrefix(i.Pod.Name, "free-") {
				t.Errorf("%s of the profile %s was wanted moved although it is protected", i.Pod.Name, answer.Profile)
			}
		}
	}

	g.lift("fit", func() { s.AddNodes(1, scene.WithLabel("room", "large")) })
	s.WaitPlaced("fit", map[string]int{s.Nodes[2]: 2})
	g.lift("replicas", func() { scale(s, "replicas", 3) })
	g.lift("namespace", func() { labelNamespace(s, "moves", "freely") })
	g.lift("budget", func() { s.AddBudget("allows", "budget", 0) })
	g.lift("priority", func() {
		s.T.Must(s.Client.SchedulingV1().PriorityClasses().Delete(t.Context(), s.Namespace+"-important", metav1.DeleteOptions{}))
		priorityClass(s, "important", 1001)
	})
	s.CheckMoved(len(g.lifted)*2, 0)
	s.WaitEmpty(s.Nodes[0])
	for workload := range g.pods {
		s.WaitReady(workload)
	}
}

// guard creates two pods of each workload on the first node, and runs rehome with one profile for each. args are the arguments of
// its DefaultEvictor.
func guard(s *scene.Scene, args map[string]string, change map[string]func(*corev1.PodTemplateSpec)) guarded {
	s.T.Helper()
	g := guarded{Scene: s, pods: map[string]map[types.UID]string{}, lifted: map[string]time.Time{}}
	var profiles []string
	for _, name := range slices.Sorted(maps.Keys(args)) {
		changes := []func(*corev1.PodTemplateSpec){scene.PreferNode(s.Nodes[0])}
		if c := change[name]; c != nil {
			changes = append(changes, c)
		}
		s.AddDeployment(name, 2, changes...)
		s.WaitPlaced(name, map[string]int{s.Nodes[0]: 2})
		g.pods[name] = map[types.UID]string{}
		for _, p := range s.PodsOf(name) {
			g.pods[name][p.UID] = p.Name
		}
		profiles = append(profiles, scene.Profile(name, "deschedule", "RemovePodsViolatingNodeTaints",
			"{name: DefaultEvictor, args: "+args[name]+"}",
			"{name: RemovePodsViolatingNodeTaints, args: {labelSelector: {matchLabels: {app: "+name+"}}}}"))
	}
	g.events = follow(s, s.ProfilesPolicy(profiles))
	return g
}

// lift ends the protection of a workload, and waits until its pods have moved. It checks that only unprotected pods were evicted
// so far, and only after their protection had ended.
func (g guarded) lift(workload string, end func()) {
	g.T.Helper()
	g.lifted[workload] = time.Now()
	end()
	want := map[types.UID]string{}
	for name := range g.lifted {
		maps.Copy(want, g.pods[name])
	}
	got := g.WaitEvicted(0, len(want))
	if !reflect.DeepEqual(scene.UIDs(got), want) || len(got) != len(want) {
		g.T.Fatalf("after the end of what protects %s: evicted %v, want each once of %v", workload, scene.UIDs(got), want)
	}
	for _, e := range got {
		name, _, _ := strings.Cut(e.Pod, "-")
		if e.Received.Before(g.lifted[name]) {
			g.T.Errorf("pod %s was evicted at %v, and protected until %v", e.Pod, e.Received, g.lifted[name])
		}
	}
}

// priorityClass creates a PriorityClass for the scene.
func priorityClass(s *scene.Scene, name string, value int32) {
	s.T.Helper()
	classes, full := s.Client.SchedulingV1().PriorityClasses(), s.Namespace+"-"+name
	_, err := classes.Create(s.T.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: full}, Value: value, PreemptionPolicy: new(corev1.PreemptNever),
	}, metav1.CreateOptions{})
	s.T.Must(err)
	s.T.Cleanup(func() { _ = classes.Delete(context.WithoutCancel(s.T.Context()), full, metav1.DeleteOptions{}) })
}

// prioritized assigns a PriorityClass of the scene to the pods.
func prioritized(s *scene.Scene, name string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = s.Namespace + "-" + name }
}

// scale changes the number of replicas of a Deployment.
func scale(s *scene.Scene, deployment string, replicas int) {
	s.T.Helper()
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	_, err := s.Client.AppsV1().Deployments(s.Namespace).Patch(s.T.Context(), deployment, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.T.Must(err)
}

// labelNamespace adds a label to the namespace of the scene.
func labelNamespace(s *scene.Scene, key, value string) {
	s.T.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	_, err := s.Client.CoreV1().Namespaces().Patch(s.T.Context(), s.Namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.T.Must(err)
}
