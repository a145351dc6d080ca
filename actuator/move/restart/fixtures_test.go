package restart

import (
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// same compares whole values and prints both.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, expect.Indented(got), expect.Indented(want))
	}
}

// noon returns the time of the tests without a cluster.
func noon() time.Time { return time.Date(2026, 11, 3, 12, 0, 0, 250, time.UTC) }

// aPod returns a running pod of aDeployment.
func aPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "api-1", UID: "pod-1", Labels: map[string]string{"app": "api"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "api-5", UID: "set-5", Controller: new(true)},
			},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// aDeployment returns a Deployment with that many replicas, all available, and the default strategy.
func aDeployment(replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api", UID: "deployment-1", Generation: 3, ResourceVersion: "77"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, ProgressDeadlineSeconds: new(int32(600)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "api"}}},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: replicas, UpdatedReplicas: replicas,
			ReadyReplicas: replicas, AvailableReplicas: replicas,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
			}},
	}
}

// aCandidate returns an eligible candidate.
func aCandidate(method schemas.Method) candidate {
	return candidate{Pod: aPod(), Deployment: aDeployment(1), Method: method,
		Policy: policy.Restart{Workloads: policy.RestartAll}, Now: noon()}
}

// refusal returns a refusal about aDeployment.
func refusal(outcome schemas.Outcome, reason schemas.ReasonCode, message string) *move.Refusal {
	return &move.Refusal{Outcome: outcome, Reason: reason, Message: "deployment shop/api: " + message}
}

func claim(name string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes}}
}

func owner(version, kind string, uid types.UID, controller bool) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "api", UID: uid, Controller: &controller}}
}

func refOf(d *appsv1.Deployment) *schemas.ObjectRef {
	return &schemas.ObjectRef{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, UID: d.UID}
}
