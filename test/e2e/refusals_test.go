package e2e

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestRefusalsOfOneNamespace drains a node with 40 pods of one namespace, and 12 pods of another namespace whose evictions the
// API server refuses.
func TestRefusalsOfOneNamespace(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse func(*scene) (end func())
	}{
		{"overlapping_budgets", (*scene).overlappingBudgets},
		{"admission_policy", (*scene).refuseEvictions},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, other := newScene(t, 2), newScene(t, 0)
			s.deployment("api", 40, preferring(s.nodes[0]))
			s.placed("api", map[string]int{s.nodes[0]: 40})
			held := s.holds(other, 12)
			end := c.refuse(other)
			s.drainsBeside(other)
			end()
			other.emptied(s.nodes[0])
			other.evictedOnce(held)
		})
	}
}

// TestBrokenWebhook drains a node with 40 pods of one namespace, and 15 pods of each of two namespaces whose evictions a webhook
// handles that does not respond. The API server answers these evictions with an internal error.
func TestBrokenWebhook(t *testing.T) {
	s, others := newScene(t, 2), []*scene{newScene(t, 0), newScene(t, 0)}
	s.deployment("api", 40, preferring(s.nodes[0]))
	s.placed("api", map[string]int{s.nodes[0]: 40})
	var held []map[types.UID]string
	for _, other := range others {
		held = append(held, s.holds(other, 15))
	}
	end := s.webhook(admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}, others[0].namespace, others[1].namespace)
	others[0].refusesEvictionOf(others[0].podsOf("held")[0])
	reasons := map[schemas.ReasonCode]bool{}
	for _, v := range s.drainsBeside(others...) {
		if v.Intent.Pod.Namespace != s.namespace {
			reasons[v.Reason] = true
		}
	}
	expect.Equal(t, "reasons of the held pods", reasons, map[schemas.ReasonCode]bool{schemas.ReasonInternalError: true, schemas.ReasonStormFailures: true})
	end()
	for i, other := range others {
		other.emptied(s.nodes[0])
		other.evictedOnce(held[i])
	}
}

// holds creates the Deployment held in the namespace of another scene, with n pods on the first node of this scene, and returns them.
func (s *scene) holds(other *scene, n int) map[types.UID]string {
	s.t.Helper()
	other.deployment("held", n, func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector["scene"] = s.namespace }, preferring(s.nodes[0]))
	other.placed("held", map[string]int{s.nodes[0]: n})
	return other.pods(s.nodes[0])
}

// drainsBeside taints the first node. All pods of the scene leave it in time, and no circuit breaker holds them, while no pod of the
// other scenes moves. It returns the verdicts.
func (s *scene) drainsBeside(others ...*scene) []schemas.Verdict {
	s.t.Helper()
	free, dir := s.pods(s.nodes[0]), filetest.ShortDir(s.t)
	p := s.rehome(s.policy("limits: {unavailable: 100%}"), dir)
	p.leads()
	events := record(s.t, at(dir))
	tainted := time.Now()
	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	s.evictedOnce(free)
	if took := time.Since(tainted); took > 30*time.Second {
		s.t.Errorf("the healthy namespace took %v, want at most 30s", took)
	}
	for _, other := range others {
		other.moved(0, 0)
	}
	verdicts := events.verdicts()
	for _, v := range verdicts {
		if v.Reason == schemas.ReasonStormFailures && v.Intent.Pod.Namespace == s.namespace {
			s.t.Errorf("pod %s: %s", v.Intent.Pod, v.Message)
		}
	}
	p.clusterBreaker("")
	p.saidNothingOf("nothing is moved")
	return verdicts
}

// overlappingBudgets creates two budgets for the Deployment held, for which the API server returns an internal error.
func (s *scene) overlappingBudgets() (end func()) {
	s.t.Helper()
	s.budget("first", "held", 1)
	s.budget("second", "held", 1)
	return func() {
		s.t.Helper()
		s.t.Must(s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Delete(s.t.Context(), "second", metav1.DeleteOptions{}))
	}
}

// refuseEvictions creates an admission policy that refuses evictions in the namespace of the scene, and waits until it is active.
func (s *scene) refuseEvictions() (end func()) {
	s.t.Helper()
	s.t.Must(s.cluster.RefuseEvictions(s.t.Context(), s.namespace))
	end = func() {
		if err := s.cluster.AllowEvictions(context.WithoutCancel(s.t.Context()), s.namespace); err != nil {
			s.t.Error(err)
		}
	}
	s.t.Cleanup(end)
	s.refusesEvictionOf(s.podsOf("held")[0])
	return end
}

// TestMissingRightOfRestarts lets an account list ReplicaSets, but not get them, while the policy restarts Deployments.
func TestMissingRightOfRestarts(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 6, preferring(s.nodes[0]))
	s.placed("api", map[string]int{s.nodes[0]: 6})
	want := s.pods(s.nodes[0])
	p := s.rehome(s.policy("restart: {workloads: All}", fast, "limits: {unavailable: 100%}"), filetest.ShortDir(t), s.without("replicasets", "get"))
	p.leads()

	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	s.evictedOnce(want)
	const gauge = `rehome_missing_rights{method="rollout-restart"}`
	if got := p.metric(gauge); got != 1 {
		t.Errorf("%s is %d, want 1", gauge, got)
	}
	const missing = `cannot get resource "replicasets"`
	p.eventually("readiness names the right", func() (bool, string) {
		_, body := p.ready()
		return strings.Contains(body, missing), body
	})
	s.told("Warning", "MissingRight", missing)
}

