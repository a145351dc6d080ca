package scene

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// AddDeployment creates a Deployment whose pods run on the nodes of the scene, and waits until they do.
func (s *Scene) AddDeployment(name string, replicas int, change ...func(*corev1.PodTemplateSpec)) {
	s.T.Helper()
	_, err := s.Cluster.AddDeployment(s.T.Context(), s.Namespace, name, replicas, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"scene": s.Namespace}
		for _, c := range change {
			c(&d.Spec.Template)
		}
	})
	s.T.Must(err)
	s.T.Must(s.Cluster.WaitReady(s.T.Context(), s.Namespace, name))
}

// WaitReady waits until the Deployment has all its replicas.
func (s *Scene) WaitReady(name string) {
	s.T.Helper()
	s.T.Must(s.Cluster.WaitReady(s.T.Context(), s.Namespace, name))
}

// AddSingle creates a Deployment with one replica that prefers the first node, and waits until its pod is ready there.
func (s *Scene) AddSingle(name string, change ...func(*appsv1.Deployment)) {
	s.T.Helper()
	s.CreateSingle(name, change...)
	s.WaitReady(name)
	s.WaitPlaced(name, map[string]int{s.Nodes[0]: 1})
}

// CreateSingle is [Scene.AddSingle] without the wait for a ready pod.
func (s *Scene) CreateSingle(name string, change ...func(*appsv1.Deployment)) {
	s.T.Helper()
	_, err := s.Cluster.AddDeployment(s.T.Context(), s.Namespace, name, 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"scene": s.Namespace}
		PreferNode(s.Nodes[0])(&d.Spec.Template)
		for _, c := range change {
			c(d)
		}
	})
	s.T.Must(err)
}

// GetDeployment returns the current state of a Deployment.
func (s *Scene) GetDeployment(deployment string) *appsv1.Deployment {
	s.T.Helper()
	d, err := s.Client.AppsV1().Deployments(s.Namespace).Get(s.T.Context(), deployment, metav1.GetOptions{})
	s.T.Must(err)
	return d
}

// WaitAvailable waits until all pods of a Deployment have been ready for its minReadySeconds.
func (s *Scene) WaitAvailable(deployment string) {
	s.T.Helper()
	expect.EventuallyWithState(s.T, deployment+" is available", func() (bool, string) {
		d := s.GetDeployment(deployment)
		return d.Status.AvailableReplicas == *d.Spec.Replicas, fmt.Sprint(d.Status)
	})
}

// restart replaces the pods of a Deployment like `kubectl rollout restart`, and waits until the new pods run.
func (s *Scene) restart(name string) {
	s.T.Helper()
	patch := `{"spec":{"template":{"metadata":{"annotations":{"restarted":"` + time.Now().String() + `"}}}}}`
	_, err := s.Client.AppsV1().Deployments(s.Namespace).Patch(s.T.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	s.T.Must(err)
	s.WaitReady(name)
}

// TemplateChanges returns the changes of a Deployment's template by rehome in the audit log, in order.
func (s *Scene) TemplateChanges(deployment string) []cluster.AuditEntry {
	s.T.Helper()
	log, err := s.Cluster.Audit(s.T.Context())
	s.T.Must(err)
	return slices.DeleteFunc(log, func(e cluster.AuditEntry) bool {
		var patch struct {
			Spec struct {
				Template json.RawMessage `json:"template"`
			} `json:"spec"`
		}
		if e.Namespace != s.Namespace || e.Resource != "deployments" || e.Name != deployment || e.Verb != "patch" ||
			e.Code != http.StatusOK || !strings.HasPrefix(e.UserAgent, "rehome") {
			return true
		}
		s.T.Must(json.Unmarshal(e.Object, &patch))
		return patch.Spec.Template == nil
	})
}

// AddDaemonSet creates a DaemonSet on the nodes of the scene, and waits until its pods run.
func (s *Scene) AddDaemonSet(name string) {
	s.T.Helper()
	pods := PodTemplate(name)
	pods.Spec.NodeSelector = map[string]string{"scene": s.Namespace}
	_, err := s.Client.AppsV1().DaemonSets(s.Namespace).Create(s.T.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: pods.Labels}, Template: pods},
	}, metav1.CreateOptions{})
	s.T.Must(err)
	s.WaitRunning("app="+name, len(s.Nodes))
}
