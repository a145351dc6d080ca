package cluster

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RefuseEvictions creates an admission policy that refuses all evictions in a namespace. It takes effect a few hundred
// milliseconds later. A second call is harmless.
func (c *Cluster) RefuseEvictions(ctx context.Context, namespace string) error {
	api, meta := c.client.AdmissionregistrationV1(), metav1.ObjectMeta{Name: namespace}
	_, err := api.ValidatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"},
					},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no evictions here"}},
		},
	}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: meta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("refuse evictions in %s: %w", namespace, err)
	}
	return nil
}

// AllowEvictions reverts [Cluster.RefuseEvictions]. A second call is harmless.
func (c *Cluster) AllowEvictions(ctx context.Context, namespace string) error {
	api := c.client.AdmissionregistrationV1()
	for _, err := range []error{
		api.ValidatingAdmissionPolicyBindings().Delete(ctx, namespace, metav1.DeleteOptions{}),
		api.ValidatingAdmissionPolicies().Delete(ctx, namespace, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("allow evictions in %s: %w", namespace, err)
		}
	}
	return nil
}
