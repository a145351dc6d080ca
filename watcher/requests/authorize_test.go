package requests

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestAuthorize(t *testing.T) {
	some := policy.Policy{
		Profiles: []policy.Profile{{Name: "first"}, {Name: "second"}},
		Requests: &policy.Requests{MaxPods: 500, Senders: []policy.Sender{
			{Name: "admin", Nodes: true, Override: []string{policy.AnyRule}},
			{
				Name: "scaler", Namespaces: []string{"shop-*"}, Actions: []schemas.RequestAction{schemas.ActionDeschedule},
				Override: []string{policy.DaemonSetPods},
			},
		}},
	}
	by := func(sender string, change ...func(*schemas.Request)) schemas.Request {
		r := schematest.Request(change...)
		r.Sender = sender
		return r
	}
	in := func(namespace string) func(*schemas.Request) {
		return schematest.Targets(schemas.Target{Selector: &schemas.SelectorTarget{Namespace: namespace, Labels: "a=b"}})
	}
	rule := func(r string) func(*schemas.Request) { return func(q *schemas.Request) { q.Override = []string{r} } }
	no := func(reason schemas.ReceiptReason, message string) *request.End {
		return &request.End{Reason: reason, Message: message}
	}
	for _, c := range []struct {
		name    string
		policy  policy.Policy
		request schemas.Request
		profile string
		want    *request.End
	}{
		{"admin by default", policy.Policy{Profiles: some.Profiles}, by("admin", rule(policy.NodeFitRule)), "first", nil},
		{"http by default", policy.Policy{Profiles: some.Profiles}, by("http"), "first", nil},
		{
			"nobody else", policy.Policy{Profiles: some.Profiles}, by("scaler"), "",
			no(schemas.ReceiptNotAllowed, `the policy has no sender "scaler"`),
		},
		{"another profile", some, by("admin", func(r *schemas.Request) { r.Profile = "second" }), "second", nil},
		{
			"unknown profile", some, by("admin", func(r *schemas.Request) { r.Profile = "third" }), "",
			no(schemas.ReceiptPolicyUnknown, `the policy has no profile "third"`),
		},
		{
			"no profile", policy.Policy{}, by("admin"), "",
			no(schemas.ReceiptPolicyUnknown, "the policy has no profile"),
		},
		{
			"a node without the right", some, by("scaler"), "",
			no(schemas.ReceiptNotAllowed, "the policy does not allow scaler to request the pods of a node"),
		},
		{"pods of own namespaces", some, by("scaler", in("shop-eu")), "first", nil},
		{"selector without namespace", some, by("scaler", in("")), "first", nil},
		{
			"pods of other namespaces", some, by("scaler", in("web")), "",
			no(schemas.ReceiptNotAllowed, "the policy does not allow scaler to request pods of namespace web"),
		},
		{
			"one pod of another namespace", some,
			by("scaler", schematest.Targets(schemas.Target{Pods: []schemas.PodTarget{{Namespace: "shop-eu", Name: "a"}, {Namespace: "web", Name: "b"}}})), "",
			no(schemas.ReceiptNotAllowed, "the policy does not allow scaler to request pods of namespace web"),
		},
		{
			"action not allowed", some,
			by("scaler", func(r *schemas.Request) { r.Action, r.Target = schemas.ActionEvaluate, nil }), "",
			no(schemas.ReceiptNotAllowed, "the policy does not allow scaler to evaluate"),
		},
		{"override allowed", some, by("scaler", in("shop-eu"), rule(policy.DaemonSetPods)), "first", nil},
		{
			"override not allowed", some, by("scaler", in("shop-eu"), rule(policy.PodsWithPVC)), "",
			no(schemas.ReceiptNotAllowed, "the policy does not allow scaler to override PodsWithPVC"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			profile, got := allowedByPolicy(c.policy, c.request)
			if profile != c.profile || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got profile %q, %+v, want %q, %+v", profile, got, c.profile, c.want)
			}
		})
	}
	_, got := allowedByPolicy(some, by("admin", rule(policy.TerminatingPods)))
	if got == nil || got.Reason != schemas.ReceiptPolicyUnknown || !strings.Contains(got.Message, `no rule "TerminatingPods"`) {
		t.Errorf("a rule that cannot be overridden: got %+v", got)
	}
}
