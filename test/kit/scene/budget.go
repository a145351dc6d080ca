package scene

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// AddBudget creates a PodDisruptionBudget for the pods of a Deployment, and waits until it counts them.
func (s *Scene) AddBudget(name, deployment string, minAvailable int32) {
	s.T.Helper()
	spec := policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(minAvailable))}
	_, err := s.Cluster.AddBudget(s.T.Context(), s.Namespace, name, deployment, spec)
	s.T.Must(err)
}

// ChangeBudget changes the number of pods that a budget requires.
func (s *Scene) ChangeBudget(name string, minAvailable int32) {
	s.T.Helper()
	b, err := s.Client.PolicyV1().PodDisruptionBudgets(s.Namespace).Get(s.T.Context(), name, metav1.GetOptions{})
	s.T.Must(err)
	least := intstr.FromInt32(minAvailable)
	b.Spec.MinAvailable = &least
	_, err = s.Client.PolicyV1().PodDisruptionBudgets(s.Namespace).Update(s.T.Context(), b, metav1.UpdateOptions{})
	s.T.Must(err)
}

// AddUnavailableBudget creates a PodDisruptionBudget that allows that many unavailable pods of a Deployment, and waits until it counts them.
func (s *Scene) AddUnavailableBudget(name, deployment string, unavailable int32) {
	s.T.Helper()
	spec := policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(unavailable))}
	_, err := s.Cluster.AddBudget(s.T.Context(), s.Namespace, name, deployment, spec)
	s.T.Must(err)
	expect.EventuallyWithState(s.T, "the budget counts its pods", func() (bool, string) {
		b, err := s.Client.PolicyV1().PodDisruptionBudgets(s.Namespace).Get(s.T.Context(), name, metav1.GetOptions{})
		s.T.Must(err)
		return b.Status.DisruptionsAllowed == unavailable, fmt.Sprint(b.Status)
	})
}
