package rbac

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// right is one verb on one resource, which is the least that a rule can allow.
type right struct {
	Local                 bool // in the namespace of Rehome only, by a Role
	Group, Resource, Verb string
	Name                  string // empty: of any name
}

func (r right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Name != "" {
		s += " " + r.Name
	}
	return s
}

// missing returns the message of the API server about the missing right.
func (r right) missing() string {
	return fmt.Sprintf("cannot %s resource %q in API group %q", r.Verb, r.Resource, r.Group)
}

// rule is the rule that allows it and nothing else.
func (r right) rule() rbacv1.PolicyRule {
	p := rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{r.Verb}}
	if r.Name != "" {
		p.ResourceNames = []string{r.Name}
	}
	return p
}

// rules allow all of these rights that are local, or all that are not.
func rules(rights []right, local bool) []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
	for _, r := range rights {
		if r.Local == local {
			all = append(all, r.rule())
		}
	}
	return all
}

// apart lists the single rights of rules, without paths such as /metrics.
func apart(rules []rbacv1.PolicyRule, local bool) []right {
	var all []right
	for _, rule := range rules {
		rule.NonResourceURLs = nil
		for _, r := range validation.BreakdownRule(rule) {
			all = append(all, right{local, r.APIGroups[0], r.Resources[0], r.Verbs[0], strings.Join(r.ResourceNames, "")})
		}
	}
	return all
}

// manifests are the objects of rendered manifests.
type manifests struct {
	accounts        []corev1.ServiceAccount
	clusterRoles    []rbacv1.ClusterRole
	roles           []rbacv1.Role
	clusterBindings []rbacv1.ClusterRoleBinding
	bindings        []rbacv1.RoleBinding
}

// read reads manifests. Kinds other than accounts and their rights are an error.
func read(text []byte) (manifests, error) {
	var m manifests
	documents, err := manifesttest.Documents(text)
	for _, object := range documents {
		err = errors.Join(err, m.add(object))
	}
	return m, err
}

func (m *manifests) add(object map[string]any) error {
	switch object["kind"] {
	case "ServiceAccount":
		return appended(&m.accounts, object)
	case "ClusterRole":
		return appended(&m.clusterRoles, object)
	case "Role":
		return appended(&m.roles, object)
	case "ClusterRoleBinding":
		return appended(&m.clusterBindings, object)
	case "RoleBinding":
		return appended(&m.bindings, object)
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding": // stolen_test.go tries it
		return nil
	}
	return fmt.Errorf("a %s is nothing about rights", object["kind"])
}

// appended reads an object strictly.
func appended[T any](list *[]T, fields map[string]any) error {
	object, err := manifesttest.As[T](fields)
	if err != nil {
		return fmt.Errorf("%v: %w", fields, err)
	}
	*list = append(*list, object)
	return nil
}

// of lists the rights of the account of that name, sorted and each once.
func (m manifests) of(account string) []right {
	var all []right
	is := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == account
	}
	for _, b := range m.clusterBindings {
		for _, role := range m.clusterRoles {
			if role.Name == b.RoleRef.Name && slices.ContainsFunc(b.Subjects, is) {
				all = append(all, apart(role.Rules, false)...)
			}
		}
	}
	for _, b := range m.bindings {
		for _, role := range m.roles {
			if b.RoleRef.Kind == "Role" && role.Name == b.RoleRef.Name && slices.ContainsFunc(b.Subjects, is) {
				all = append(all, apart(role.Rules, true)...)
			}
		}
	}
	return sorted(all)
}

// sorted sorts rights, and keeps each once.
func sorted(rights []right) []right {
	slices.SortFunc(rights, func(a, b right) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource),
			strings.Compare(a.Verb, b.Verb), strings.Compare(a.Name, b.Name))
	})
	return slices.Compact(rights)
}
