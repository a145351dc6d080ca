package maintenance

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	control "github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

const (
	// noStatus is a user with all required rights of the role except setting the conditions of nodes.
	noStatus = "no-status"
	// blind is a user that may list and watch what the role does, except the kinds of Rehome.
	blind = "blind"
	// interruption is a taint that is a drain trigger.
	interruption = "cloud.example.com/interruption"
	// retirement is another one, which the first policy does not name.
	retirement = "cloud.example.com/retirement"
)

// role is a maintenance role with a real API server and a real bus.
type role struct {
	expect.T
	*Controller
	client kubernetes.Interface
	kinds  rest.Interface
	bus    natsBus
	log    *program.Log
}

// newRole starts a role that ends with the test.
func newRole(t *testing.T, config *rest.Config, leads bool) *role {
	t.Helper()
	r := &role{T: expect.T{TB: t}, bus: natsBus{bustest.New(t)}, log: &program.Log{}}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	var err error
	r.client, err = kubernetes.NewForConfig(config)
	r.Must(err)
	r.kinds, err = apply.NewClient(config)
	r.Must(err)
	objects, err := dynamic.NewForConfig(config)
	r.Must(err)
	view, err := cluster.New(cluster.Config{Client: r.client, Kinds: Kinds(), Log: log})
	r.Must(err)
	r.Controller = New(Config{
		Client: r.client, Dynamic: objects, Kinds: r.kinds, View: view, Bus: r.bus, Table: r.bus.Maintenances(), Log: log,
		Source: "/test/maintenance", Policy: policy.Policy{Maintenance: policy.Maintenance{Start: []policy.StartSign{
			{Taint: interruption},
			{Condition: string(corev1.NodeMaintenanceInProgress), Status: corev1.ConditionTrue}, // the role sets it too
		}}},
	})
	r.Controller.kinds.interval = 100 * time.Millisecond
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("it logged:\n%s", r.log)
		}
	})
	work := []func(context.Context) error{view.Run, r.Run}
	if leads {
		work = append(work, r.Lead)
	}
	expect.Background(t, work...)
	return r
}

