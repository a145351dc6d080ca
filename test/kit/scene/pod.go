package scene

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// AddPod creates a pod without an owner on a node, and waits until it runs.
func (s *Scene) AddPod(name, node string, annotations map[string]string) {
	s.T.Helper()
	s.CreatePod(name, node, annotations)
	s.WaitRunning("app="+name, 1)
}

// CreatePod creates a pod on a node without waiting for it.
func (s *Scene) CreatePod(name, node string, annotations map[string]string) {
	s.T.Helper()
	_, err := s.Client.CoreV1().Pods(s.Namespace).Create(s.T.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	s.T.Must(err)
}

// PatchPod changes a pod by a strategic merge patch.
func (s *Scene) PatchPod(name, patch string, subresources ...string) {
	s.T.Helper()
	_, err := s.Client.CoreV1().Pods(s.Namespace).Patch(s.T.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	s.T.Must(err)
}

// PodTemplate returns a pod template with the label app.
func PodTemplate(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

// OnNode restricts the pods of a Deployment to a node by its node selector.
func OnNode(node string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.NodeSelector[corev1.LabelHostname] = node
	}
}

// PreferNode makes the scheduler choose a node for the pods if possible, and any other node otherwise.
func PreferNode(node string) func(*corev1.PodTemplateSpec) {
	return PreferLabel(corev1.LabelHostname, node)
}

// PreferLabel is [PreferNode] for all nodes with a label.
func PreferLabel(key, value string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: 100, Preference: HasLabel(key, value)},
			},
		}}
	}
}

// HasLabel selects the nodes with a label.
func HasLabel(key, value string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
	}}
}

// NotBeside prevents the scheduler from placing the pods on a node with a pod that has the label. Call it after [PreferNode].
func NotBeside(key, value string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
			}},
		}
	}
}

// PodsOn returns the pods of the scene on a node that are not terminating, by UID.
func (s *Scene) PodsOn(node string) map[types.UID]string {
	s.T.Helper()
	list, err := s.Client.CoreV1().Pods(s.Namespace).List(s.T.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	s.T.Must(err)
	pods := map[types.UID]string{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			pods[p.UID] = p.Name
		}
	}
	return pods
}

// PodsOf returns the pods of a Deployment that are not terminating, by name.
func (s *Scene) PodsOf(deployment string) []corev1.Pod {
	s.T.Helper()
	list, err := s.Client.CoreV1().Pods(s.Namespace).List(s.T.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment})
	s.T.Must(err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// WaitRunning waits until n pods with the labels run.
func (s *Scene) WaitRunning(selector string, n int) {
	s.T.Helper()
	_, err := s.Cluster.WaitPods(s.T.Context(), s.Namespace, selector, "running", func(pods []*corev1.Pod) bool {
		return len(pods) == n && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	})
	s.T.Must(err)
}

// WaitEmpty waits until no pod of the scene is on the node.
func (s *Scene) WaitEmpty(node string) {
	s.T.Helper()
	_, err := s.Cluster.WaitPods(s.T.Context(), s.Namespace, "", "no pod on "+node, func(pods []*corev1.Pod) bool {
		return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
	})
	s.T.Must(err)
}

// WaitPlaced waits until n pods of a Deployment are Ready on these nodes, and none on others.
func (s *Scene) WaitPlaced(deployment string, want map[string]int) {
	s.T.Helper()
	s.WaitPlacedBy(deployment, corev1.LabelHostname, want)
}

// WaitPlacedBy is [Scene.WaitPlaced] for the values of a node label.
func (s *Scene) WaitPlacedBy(deployment, label string, want map[string]int) {
	s.T.Helper()
	expect.EventuallyWithState(s.T, fmt.Sprintf("the pods of %s are Ready by %s as %v", deployment, label, want), func() (bool, string) {
		got := map[string]int{}
		for _, p := range s.PodsOf(deployment) {
			if cluster.IsReady(&p) {
				got[s.Node(p.Spec.NodeName).Labels[label]]++
			} else {
				got["not Ready"]++
			}
		}
		return maps.Equal(got, want), fmt.Sprint(got)
	})
}

// BringBack removes all taints from the first node, and restarts a Deployment until its n pods run there, because the scheduler may
// notice late that the taints are gone.
func (s *Scene) BringBack(deployment string, n int) {
	s.T.Helper()
	s.Untaint(s.Nodes[0])
	expect.EventuallyWithState(s.T, fmt.Sprintf("%d pods are back on the first node", n), func() (bool, string) {
		s.restart(deployment)
		pods := s.PodsOn(s.Nodes[0])
		return len(pods) == n, fmt.Sprint(pods)
	})
}

// PodHistory is the history of the pods of a scene.
type PodHistory struct{ *clustertest.Pods }

// WatchPods follows the pods of the scene until it ends.
func (s *Scene) WatchPods() PodHistory {
	s.T.Helper()
	return PodHistory{clustertest.WatchPods(s.T, s.Client, s.Namespace)}
}

// MostMissing returns, for each group of Deployments, the largest number of wanted pods that were not ready at the same time, for any
// reason.
func (l PodHistory) MostMissing(group func(deployment string) string, wanted int) map[string]int {
	most := map[string]int{}
	for name, n := range l.Least(func(p *corev1.Pod) string { return group(p.Labels["app"]) }) {
		most[name] = wanted - n
	}
	return most
}

// ByDeployment makes each Deployment a group of its own, for [PodHistory.MostMissing].
func ByDeployment(deployment string) string { return deployment }
