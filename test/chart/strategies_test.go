package chart

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// Two functions would answer otherwise. Functions do not read the policy, so their arguments list the strategies.
func TestFunctionsSkipExternalStrategies(t *testing.T) {
	const elsewhere = `"policyAdditions":{"functions":[{"name":"PodLifeTime","http":{"url":"http://life"}},` +
		`{"name":"KeepOffSpot","nats":{"subject":"functions.keep-off-spot"},"scope":"node"}]}`
	without := func(names ...string) []string {
		return slices.DeleteFunc(functions.Names(functions.Hosted()), func(name string) bool { return slices.Contains(names, name) })
	}
	for rule, c := range map[string]struct {
		values string
		want   []string
	}{
		"nothing elsewhere":  {`{}`, nil},
		"one of the program": {`{"dispatcher":{"enabled":true},` + elsewhere + `}`, without("PodLifeTime")},
		"one that the program does not have": {`{"dispatcher":{"enabled":true},"policyAdditions":{"functions":[` +
			`{"name":"KeepOffSpot","nats":{"subject":"functions.keep-off-spot"},"scope":"node"}]}}`, nil},
		"in the policy itself": {`{"dispatcher":{"enabled":true},"deschedulerPolicyAPIVersion":"rehome.dev/v1alpha1",` +
			`"deschedulerPolicy":{"profiles":[],"functions":[{"name":"RemoveDuplicates","http":{"url":"http://a"}}]}}`, without("RemoveDuplicates")},
		"of the selected ones": {`{"dispatcher":{"enabled":true},"functions":{"strategies":["Request","PodLifeTime"]},` + elsewhere + `}`,
			[]string{"Request"}},
		"by Knative too": {`{"knative":{"enabled":true,"strategies":["RemoveDuplicates"]},` + elsewhere + `}`,
			without("PodLifeTime", "RemoveDuplicates")},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			d := manifesttest.Typed[appsv1.Deployment](t, rendered(t, "rehome", "--set", "mode=distributed,nats.enabled=true", "--set-json", c.values).
				one(t, "Deployment", "rehome-functions"))
			got := d.Spec.Template.Spec.Containers[0].Args
			if want := append([]string{"functions"}, c.want...); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// Knative ends a request after timeoutSeconds, and the dispatcher after the time in the policy.
func TestKnativeTimeout(t *testing.T) {
	const values = "mode=distributed,nats.enabled=true,dispatcher.enabled=true,knative.enabled=true,knative.strategies={RemoveDuplicates}," +
		"knative.timeout="
	for timeout, want := range map[string]int64{"60s": 60, "1m30.5s": 91, "100ms": 1} {
		t.Run(timeout, func(t *testing.T) {
			t.Parallel()
			all := rendered(t, "rehome", "--set", values+timeout)
			spec := all.pods(t)["Service/rehome-removeduplicates"]
			if got := spec["timeoutSeconds"]; got != want {
				t.Errorf("timeoutSeconds: got %v, want %d", got, want)
			}
		})
	}
}