func (r *role) patch(node, patch string) {
	r.Helper()
	_, err := r.client.CoreV1().Nodes().Patch(r.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	r.Must(err)
}

// entry waits until the table has an entry of the drain trigger on a node, or none, and the node is cordoned, or not.
func (r *role) entry(t *testing.T, what, node string, exists, cordoned bool) {
	t.Helper()
	expect.Eventually(t, what, func() bool {
		m, err := r.cfg.Table.Get(t.Context(), schemas.SignMaintenance(node))
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		n, nodeErr := r.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		is := nodeErr == nil && n.Spec.Unschedulable
		return (err == nil) == exists && is == cordoned && (!exists || m.Spec.Stage == v1alpha1.Drain)
	})
}

// TestRole shares one control plane, which does not serve the optional kinds of maintenances at first.
func TestRole(t *testing.T) {
	c := clustertest.New(t, control.Options{Users: []control.User{{Name: blind}}})
	nodes, err := c.AddNodes(t.Context(), 4)
	r := newRole(t, c.RESTConfig(), true)
	r.Must(err)
	r.Must(c.Grant(t.Context(), control.UserSubject(blind), "",
		rbacv1.PolicyRule{APIGroups: []string{"", "policy"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}}))
	config, err := c.UserConfig(blind)
	r.Must(err)
	unsighted := newRole(t, config, false)

	t.Run("ready without the kinds", func(t *testing.T) {
		for _, r := range []*role{r, unsighted} {
			expect.Eventually(t, "ready", func() bool { return r.Ready() == nil })
		}
	})
	t.Run("a drain trigger needs no kinds", func(t *testing.T) {
		r.patch(nodes[0], `{"spec":{"taints":[{"key":"`+interruption+`","effect":"NoSchedule"}]}}`)
		r.entry(t, "the trigger has an entry", nodes[0], true, true)
	})
	r.Must(c.AddKinds(t.Context()))
	t.Run("kinds installed later are noticed", func(t *testing.T) {
		m := `{"apiVersion":"rehome.dev/v1alpha1","kind":"NodeMaintenance","metadata":{"name":"kernel"},"spec":{"nodes":{"names":["` +
			nodes[1] + `"]},"stage":"Drain","reason":"new kernel"}}`
		r.Must(r.kinds.Post().Resource(v1alpha1.NodeMaintenances).Body([]byte(m)).Do(t.Context()).Error())
		expect.Eventually(t, "the node is drained", func() bool {
			var m v1alpha1.NodeMaintenance
			r.Must(r.kinds.Get().Resource(v1alpha1.NodeMaintenances).Name("kernel").Do(t.Context()).Into(&m))
			return len(m.Status.Nodes) == 1 && m.Status.Nodes[0].Stage == v1alpha1.IsDrained
		})
		r.Must(r.Ready())
		expect.Equal(t, "that there are no kinds was logged", strings.Count(r.log.String(), "does not serve the optional kinds of maintenances"), 1)
	})
	t.Run("a missing right on the kinds is named", func(t *testing.T) {
		expect.Eventually(t, "not ready, with the right", func() bool {
			err := unsighted.Ready()
			return err != nil && strings.HasPrefix(err.Error(), "maintenance: maintenances and drain rules are not known yet: ") &&
				strings.Contains(err.Error(), `User "blind" cannot list resource`) && strings.Contains(err.Error(), `"rehome.dev"`)
		})
	})
	t.Run("a trigger ends with its node", func(t *testing.T) {
		r.patch(nodes[0], `{"spec":{"taints":null}}`)
		r.patch(nodes[2], `{"spec":{"taints":[{"key":"`+interruption+`","effect":"NoSchedule"}]}}`)
		r.entry(t, "the trigger has an entry", nodes[2], true, true)
		r.Must(r.client.CoreV1().Nodes().Delete(t.Context(), nodes[2], metav1.DeleteOptions{}))
		r.entry(t, "the entry is removed", nodes[2], false, false)
	})
	t.Run("a trigger that is gone gives the node back", func(t *testing.T) { r.entry(t, "no entry", nodes[0], false, false) })
	t.Run("own conditions are no trigger", func(t *testing.T) { r.entry(t, "no entry", nodes[1], false, true) })
	t.Run("a new policy takes effect while it leads", func(t *testing.T) {
		r.SetPolicy(policy.Policy{Maintenance: policy.Maintenance{Start: []policy.StartSign{{Taint: retirement}}}})
		r.patch(nodes[3], `{"spec":{"taints":[{"key":"`+retirement+`","effect":"NoSchedule"}]}}`)
		r.entry(t, "the new trigger has an entry", nodes[3], true, true)
	})
}

// The role has set a condition of a node, and has lost the right to do so since.
func TestRoleWithoutStatusRight(t *testing.T) {
	c := clustertest.New(t, control.Options{Users: []control.User{{Name: noStatus}}})
	nodes, err := c.AddNodes(t.Context(), 2)
	expect.Must(t, err)
	expect.Must(t, c.AddKinds(t.Context()))
	expect.Must(t, c.Grant(t.Context(), control.UserSubject(noStatus), "",
		rbacv1.PolicyRule{APIGroups: []string{"", "policy", v1alpha1.Group}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
		rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.Group}, Verbs: []string{"get", "patch"},
			Resources: []string{v1alpha1.NodeMaintenances, v1alpha1.NodeMaintenances + "/status"},
		}))
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	expect.Must(t, err)
	kinds, err := apply.NewClient(c.RESTConfig())
	expect.Must(t, err)
	_, err = client.CoreV1().Nodes().Patch(t.Context(), nodes[0], types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"`+
		string(corev1.NodeMaintenanceInProgress)+`","status":"True","reason":"AdminRequested","message":"new kernel (maintenance kernel)"}]}}`),
		metav1.PatchOptions{}, "status")
	expect.Must(t, err)
	expect.Must(t, kinds.Post().Resource(v1alpha1.NodeMaintenances).Body([]byte(`{"apiVersion":"rehome.dev/v1alpha1","kind":"NodeMaintenance",`+
		`"metadata":{"name":"kernel","finalizers":["`+schemas.MaintenanceFinalizer+`"]},"spec":{"nodes":{"names":["`+nodes[0]+
		`"]},"stage":"Complete","reason":"new kernel"}}`)).Do(t.Context()).Error())
	expect.Must(t, kinds.Patch(types.MergePatchType).Resource(v1alpha1.NodeMaintenances).Name("kernel").SubResource("status").Body([]byte(
		`{"status":{"stages":[{"stage":"Complete","start":"2026-05-04T12:00:00Z"}]}}`)).Do(t.Context()).Error())
	expect.Must(t, kinds.Delete().Resource(v1alpha1.NodeMaintenances).Name("kernel").Do(t.Context()).Error())
	config, err := c.UserConfig(noStatus)
	expect.Must(t, err)
	newRole(t, config, true)
	t.Run("a deleted maintenance ends with its condition left", func(t *testing.T) {
		expect.Eventually(t, "the maintenance is gone", func() bool {
			err := kinds.Get().Resource(v1alpha1.NodeMaintenances).Name("kernel").Do(t.Context()).Error()
			return apierrors.IsNotFound(err)
		})
	})
}

