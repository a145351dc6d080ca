package moves

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
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// TestRefusalsOfOneNamespace drains a node with 40 pods of one namespace, and 12 pods of another namespace whose evictions the
// API server refuses.
func TestRefusalsOfOneNamespace(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse func(*scene.Scene) (end func())
	}{
		{"overlapping_budgets", overlappingBudgets},
		{"admission_policy", refuseEvictions},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, other := scene.New(t, 2), scene.New(t, 0)
			s.AddDeployment("api", 40, scene.PreferNode(s.Nodes[0]))
			s.WaitPlaced("api", map[string]int{s.Nodes[0]: 40})
			held := holdPods(s, other, 12)
			end := c.refuse(other)
			drainBeside(s, other)
			end()
			other.WaitEmpty(s.Nodes[0])
			other.CheckEvictedOnce(held)
		})
	}
}

// TestBrokenWebhook drains a node with 40 pods of one namespace, and 15 pods of each of two namespaces whose evictions a webhook
// handles that does not respond. The API server answers these evictions with an internal error.
func TestBrokenWebhook(t *testing.T) {
	s, others := scene.New(t, 2), []*scene.Scene{scene.New(t, 0), scene.New(t, 0)}
	s.AddDeployment("api", 40, scene.PreferNode(s.Nodes[0]))
	s.WaitPlaced("api", map[string]int{s.Nodes[0]: 40})
	var held []map[types.UID]string
	for _, other := range others {
		held = append(held, holdPods(s, other, 15))
	}
	end := webhook(s, admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}, others[0].Namespace, others[1].Namespace)
	waitRefused(others[0], others[0].PodsOf("held")[0])
	reasons := map[schemas.ReasonCode]bool{}
	for _, v := range drainBeside(s, others...) {
		if v.Intent.Pod.Namespace != s.Namespace {
			reasons[v.Reason] = true
		}
	}
	expect.Equal(t, "reasons of the held pods", reasons, map[schemas.ReasonCode]bool{schemas.ReasonInternalError: true, schemas.ReasonStormFailures: true})
	end()
	for i, other := range others {
		other.WaitEmpty(s.Nodes[0])
		other.CheckEvictedOnce(held[i])
	}
}

// holdPods creates the Deployment held in the namespace of another scene, with n pods on the first node of this scene, and returns them.
func holdPods(s *scene.Scene, other *scene.Scene, n int) map[types.UID]string {
	s.T.Helper()
	other.AddDeployment("held", n, func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector["scene"] = s.Namespace }, scene.PreferNode(s.Nodes[0]))
	other.WaitPlaced("held", map[string]int{s.Nodes[0]: n})
	return other.PodsOn(s.Nodes[0])
}

// drainBeside taints the first node. All pods of the scene leave it in time, and no circuit breaker holds them, while no pod of the
// other scenes moves. It returns the verdicts.
func drainBeside(s *scene.Scene, others ...*scene.Scene) []schemas.Verdict {
	s.T.Helper()
	free, dir := s.PodsOn(s.Nodes[0]), filetest.ShortDir(s.T)
	p := s.StartRun(s.Policy("limits: {unavailable: 100%}"), dir)
	p.WaitLeads()
	events := scene.Record(s.T, scene.BusIn(dir))
	tainted := time.Now()
	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEmpty(s.Nodes[0])
	s.CheckEvictedOnce(free)
	if took := time.Since(tainted); took > 30*time.Second {
		s.T.Errorf("the healthy namespace took %v, want at most 30s", took)
	}
	for _, other := range others {
		other.CheckMoved(0, 0)
	}
	verdicts := events.Verdicts()
	for _, v := range verdicts {
		if v.Reason == schemas.ReasonStormFailures && v.Intent.Pod.Namespace == s.Namespace {
			s.T.Errorf("pod %s: %s", v.Intent.Pod, v.Message)
		}
	}
	p.WaitClusterBreaker("")
	p.CheckNotLogged("nothing is moved")
	return verdicts
}

