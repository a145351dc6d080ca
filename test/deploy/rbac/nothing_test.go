package rbac

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// everything is all folders that can be applied together.
func everything() []string {
	return append(features, ".", "guarded-metrics", "people")
}

// named checks that rules have no wildcards, that no rule allows an escalation, and that rules for Secrets have names and one
// namespace.
func named(t *testing.T, s *stage) {
	m := s.apply(t, everything()...)
	for _, role := range m.clusterRoles {
		for _, r := range apart(role.Rules, false) {
			if r.Resource == "secrets" {
				t.Errorf("ClusterRole %s: may %s of every namespace", role.Name, r)
			}
			sparing(t, "ClusterRole "+role.Name, r)
		}
	}
	for _, role := range m.roles {
		for _, r := range apart(role.Rules, true) {
			if r.Name == "" && r.Verb != "create" {
				t.Errorf("Role %s: may %s of any name", role.Name, r)
			}
			sparing(t, "Role "+role.Name, r)
		}
	}
}

func sparing(t *testing.T, role string, r right) {
	t.Helper()
	for _, field := range []string{r.Group, r.Resource, r.Verb} {
		if field == rbacv1.APIGroupAll {
			t.Errorf("%s: may %s, which names not everything", role, r)
		}
	}
	if slices.Contains([]string{"escalate", "bind", "impersonate", "delete", "deletecollection"}, r.Verb) && r.Resource != "evictionrequests" {
		t.Errorf("%s: may %s", role, r)
	}
}

// tried checks that each folder with rights of Rehome is one of a role, or one of a feature, whose rights [eachRemoved] removes.
func tried(t *testing.T) {
	want := slices.Concat(features, []string{
		"watcher", "actuator", "maintenance", "api", "functions", "dispatcher", "setup", // roles
		"once", "all", // bind the rights of others
		"guarded-metrics", // the rights of requests, for other accounts
		"people",          // unbound
	})
	entries, err := filepath.Glob(filepath.Join(folder, "*", "kustomization.yaml"))
	expect.Must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, filepath.Base(filepath.Dir(e)))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("folders:\n got %q\nwant %q", got, want)
	}
}

// rightless checks that the roles that only talk to the bus have no right that not every account has, and get no token.
func rightless(t *testing.T, s *stage) {
	m := s.apply(t, everything()...)
	bare := []string{"rehome-functions", "rehome-dispatcher"}
	var without []string
	for _, a := range m.accounts {
		if a.AutomountServiceAccountToken != nil && !*a.AutomountServiceAccountToken {
			without = append(without, a.Name)
		}
	}
	slices.Sort(without)
	if want := slices.Sorted(slices.Values(bare)); !slices.Equal(without, want) {
		t.Errorf("without a token in their pods: %v, want %v", without, want)
	}
	if got, want := m.of("rehome-setup"), []right{{Resource: "namespaces", Verb: "list", Name: "kube-system"}}; !slices.Equal(got, want) {
		t.Errorf("rehome-setup has the rights %v, want %v", got, want)
	}
	anybody := s.rightsOf(t, "default")
	for _, account := range bare {
		if got := m.of(account); len(got) > 0 {
			t.Errorf("%s has the rights %v, want none", account, got)
		}
		if got := s.rightsOf(t, account); !reflect.DeepEqual(got, anybody) {
			t.Errorf("%s may\n%+v\nand any account\n%+v", account, got, anybody)
		}
	}
}

// rightsOf returns the rights of an account in the namespace, according to the API server.
func (s *stage) rightsOf(t *testing.T, account string) authorizationv1.SubjectRulesReviewStatus {
	t.Helper()
	token, err := s.token(t.Context(), namespace, account)
	expect.Must(t, err)
	admin := s.RESTConfig()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: admin.Host, TLSClientConfig: admin.TLSClientConfig, BearerToken: token})
	expect.Must(t, err)
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	expect.Must(t, err)
	byText := func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) } // they come in any order
	slices.SortFunc(review.Status.ResourceRules, func(a, b authorizationv1.ResourceRule) int { return byText(a, b) })
	slices.SortFunc(review.Status.NonResourceRules, func(a, b authorizationv1.NonResourceRule) int { return byText(a, b) })
	return review.Status
}

// allInOne checks that the account of all roles in one process has the rights of all roles and no more, and that they are enough
// to move pods with `rehome run`, and with fewer rights with `rehome once` and with `rehome run` without maintenance.
func allInOne(t *testing.T, s *stage) {
	ctx := t.Context()
	apart := s.apply(t, "watcher", "actuator", "maintenance")
	m := s.apply(t, "all")
	want := sorted(slices.Concat(apart.of("rehome-watcher"), apart.of("rehome-actuator"), apart.of("rehome-maintenance")))
	if got := m.of("rehome"); !slices.Equal(got, want) {
		t.Errorf("the account rehome has the rights\n%v\nwant the rights of the watcher, the actuator, and the maintenance role:\n%v", got, want)
	}
	moves := func(name string, work func(c *cast, file string)) {
		w, err := s.newWorld(ctx, name, plain)
		expect.Must(t, err)
		expect.Must(t, w.taint(ctx))
		file, err := w.policy(name, byTaint)
		expect.Must(t, err)
		c := &cast{world: w, t: t, common: []string{
			"REHOME_NAMESPACE=" + namespace, "REHOME_LEASE_DURATION=3s", "REHOME_STORE_DIR=" + filepath.Join(s.dir, name),
		}}
		work(c, file)
		expect.Must(t, w.emptied(ctx))
		c.end()
		c.forbiddenNothing("rehome")
	}
	moves("run", func(c *cast, file string) { c.start(c.as("rehome"), []string{"run", "--policy", file}) })
	rbac, options := s.client.RbacV1(), metav1.DeleteOptions{}
	expect.Must(t, rbac.ClusterRoleBindings().Delete(ctx, "rehome-all-maintenance", options))
	expect.Must(t, rbac.RoleBindings("kube-system").Delete(ctx, "rehome-all-maintenance", options))
	moves("unmaintained", func(c *cast, file string) {
		c.start(c.as("rehome"), []string{"run", "--policy", file}, "REHOME_MAINTENANCE=false")
	})
	expect.Must(t, rbac.RoleBindings("kube-system").Delete(ctx, "rehome-all-watcher", options))
	moves("once", func(c *cast, file string) { c.once(file) })
}
