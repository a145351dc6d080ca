package chart

import (
	"reflect"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// TestActuatorAdmission compares the admission policy of the chart with the one of kustomize, which test/deploy/rbac tries.
func TestActuatorAdmission(t *testing.T) {
	const (
		policyKind, bindingKind = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
		elsewhere               = `{"policyAdditions":{"restart":{"workloads":"All","annotation":"example.com/at"}}}`
	)
	source := parse(t, filetest.Read(t, root, "deploy/kustomize/rbac/actuator/rules/admission.yaml"))
	for name, c := range map[string]struct {
		args                        []string
		object, account, annotation string
	}{
		"one_process": {nil, "rehome-actuator", "rehome:rehome", "kubectl.kubernetes.io/restartedAt"},
		"each_role":   {[]string{"--set", "mode=distributed,nats.enabled=true"}, "rehome-actuator", "rehome:rehome-actuator", "kubectl.kubernetes.io/restartedAt"},
		"cron_job":    {[]string{"--set", "kind=CronJob,fullnameOverride=other"}, "other-actuator", "rehome:other", "kubectl.kubernetes.io/restartedAt"},
		"own_account": {[]string{"--set", "serviceAccount.create=false,serviceAccount.name=mover"}, "rehome-actuator", "rehome:mover", "kubectl.kubernetes.io/restartedAt"},
		"namespace":   {[]string{"--set", "namespaceOverride=moving"}, "rehome-actuator", "moving:rehome", "kubectl.kubernetes.io/restartedAt"},
		"annotation":  {[]string{"--set-json", elsewhere}, "rehome-actuator", "rehome:rehome", "example.com/at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := rendered(t, "rehome", c.args...)
			want := manifesttest.Typed[admissionv1.ValidatingAdmissionPolicy](t, source.one(t, policyKind, "rehome-actuator")).Spec
			want.MatchConditions[0].Expression = "request.userInfo.username == 'system:serviceaccount:" + c.account + "'"
			want.Variables[0].Expression = `"` + c.annotation + `"`
			if got := manifesttest.Typed[admissionv1.ValidatingAdmissionPolicy](t, all.one(t, policyKind, c.object)).Spec; !reflect.DeepEqual(got, want) {
				t.Errorf("policy:\n got %+v\nwant %+v", got, want)
			}
			bound := manifesttest.Typed[admissionv1.ValidatingAdmissionPolicyBinding](t, source.one(t, bindingKind, "rehome-actuator")).Spec
			bound.PolicyName = c.object
			if got := manifesttest.Typed[admissionv1.ValidatingAdmissionPolicyBinding](t, all.one(t, bindingKind, c.object)).Spec; !reflect.DeepEqual(got, bound) {
				t.Errorf("binding:\n got %+v\nwant %+v", got, bound)
			}
		})
	}
	for _, off := range []string{"rbac.create=false", "rbac.admissionPolicy=false"} {
		for _, o := range rendered(t, "rehome", "--set", off) {
			if o.GetKind() == policyKind && o.GetName() != "nodemaintenances.rehome.dev" {
				t.Errorf("%s: got the policy %s, want none", off, o.GetName())
			}
		}
	}
}
