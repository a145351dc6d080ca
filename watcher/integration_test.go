package watcher

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	control "github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
)

// blind may look at everything but the kinds of Rehome.
const blind = "blind"

// patience is how long something of the API server is waited for.
const patience = 30 * time.Second

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count is how many lines have the words.
func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// post is a watcher of a real cluster, and what it published and logged.
type post struct {
	*testing.T
	w   *Watcher
	out *collected
	log *lines
}

// newPost runs a watcher that leads until the end of the test.
func newPost(t *testing.T, config *rest.Config) *post {
	t.Helper()
	p := &post{T: t, out: &collected{}, log: &lines{}}
	client, err := kubernetes.NewForConfig(config)
	p.must(err)
	objects, err := dynamic.NewForConfig(config)
	p.must(err)
	log := slog.New(slog.NewTextHandler(p.log, nil))
	view, err := cluster.New(cluster.Config{Client: client, Kinds: Kinds(), Log: log})
	p.must(err)
	p.w, err = New(Config{
		Client: client, Cluster: view, Dynamic: objects, Bus: p.out, Source: "/test/watcher", Log: log,
	})
	p.must(err)
	p.w.kinds.again = 100 * time.Millisecond
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{view.Run, p.w.Run, p.w.Lead} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		end()
		wg.Wait()
	})
	return p
}

func (p *post) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// until waits for something.
func (p *post) until(what string, done func() bool) {
	p.Helper()
	ticker, end := time.NewTicker(20*time.Millisecond), time.After(patience)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-end:
			p.log.mu.Lock()
			defer p.log.mu.Unlock()
			p.Fatalf("%s: not after %v; logged:\n%s", what, patience, p.log.text.String())
		}
	}
}

