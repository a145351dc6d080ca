package e2e

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
)

// guarded has workloads on one node. Each has its own profile with one protection of its pods.
type guarded struct {
	*scene
	events *recording
	pods   map[string]map[types.UID]string // of each workload, before anything moved
	lifted map[string]time.Time            // when the protection of a workload ended
}

// TestProtectionsHoldAndEnd protects a pod as long as what its protection depends on.
func TestProtectionsHoldAndEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t, 2)
	s.label(s.nodes[0], "room", "large")
	s.priorityClass("high", 1000)
	s.priorityClass("important", 1000)
	g := s.guard(map[string]string{
		"free":      "{}",
		"fit":       "{nodeFit: true}",
		"replicas":  "{minReplicas: 3}",
		"namespace": "{namespaceLabelSelector: {matchLabels: {moves: freely}}}",
		"budget":    "{podProtections: {extraEnabled: [PodsWithoutPDB]}}",
		"priority":  "{priorityThreshold: {name: " + s.namespace + "-important}}",
	}, map[string]func(*corev1.PodTemplateSpec){
		"fit":      func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector["room"] = "large" },
		"priority": s.prioritized("high"),
	})

	g.lift("free", func() { s.taint(s.nodes[0], "dedicated") })
	s.moved(0, 2)
	for _, answer := range payloads[schemas.Intents](g.events) {
		for _, i := range answer.Intents {
			if answer.Profile != "free" || !strings.HasPrefix(i.Pod.Name, "free-") {
				t.Errorf("%s of the profile %s was wanted moved although it is protected", i.Pod.Name, answer.Profile)
			}
		}
	}

	g.lift("fit", func() { s.addNodes(1, labeled("room", "large")) })
	s.placed("fit", map[string]int{s.nodes[2]: 2})
	g.lift("replicas", func() { s.scale("replicas", 3) })
	g.lift("namespace", func() { s.labelNamespace("moves", "freely") })
	g.lift("budget", func() { s.budget("allows", "budget", 0) })
	g.lift("priority", func() {
		s.t.Must(s.client.SchedulingV1().PriorityClasses().Delete(t.Context(), s.namespace+"-important", metav1.DeleteOptions{}))
		s.priorityClass("important", 1001)
	})
	s.moved(len(g.lifted)*2, 0)
	s.emptied(s.nodes[0])
	for workload := range g.pods {
		s.ready(workload)
	}
}

// guard creates two pods of each workload on the first node, and runs rehome with one profile for each. args are the arguments of
// its DefaultEvictor.
func (s *scene) guard(args map[string]string, change map[string]func(*corev1.PodTemplateSpec)) guarded {
	s.t.Helper()
	g := guarded{scene: s, pods: map[string]map[types.UID]string{}, lifted: map[string]time.Time{}}
	var profiles []string
	for _, name := range slices.Sorted(maps.Keys(args)) {
		changes := []func(*corev1.PodTemplateSpec){preferring(s.nodes[0])}
		if c := change[name]; c != nil {
			changes = append(changes, c)
		}
		s.deployment(name, 2, changes...)
		s.placed(name, map[string]int{s.nodes[0]: 2})
		g.pods[name] = map[types.UID]string{}
		for _, p := range s.podsOf(name) {
			g.pods[name][p.UID] = p.Name
		}
		profiles = append(profiles, profile(name, "deschedule", "RemovePodsViolatingNodeTaints",
			"{name: DefaultEvictor, args: "+args[name]+"}",
			"{name: RemovePodsViolatingNodeTaints, args: {labelSelector: {matchLabels: {app: "+name+"}}}}"))
	}
	g.events = s.follow(s.profiles(profiles))
	return g
}

// lift ends the protection of a workload, and waits until its pods have moved. It checks that only unprotected pods were evicted
// so far, and only after their protection had ended.
func (g guarded) lift(workload string, end func()) {
	g.t.Helper()
	g.lifted[workload] = time.Now()
	end()
	want := map[types.UID]string{}
	for name := range g.lifted {
		maps.Copy(want, g.pods[name])
	}
	got := g.evicted(0, len(want))
	if !reflect.DeepEqual(uids(got), want) || len(got) != len(want) {
		g.t.Fatalf("after the end of what protects %s: evicted %v, want each once of %v", workload, uids(got), want)
	}
	for _, e := range got {
		name, _, _ := strings.Cut(e.pod, "-")
		if e.received.Before(g.lifted[name]) {
			g.t.Errorf("pod %s was evicted at %v, and protected until %v", e.pod, e.received, g.lifted[name])
		}
	}
}

// priorityClass creates a PriorityClass for the scene.
func (s *scene) priorityClass(name string, value int32) {
	s.t.Helper()
	classes, full := s.client.SchedulingV1().PriorityClasses(), s.namespace+"-"+name
	_, err := classes.Create(s.t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: full}, Value: value, PreemptionPolicy: new(corev1.PreemptNever),
	}, metav1.CreateOptions{})
	s.t.Must(err)
	s.t.Cleanup(func() { _ = classes.Delete(context.WithoutCancel(s.t.Context()), full, metav1.DeleteOptions{}) })
}

// prioritized assigns a PriorityClass of the scene to the pods.
func (s *scene) prioritized(name string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = s.namespace + "-" + name }
}

// scale changes the number of replicas of a Deployment.
func (s *scene) scale(deployment string, replicas int) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	_, err := s.client.AppsV1().Deployments(s.namespace).Patch(s.t.Context(), deployment, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.t.Must(err)
}

// labelNamespace adds a label to the namespace of the scene.
func (s *scene) labelNamespace(key, value string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	_, err := s.client.CoreV1().Namespaces().Patch(s.t.Context(), s.namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.t.Must(err)
}