// A change of a node reconciles all its maintenances, also the completed ones.
func TestCompletedMaintenance(t *testing.T) {
	c := clustertest.New(t, control.Options{})
	expect.Must(t, c.AddKinds(t.Context()))
	kinds, err := apply.NewClient(c.RESTConfig())
	expect.Must(t, err)
	var requests []string
	config := c.RESTConfig()
	clustertest.Intercept(config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		requests = append(requests, r.Method+" "+path.Base(r.URL.Path))
		return next.RoundTrip(r)
	})
	d := newDesk(t, func(cfg *Config) {
		cfg.Client = expect.Value(t, func() (kubernetes.Interface, error) { return kubernetes.NewForConfig(config) })
		cfg.Kinds = expect.Value(t, func() (rest.Interface, error) { return apply.NewClient(config) })
	})
	d.node("n1", false, "", "")
	expect.Must(t, kinds.Post().Resource(v1alpha1.NodeMaintenances).Body([]byte(`{"apiVersion":"rehome.dev/v1alpha1","kind":"NodeMaintenance",`+
		`"metadata":{"name":"kernel","finalizers":["`+schemas.MaintenanceFinalizer+`"]},"spec":{"nodes":{"names":["n1"]},"stage":"Complete",`+
		`"reason":"new kernel"}}`)).Do(t.Context()).Error())
	watch := func() *v1alpha1.NodeMaintenance {
		var live v1alpha1.NodeMaintenance
		expect.Must(t, kinds.Get().Resource(v1alpha1.NodeMaintenances).Name("kernel").Do(t.Context()).Into(&live))
		d.maintenanceChanged("kernel", &live)
		return &live
	}
	reconcile := func(t *testing.T, want ...string) {
		t.Helper()
		requests = nil
		_, err := d.Reconcile(t.Context(), "kernel")
		expect.Must(t, err)
		expect.Equal(t, "requests", requests, want)
	}
	watch()
	t.Run("the status is written", func(t *testing.T) { reconcile(t, "GET kernel", "PATCH status", "GET kernel") })
	d.clock = d.clock.Add(plan.Settle)
	t.Run("a stale status is not written again", func(t *testing.T) { reconcile(t, "GET kernel") })
	watch()
	t.Run("the finalizer is removed", func(t *testing.T) { reconcile(t, "GET kernel", "GET kernel", "PATCH kernel") })
	watch()
	t.Run("an unchanged maintenance needs no request", func(t *testing.T) { reconcile(t) })
	expect.Must(t, kinds.Patch(types.MergePatchType).Resource(v1alpha1.NodeMaintenances).Name("kernel").
		Body([]byte(`{"spec":{"reason":"new disks"}}`)).Do(t.Context()).Error())
	t.Run("a change that is not seen yet needs no request", func(t *testing.T) { reconcile(t) })
	watch()
	t.Run("a change that is seen is written", func(t *testing.T) {
		reconcile(t, "GET kernel", "PATCH status", "GET kernel")
		live := watch()
		expect.Equal(t, "observed generation", live.Status.ObservedGeneration, live.Generation)
	})
}