// overlappingBudgets creates two budgets for the Deployment held, for which the API server returns an internal error.
func overlappingBudgets(s *scene.Scene) (end func()) {
	s.T.Helper()
	s.AddBudget("first", "held", 1)
	s.AddBudget("second", "held", 1)
	return func() {
		s.T.Helper()
		s.T.Must(s.Client.PolicyV1().PodDisruptionBudgets(s.Namespace).Delete(s.T.Context(), "second", metav1.DeleteOptions{}))
	}
}

// refuseEvictions creates an admission policy that refuses evictions in the namespace of the scene, and waits until it is active.
func refuseEvictions(s *scene.Scene) (end func()) {
	s.T.Helper()
	s.T.Must(s.Cluster.RefuseEvictions(s.T.Context(), s.Namespace))
	end = func() {
		if err := s.Cluster.AllowEvictions(context.WithoutCancel(s.T.Context()), s.Namespace); err != nil {
			s.T.Error(err)
		}
	}
	s.T.Cleanup(end)
	waitRefused(s, s.PodsOf("held")[0])
	return end
}

// TestMissingRightOfRestarts lets an account list ReplicaSets, but not get them, while the policy restarts Deployments.
func TestMissingRightOfRestarts(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 6, scene.PreferNode(s.Nodes[0]))
	s.WaitPlaced("api", map[string]int{s.Nodes[0]: 6})
	want := s.PodsOn(s.Nodes[0])
	p := s.StartRun(s.Policy("restart: {workloads: All}", scene.FastRate, "limits: {unavailable: 100%}"), filetest.ShortDir(t), without(s, "replicasets", "get"))
	p.WaitLeads()

	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEmpty(s.Nodes[0])
	s.CheckEvictedOnce(want)
	const gauge = `rehome_missing_rights{method="rollout-restart"}`
	if got := p.Metric(gauge); got != 1 {
		t.Errorf("%s is %d, want 1", gauge, got)
	}
	const missing = `cannot get resource "replicasets"`
	p.Eventually("readiness names the right", func() (bool, string) {
		_, body := p.Readiness()
		return strings.Contains(body, missing), body
	})
	checkEvent(s, "Warning", "MissingRight", missing)
}

// without creates a user with all rights except one on a kind of the group apps, and returns the setting with a kubeconfig for
// the user.
func without(s *scene.Scene, resource, verb string) string {
	s.T.Helper()
	var verbs []string
	for _, v := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		if v != verb {
			verbs = append(verbs, v)
		}
	}
	meta, all, ctx := metav1.ObjectMeta{Name: s.Namespace}, []string{"*"}, s.T.Context()
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{resource}, Verbs: verbs},
		{NonResourceURLs: all, Verbs: all},
	}
	groups, err := s.Client.Discovery().ServerGroups()
	s.T.Must(err)
	for _, g := range groups.Groups {
		rule := rbacv1.PolicyRule{APIGroups: []string{g.Name}, Resources: all, Verbs: all}
		if g.Name == "apps" {
			rule.Resources = []string{"deployments", "statefulsets", "daemonsets", "controllerrevisions"}
		}
		rules = append(rules, rule)
	}
	roles, bindings := s.Client.RbacV1().ClusterRoles(), s.Client.RbacV1().ClusterRoleBindings()
	_, err = roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	s.T.Must(err)
	_, err = bindings.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.Namespace},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: s.Namespace}},
	}, metav1.CreateOptions{})
	s.T.Must(err)
	s.T.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		_ = bindings.Delete(ctx, s.Namespace, metav1.DeleteOptions{})
		_ = roles.Delete(ctx, s.Namespace, metav1.DeleteOptions{})
	})
	config, err := clientcmd.LoadFromFile(s.Cluster.Kubeconfig())
	s.T.Must(err)
	for _, u := range config.AuthInfos {
		u.Impersonate = s.Namespace
	}
	file := s.T.TempDir() + "/kubeconfig"
	s.T.Must(clientcmd.WriteToFile(*config, file))
	return "KUBECONFIG=" + file
}

