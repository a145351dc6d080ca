package watcher

import (
	"slices"

	"github.com/rehome-dev/rehome/policy"
	req "github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// objection is why a request is rejected.
type objection = req.Rejection

func refuse(reason schemas.ReceiptReason, format string, values ...any) *objection {
	return req.Refuse(reason, format, values...)
}

func malformed(format string, values ...any) *objection { return req.Malformed(format, values...) }

// mayAsk says why the policy does not let the sender ask for that. The profile is the one that holds.
func (p *plan) mayAsk(r schemas.Request) (profile string, no *objection) {
	s, known := p.requests.Sender(r.Sender)
	if !known {
		return "", refuse(schemas.ReceiptNotAllowed, "the policy has no sender %q", r.Sender)
	}
	if !s.May(r.Action) {
		return "", refuse(schemas.ReceiptNotAllowed, "the policy does not let %s ask to %s", s.Name, r.Action)
	}
	if r.Action != schemas.ActionDeschedule {
		return r.Profile, nil
	}
	if no := allowsTarget(s, *r.Target); no != nil {
		return "", no
	}
	for _, rule := range r.Override {
		switch {
		case !slices.Contains(policy.Overridable(), rule):
			return "", refuse(schemas.ReceiptPolicyUnknown, "there is no rule %q that can be overridden; want one of %v", rule,
				policy.Overridable())
		case !s.MayOverride(rule):
			return "", refuse(schemas.ReceiptNotAllowed, "the policy does not let %s override %s", s.Name, rule)
		}
	}
	return p.profileOf(r.Profile)
}

// allowsTarget says why the sender may not ask for pods of the target at all.
func allowsTarget(s policy.Sender, t schemas.Target) *objection {
	var of []string
	for _, p := range t.Pods {
		of = append(of, p.Namespace)
	}
	if t.Workload != nil {
		of = append(of, t.Workload.Namespace)
	}
	if t.Selector != nil && t.Selector.Namespace != "" {
		of = append(of, t.Selector.Namespace)
	}
	for _, namespace := range of {
		if !s.MayIn(namespace) {
			return refuse(schemas.ReceiptNotAllowed, "the policy does not let %s ask for pods of namespace %s", s.Name, namespace)
		}
	}
	if t.Node != "" && !s.Nodes {
		return refuse(schemas.ReceiptNotAllowed, "the policy does not let %s ask for the pods of a node", s.Name)
	}
	return nil
}

// profileOf is the profile that a request names, or the first one of the policy.
func (p *plan) profileOf(name string) (string, *objection) {
	if len(p.profiles) == 0 {
		return "", refuse(schemas.ReceiptPolicyUnknown, "the policy has no profile")
	}
	if name == "" {
		return p.profiles[0].Name, nil
	}
	if !slices.ContainsFunc(p.profiles, func(x policy.Profile) bool { return x.Name == name }) {
		return "", refuse(schemas.ReceiptPolicyUnknown, "the policy has no profile %q", name)
	}
	return name, nil
}
