package requests

import (
	"slices"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// allowedByPolicy returns the profile whose rules apply, or the reason why the policy does not allow the request. The API
// checks the rights of a user.
func allowedByPolicy(p policy.Policy, r schemas.Request) (string, *request.End) {
	s, known := p.Asking().Sender(r.Sender)
	if !known {
		return "", notAllowed("the policy has no sender %q", r.Sender)
	}
	if !s.May(r.Action) {
		return "", notAllowed("the policy does not allow %s to %s", s.Name, r.Action)
	}
	if r.Action != schemas.ActionDeschedule {
		return r.Profile, nil
	}
	if no := authorizeTarget(s, *r.Target); no != nil {
		return "", no
	}
	for _, rule := range r.Override {
		if !slices.Contains(policy.Overridable(), rule) {
			return "", request.NewEnd(schemas.ReceiptPolicyUnknown, "there is no rule %q that can be overridden; want one of %v", rule,
				policy.Overridable())
		}
		if !s.MayOverride(rule) {
			return "", notAllowed("the policy does not allow %s to override %s", s.Name, rule)
		}
	}
	return profile(p, r.Profile)
}

func notAllowed(format string, values ...any) *request.End {
	return request.NewEnd(schemas.ReceiptNotAllowed, format, values...)
}

// authorizeTarget returns the reason why the sender may not move the pods of the target, or nil.
func authorizeTarget(s policy.Sender, t schemas.Target) *request.End {
	var namespaces []string
	for _, p := range t.Pods {
		namespaces = append(namespaces, p.Namespace)
	}
	if t.Workload != nil {
		namespaces = append(namespaces, t.Workload.Namespace)
	}
	if t.Selector != nil && t.Selector.Namespace != "" {
		namespaces = append(namespaces, t.Selector.Namespace)
	}
	for _, namespace := range namespaces {
		if !s.MayIn(namespace) {
			return notAllowed("the policy does not allow %s to request pods of namespace %s", s.Name, namespace)
		}
	}
	if t.Node != "" && !s.Nodes {
		return notAllowed("the policy does not allow %s to request the pods of a node", s.Name)
	}
	return nil
}

// profile returns the profile with that name, or the first of the policy for an empty name.
func profile(p policy.Policy, name string) (string, *request.End) {
	if len(p.Profiles) == 0 {
		return "", request.NewEnd(schemas.ReceiptPolicyUnknown, "the policy has no profile")
	}
	if name == "" {
		return p.Profiles[0].Name, nil
	}
	if _, found := p.Profile(name); !found {
		return "", request.NewEnd(schemas.ReceiptPolicyUnknown, "the policy has no profile %q", name)
	}
	return name, nil
}