// scope waits for the scope of a maintenance that is as it should be.
func (p *post) scope(what, key string, is func(schemas.MaintenanceScope) bool) (found schemas.MaintenanceScope) {
	p.Helper()
	p.until(what, func() bool {
		p.out.mu.Lock()
		defer p.out.mu.Unlock()
		for _, e := range slices.Backward(p.out.events) {
			s, err := schemas.Decode[schemas.MaintenanceScope](e)
			if e.Type == schemas.ScopeType && err == nil && s.Kind == schemas.MaintenanceKind && s.Key == key && is(s) {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

// TestMaintenancesFromTheAPIServer is one story, on one control plane.
func TestMaintenancesFromTheAPIServer(t *testing.T) {
	c := clustertest.New(t, control.Options{Users: []control.User{{Name: blind}}})
	nodes, err := c.AddNodes(t.Context(), 2)
	p := newPost(t, c.RESTConfig())
	p.must(err)
	p.letLook(c.Client(), blind)
	config, err := c.UserConfig(blind)
	p.must(err)
	unsighted := newPost(t, config)

	for _, p := range []*post{p, unsighted} {
		p.until("ready without the kinds", func() bool { return p.w.cluster.Ready() == nil && p.w.Ready() == nil })
		p.until("leading", func() bool { return p.w.lead.Load() != nil })
	}
	<-time.After(5 * p.w.kinds.again)
	if got := p.log.count("does not serve the kinds of maintenances"); got != 1 {
		t.Errorf("that there are no kinds was logged %d times, want once", got)
	}

	p.must(c.AddKinds(t.Context()))
	p.until("the kinds are noticed", func() bool { return p.w.kinds.synced.Load() && p.w.maintained.known.Load() })
	p.must(p.w.Ready())
	unsighted.until("a line that says which right is missing", func() bool {
		return unsighted.log.count("is forbidden") > 0 && unsighted.log.count("rehome.dev") > 0
	})
	const unready = "watcher: maintenances and drain rules are not known yet: "
	if err := unsighted.w.Ready(); err == nil || !strings.HasPrefix(err.Error(), unready) || !strings.Contains(err.Error(), "is forbidden") {
		t.Errorf("without rights: got %v, want that it is not ready, and which right is missing", err)
	}
	p.story(c, nodes)
}

// story makes a maintenance and leads it on by hand.
func (p *post) story(c *control.Cluster, nodes []string) {
	objects, err := dynamic.NewForConfig(c.RESTConfig())
	p.must(err)
	of := func(resource string) dynamic.NamespaceableResourceInterface {
		return objects.Resource(v1alpha1.GroupVersion().WithResource(resource))
	}
	kernel := of(v1alpha1.NodeMaintenances)
	p.must(c.AddNamespace(p.Context(), "shop"))
	p.create(of(v1alpha1.DrainRules).Namespace("shop"), "DrainRule", map[string]any{"behavior": "Skip"})
	p.create(kernel, "NodeMaintenance", map[string]any{
		"nodes": map[string]any{"names": []any{nodes[0]}}, "stage": "Drain", "reason": "a new kernel",
		"atOnce": "10%", "deadline": "1h30m",
		"window": map[string]any{"schedule": map[string]any{"cron": "0 0 * * *", "duration": "24h"}},
	})
	s := p.scope("an object becomes a scope", "rule", func(schemas.MaintenanceScope) bool { return true })
	if got, want := s.Maintenance, p.stored(kernel); !reflect.DeepEqual(got, want) {
		p.Errorf("the maintenance: got %+v, want %+v", got, want)
	}
	if len(s.Nodes) != 1 || s.Nodes[0].Node.Name != nodes[0] || !s.InWindow || s.Cluster != (schemas.ClusterFacts{Nodes: 2}) {
		p.Errorf("got %s", inJSON(p.T, s))
	}

	_, err = c.Client().CoreV1().Pods("shop").Create(p.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "cart"},
		Spec:       corev1.PodSpec{NodeName: nodes[0], Containers: []corev1.Container{{Name: "c", Image: "cart"}}},
	}, metav1.CreateOptions{})
	p.must(err)
	status := map[string]any{"status": map[string]any{
		"nodes": []any{map[string]any{"name": nodes[0], "stage": "Draining"}},
	}}
	_, err = kernel.Patch(p.Context(), "rule", types.MergePatchType, []byte(inJSON(p.T, status)), metav1.PatchOptions{}, "status")
	p.must(err)
	mark := []byte(inJSON(p.T, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		schemas.AnnotationMaintenance: `{"name":"rule","uid":"` + string(s.Maintenance.UID) + `"}`,
	}}}))
	_, err = c.Client().CoreV1().Nodes().Patch(p.Context(), nodes[0], types.MergePatchType, mark, metav1.PatchOptions{})
	p.must(err)
	s = p.scope("its status, its mark and its pod are seen", "rule", func(s schemas.MaintenanceScope) bool {
		return len(s.Nodes) == 1 && s.Nodes[0].Mark != nil && len(s.Nodes[0].Pods) == 1
	})
	want := []schemas.DrainRuleFact{{Namespace: "shop", Name: "rule", Spec: v1alpha1.ClusterDrainRuleSpec{
		DrainRuleSpec: v1alpha1.DrainRuleSpec{Behavior: v1alpha1.SkipPods},
	}}}
	if !reflect.DeepEqual(s.Rules, want) || s.Nodes[0].Mark.UID != s.Maintenance.UID || s.Namespaces["shop"] == nil {
		p.Errorf("got %s", inJSON(p.T, s))
	}
	p.must(kernel.Delete(p.Context(), "rule", metav1.DeleteOptions{}))
	p.until("it is gone", func() bool { return len(p.w.maintained.names()) == 0 })
}

// create makes an object of the name rule.
func (p *post) create(in dynamic.ResourceInterface, kind string, spec map[string]any) {
	p.Helper()
	_, err := in.Create(p.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": "rule"}, "spec": spec,
	}}, metav1.CreateOptions{})
	p.must(err)
}

// stored is the maintenance as the API server has it, without what the watcher leaves out.
func (p *post) stored(in dynamic.ResourceInterface) v1alpha1.NodeMaintenance {
	p.Helper()
	object, err := in.Get(p.Context(), "rule", metav1.GetOptions{})
	p.must(err)
	var m v1alpha1.NodeMaintenance
	p.must(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &m))
	m.ManagedFields = nil
	return m
}

// letLook gives a user the right to list and watch what the watcher always watches.
func (p *post) letLook(client kubernetes.Interface, user string) {
	p.Helper()
	_, err := client.RbacV1().ClusterRoles().Create(p.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "policy", "scheduling.k8s.io", "storage.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"},
		}},
	}, metav1.CreateOptions{})
	p.must(err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(p.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	p.must(err)
}