// without creates a user with all rights except one on a kind of the group apps, and returns the setting with a kubeconfig for
// the user.
func (s *scene) without(resource, verb string) string {
	s.t.Helper()
	var verbs []string
	for _, v := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		if v != verb {
			verbs = append(verbs, v)
		}
	}
	meta, all, ctx := metav1.ObjectMeta{Name: s.namespace}, []string{"*"}, s.t.Context()
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{resource}, Verbs: verbs},
		{NonResourceURLs: all, Verbs: all},
	}
	groups, err := s.client.Discovery().ServerGroups()
	s.t.Must(err)
	for _, g := range groups.Groups {
		rule := rbacv1.PolicyRule{APIGroups: []string{g.Name}, Resources: all, Verbs: all}
		if g.Name == "apps" {
			rule.Resources = []string{"deployments", "statefulsets", "daemonsets", "controllerrevisions"}
		}
		rules = append(rules, rule)
	}
	roles, bindings := s.client.RbacV1().ClusterRoles(), s.client.RbacV1().ClusterRoleBindings()
	_, err = roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	s.t.Must(err)
	_, err = bindings.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.namespace},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: s.namespace}},
	}, metav1.CreateOptions{})
	s.t.Must(err)
	s.t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		_ = bindings.Delete(ctx, s.namespace, metav1.DeleteOptions{})
		_ = roles.Delete(ctx, s.namespace, metav1.DeleteOptions{})
	})
	config, err := clientcmd.LoadFromFile(s.cluster.Kubeconfig())
	s.t.Must(err)
	for _, u := range config.AuthInfos {
		u.Impersonate = s.namespace
	}
	file := s.t.TempDir() + "/kubeconfig"
	s.t.Must(clientcmd.WriteToFile(*config, file))
	return "KUBECONFIG=" + file
}

// TestCauseOfEvictionRequestGoes removes a taint while EvictionRequests of its pods wait for an answer.
func TestCauseOfEvictionRequestGoes(t *testing.T) {
	const wait = 15 * time.Second
	s := newScene(t, 2)
	s.t.Must(s.cluster.AddEvictionRequests(t.Context()))
	for i := range 3 {
		s.deployment(fmt.Sprint("api-", i), 1, preferring(s.nodes[0]))
	}
	before := s.pods(s.nodes[0])
	events := s.follow(s.policy(fmt.Sprintf("evictionRequests: {wait: %v}", wait)))
	s.taint(s.nodes[0], "dedicated")
	s.requested(3)
	tainted := time.Now()
	s.untaint(s.nodes[0])
	s.requested(0)
	<-time.After(time.Until(tainted.Add(wait + calm)))
	if got := s.evictions(); len(got) != 0 || !reflect.DeepEqual(s.pods(s.nodes[0]), before) {
		t.Errorf("evicted %v after their cause had gone", uids(got))
	}
	for _, v := range events.settlements() {
		if v.Reason != schemas.ReasonTakenBack {
			t.Errorf("pod %s: settled %s, want %s", v.Intent.Pod, v.Reason, schemas.ReasonTakenBack)
		}
	}

	tainted = time.Now()
	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	s.evictedOnce(before)
	if took := s.evictions()[0].received.Sub(tainted); took < wait {
		t.Errorf("evicted %v after the taint, want at least %v: no program answers the requests", took, wait)
	}
}

// requested waits until the scene has n EvictionRequests.
func (s *scene) requested(n int) {
	s.t.Helper()
	expect.EventuallyWithState(s.t, fmt.Sprintf("there are %d EvictionRequests", n), func() (bool, string) {
		list, err := s.client.LifecycleV1alpha1().EvictionRequests(s.namespace).List(s.t.Context(), metav1.ListOptions{})
		s.t.Must(err)
		return len(list.Items) == n, fmt.Sprint(len(list.Items))
	})
}

// TestClusterAutoscalerNode has a node that the cluster autoscaler deletes. Rehome ignores it, unless the policy disables
// that.
func TestClusterAutoscalerNode(t *testing.T) {
	const taint = "ToBeDeletedByClusterAutoscaler"
	t.Run("left_alone_until_the_taint_goes", func(t *testing.T) {
		s := newScene(t, 2)
		s.deployment("api", 4, preferring(s.nodes[0]))
		before := s.pods(s.nodes[0])
		s.follow(s.policy())
		s.taint(s.nodes[0], taint)
		s.moved(0, 0)
		s.taint(s.nodes[0], "dedicated")
		s.moved(0, 0)

		s.changeNode(s.nodes[0], func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[1:] })
		s.emptied(s.nodes[0])
		s.evictedOnce(before)
	})
	t.Run("drained_when_the_policy_disables_the_mark", func(t *testing.T) {
		s := newScene(t, 2)
		s.deployment("api", 4, preferring(s.nodes[0]))
		before := s.pods(s.nodes[0])
		s.follow(s.policy("signals: {defaultDisabled: [" + taint + "]}"))
		s.taint(s.nodes[0], taint)
		s.emptied(s.nodes[0])
		s.evictedOnce(before)
	})
}