// TestCauseOfEvictionRequestGoes removes a taint while EvictionRequests of its pods wait for an answer.
func TestCauseOfEvictionRequestGoes(t *testing.T) {
	const wait = 15 * time.Second
	s := scene.New(t, 2)
	s.T.Must(s.Cluster.AddEvictionRequests(t.Context()))
	for i := range 3 {
		s.AddDeployment(fmt.Sprint("api-", i), 1, scene.PreferNode(s.Nodes[0]))
	}
	before := s.PodsOn(s.Nodes[0])
	events := follow(s, s.Policy(fmt.Sprintf("evictionRequests: {wait: %v}", wait)))
	s.Taint(s.Nodes[0], "dedicated")
	waitRequested(s, 3)
	tainted := time.Now()
	s.Untaint(s.Nodes[0])
	waitRequested(s, 0)
	<-time.After(time.Until(tainted.Add(wait + scene.CalmTime)))
	if got := s.Evictions(); len(got) != 0 || !reflect.DeepEqual(s.PodsOn(s.Nodes[0]), before) {
		t.Errorf("evicted %v after their cause had gone", scene.UIDs(got))
	}
	for _, v := range events.Settlements() {
		if v.Reason != schemas.ReasonTakenBack {
			t.Errorf("pod %s: settled %s, want %s", v.Intent.Pod, v.Reason, schemas.ReasonTakenBack)
		}
	}

	tainted = time.Now()
	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEmpty(s.Nodes[0])
	s.CheckEvictedOnce(before)
	if took := s.Evictions()[0].Received.Sub(tainted); took < wait {
		t.Errorf("evicted %v after the taint, want at least %v: no program answers the requests", took, wait)
	}
}

// waitRequested waits until the scene has n EvictionRequests.
func waitRequested(s *scene.Scene, n int) {
	s.T.Helper()
	expect.EventuallyWithState(s.T, fmt.Sprintf("there are %d EvictionRequests", n), func() (bool, string) {
		list, err := s.Client.LifecycleV1alpha1().EvictionRequests(s.Namespace).List(s.T.Context(), metav1.ListOptions{})
		s.T.Must(err)
		return len(list.Items) == n, fmt.Sprint(len(list.Items))
	})
}

// TestClusterAutoscalerNode has a node that the cluster autoscaler deletes. Rehome ignores it, unless the policy disables
// that.
func TestClusterAutoscalerNode(t *testing.T) {
	const taint = "ToBeDeletedByClusterAutoscaler"
	t.Run("left_alone_until_the_taint_goes", func(t *testing.T) {
		s := scene.New(t, 2)
		s.AddDeployment("api", 4, scene.PreferNode(s.Nodes[0]))
		before := s.PodsOn(s.Nodes[0])
		follow(s, s.Policy())
		s.Taint(s.Nodes[0], taint)
		s.CheckMoved(0, 0)
		s.Taint(s.Nodes[0], "dedicated")
		s.CheckMoved(0, 0)

		s.ChangeNode(s.Nodes[0], func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[1:] })
		s.WaitEmpty(s.Nodes[0])
		s.CheckEvictedOnce(before)
	})
	t.Run("drained_when_the_policy_disables_the_mark", func(t *testing.T) {
		s := scene.New(t, 2)
		s.AddDeployment("api", 4, scene.PreferNode(s.Nodes[0]))
		before := s.PodsOn(s.Nodes[0])
		follow(s, s.Policy("signals: {defaultDisabled: ["+taint+"]}"))
		s.Taint(s.Nodes[0], taint)
		s.WaitEmpty(s.Nodes[0])
		s.CheckEvictedOnce(before)
	})
}
