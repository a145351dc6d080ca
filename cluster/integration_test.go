package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/schemas"
	control "github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// nobody is a user without any rights.
const nobody = "nobody"

// TestViewWithAPIServer shares one control plane, one Deployment, and one view among its subtests, in order.
func TestViewWithAPIServer(t *testing.T) {
	c := clustertest.New(t, control.Options{Users: []control.User{{Name: nobody}}})
	nodes, err := c.AddNodes(t.Context(), 2)
	expect.Must(t, err)
	v := &viewing{T: expect.T{TB: t}, c: c, client: c.Client(), nodes: nodes, woken: make(chan struct{}, 1)}
	d, err := c.AddDeployment(t.Context(), "shop", "api", 3)
	v.Must(err)
	v.Must(c.WaitReady(t.Context(), "shop", "api"))
	v.deployment = schemas.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: "api", UID: d.UID}

	before := goleak.IgnoreCurrent()
	stop := v.start(c.Client())
	for _, tt := range []struct {
		name string
		test func(*viewing)
	}{
		{"the pods of a Deployment are tallied", testTally},
		{"a budget makes them budgeted as long as it is there", testBudgeted},
		{"the replacement of a deleted pod appears and is reported", testReplacement},
		{"a scaled Deployment wants more pods", testScale},
		{"a cordon and a taint show when they came", testTaints},
		{"the version of the API server is known", testVersion},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v.TB = t
			tt.test(v)
		})
	}
	v.TB = t
	stop()
	if err := goleak.Find(before); err != nil {
		t.Errorf("the end leaves goroutines: %v", err)
	}
	t.Run("without an answer the version is unknown", func(t *testing.T) {
		v.TB = t
		testNoVersion(v)
	})
	t.Run("a View that may not look goes on trying until it ends", func(t *testing.T) {
		v.TB = t
		testForbidden(v)
	})
}

// viewing is a view of a real control plane, with its reports.
type viewing struct {
	expect.T
	c          *control.Cluster
	client     kubernetes.Interface
	nodes      []string
	deployment schemas.ObjectRef
	cache      *Cache
	view       *Workloads
	woken      chan struct{}

	mu      sync.Mutex
	changes []Change
}

// watching returns a cache of the kinds of workloads, and its view.
func watching(v *viewing, client kubernetes.Interface, changed func(Change)) (*Cache, *Workloads) {
	v.Helper()
	c, err := New(Config{Client: client, Kinds: WorkloadKinds()})
	v.Must(err)
	c.Workloads().OnChange(changed)
	return c, c.Workloads()
}

// start runs the view until the caller calls the returned function. It returns when the view is filled.
func (v *viewing) start(client kubernetes.Interface) (stop func()) {
	v.Helper()
	v.cache, v.view = watching(v, client, func(c Change) {
		v.mu.Lock()
		v.changes = append(v.changes, c)
		v.mu.Unlock()
		select {
		case v.woken <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.cache.Run(ctx) }()
	v.Cleanup(cancel)
	select {
	case <-v.cache.Synced():
	case <-time.After(time.Minute):
		v.Fatal("not everything is known")
	}
	return func() {
		v.Helper()
		cancel()
		v.Must(<-ended)
	}
}

// until waits until the view has the wanted state. It checks after each reported change.
func until[A any](v *viewing, what string, ask func() A, want A) {
	v.Helper()
	for {
		got := ask()
		if reflect.DeepEqual(got, want) {
			return
		}
		select {
		case <-v.woken:
		case <-time.After(time.Minute):
			v.Fatalf("%s\n got %+v\nwant %+v", what, got, want)
		}
	}
}

// told returns the reports since the last call.
func (v *viewing) told() []Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	told := v.changes
	v.changes = nil
	return told
}

// expected returns the expected summaries of the ready pods of the Deployment.
func (v *viewing) expected(budgeted bool) []Pod {
	v.Helper()
	v.Must(v.c.WaitReady(v.Context(), "shop", "api"))
	list, err := v.client.CoreV1().Pods("shop").List(v.Context(), metav1.ListOptions{})
	v.Must(err)
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { // the names sort the pods that were made in the same second
		if a.CreationTimestamp.Equal(&b.CreationTimestamp) && a.Name < b.Name || a.CreationTimestamp.Before(&b.CreationTimestamp) {
			return -1
		}
		return 1
	})
	var want []Pod
	for _, p := range list.Items {
		want = append(want, Pod{
			Ref:      schemas.PodRef{Namespace: "shop", Name: p.Name, UID: p.UID},
			Workload: v.deployment, Node: p.Spec.NodeName, Created: p.CreationTimestamp.Time, Ready: true,
			Cost: costOf(p.Spec.Priority, corev1.PodQOSBestEffort), Budgeted: budgeted,
		})
	}
	return want
}

func (v *viewing) pods() []Pod  { return v.view.Pods(v.deployment.UID) }
func (v *viewing) tally() Tally { return v.view.Tally(v.deployment.UID) }

func testTally(v *viewing) {
	until(v, "pods", v.pods, v.expected(false))
	until(v, "tally", v.tally, Tally{Wanted: 3, Ready: 3})
	for _, want := range v.pods() {
		got, known := v.view.Pod(want.Ref.UID)
		expect.Equal(v, "pod", got, want)
		expect.Equal(v, "known", known, true)
	}
	expect.Equal(v, "change for the Deployment in the first list", slices.ContainsFunc(v.told(), func(c Change) bool {
		return c.Workload == v.deployment.UID // with a pod, or without: the kinds come in any order
	}), true)
}

func testBudgeted(v *viewing) {
	budgets := v.client.PolicyV1().PodDisruptionBudgets("shop")
	b := budget("api", selecting("app", "api"))
	b.ObjectMeta = metav1.ObjectMeta{Name: "api"}
	_, err := budgets.Create(v.Context(), b, metav1.CreateOptions{})
	v.Must(err)
	until(v, "pods with a budget", v.pods, v.expected(true))
	v.Must(budgets.Delete(v.Context(), "api", metav1.DeleteOptions{}))
	until(v, "pods without a budget", v.pods, v.expected(false))
}

func testReplacement(v *viewing) {
	before := v.pods()
	gone := before[0].Ref
	v.told()
	v.Must(v.client.CoreV1().Pods("shop").Delete(v.Context(), gone.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(gone.UID)),
	}))
	isGone := func(pods []Pod) bool {
		return !slices.ContainsFunc(pods, func(p Pod) bool { return p.Ref == gone })
	}
	until(v, "the pod is gone, and there are three", func() bool { return isGone(v.pods()) && len(v.pods()) == 3 }, true)
	until(v, "pods", v.pods, v.expected(false))
	until(v, "tally", v.tally, Tally{Wanted: 3, Ready: 3})
	_, known := v.view.Pod(gone.UID)
	expect.Equal(v, "the pod that was deleted is known", known, false)
	want := map[Change]bool{{Workload: v.deployment.UID, Pod: gone.UID}: true}
	for _, p := range v.pods() {
		if !slices.ContainsFunc(before, func(old Pod) bool { return old.Ref == p.Ref }) {
			want[Change{Workload: v.deployment.UID, Pod: p.Ref.UID}] = true
		}
	}
	told := map[Change]bool{}
	for _, c := range v.told() {
		told[c] = true
	}
	expect.Equal(v, "told", told, want)
}

func testScale(v *viewing) {
	v.patch(func(ctx context.Context) error {
		_, err := v.client.AppsV1().Deployments("shop").Patch(ctx, "api", types.MergePatchType,
			[]byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{})
		return err
	})
	until(v, "pods", v.pods, v.expected(false))
	until(v, "tally", v.tally, Tally{Wanted: 5, Ready: 5})
}

func (v *viewing) patch(call func(context.Context) error) {
	v.Helper()
	v.Must(call(v.Context()))
}

func testTaints(v *viewing) {
	name := v.nodes[0]
	patched := func(patch string) {
		v.Helper()
		v.patch(func(ctx context.Context) error {
			return v.c.PatchNode(ctx, name, patch)
		})
	}
	// since reports whether the node was tainted at or after a time.
	since := func(at time.Time) func() bool {
		return func() bool {
			n, known := v.view.Node(name)
			return known && n.Ready && !n.Tainted.Before(at) && !n.Tainted.After(time.Now())
		}
	}
	sound := []Node{{Name: v.nodes[0], Ready: true}, {Name: v.nodes[1], Ready: true}}
	until(v, "nodes", v.view.Nodes, sound)
	v.told()
	at := time.Now()
	patched(`{"spec":{"unschedulable":true}}`)
	until(v, "cordoned", since(at), true)
	patched(`{"spec":{"unschedulable":false}}`)
	until(v, "nodes without a cordon", v.view.Nodes, sound)
	at = time.Now()
	patched(`{"spec":{"taints":[{"key":"maintenance","effect":"NoExecute"}]}}`)
	until(v, "tainted", since(at), true)
	patched(`{"spec":{"taints":null}}`)
	until(v, "nodes without a taint", v.view.Nodes, sound)
	var told []Change
	for _, c := range v.told() {
		if c.Node != "" {
			told = append(told, c)
		}
	}
	expect.Equal(v, "told", slices.Compact(told), []Change{{Node: name}})
}

func testVersion(v *viewing) {
	version, err := v.client.Discovery().ServerVersion()
	v.Must(err)
	expect.Equal(v, "minor version", strconv.Itoa(v.cache.MinorVersion()), version.Minor)
}

func testNoVersion(v *viewing) {
	config := v.c.RESTConfig()
	clustertest.Intercept(config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.URL.Path == "/version" {
			return nil, errors.New("no answer")
		}
		return next.RoundTrip(r)
	})
	client, err := kubernetes.NewForConfig(config)
	v.Must(err)
	var log program.Log
	c, err := New(Config{Client: client, Kinds: WorkloadKinds(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	v.Must(err)
	ctx, cancel := context.WithCancel(v.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	defer func() {
		cancel()
		v.Must(<-ended)
	}()
	select {
	case <-c.Synced():
	case <-time.After(time.Minute):
		v.Fatal("the cache is not filled")
	}
	expect.Equal(v, "minor version", c.MinorVersion(), 0)
	expect.Equal(v, "warnings", strings.Count(log.String(), "predicting like the newest known scheduler"), 1)
}

func testForbidden(v *viewing) {
	config, err := v.c.UserConfig(nobody)
	v.Must(err)
	client, err := kubernetes.NewForConfig(config)
	v.Must(err)
	ctx, cancel := context.WithCancel(v.Context())
	defer cancel()
	cache, view := watching(v, client, func(c Change) { v.Errorf("told: %+v", c) })
	ended := make(chan error, 1)
	go func() { ended <- cache.Run(ctx) }()
	late := time.Now().Add(time.Minute)
	for why, unsaid := refused(cache); len(unsaid) > 0; why, unsaid = refused(cache) {
		if time.Now().After(late) {
			v.Fatalf("it is not ready because %s; want that it may not list %s", why, strings.Join(unsaid, ", "))
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	v.Must(<-ended)
	select {
	case <-cache.Synced():
		v.Error("it says that it knows everything")
	default:
	}
	expect.Equal(v, "nodes", view.Nodes(), []Node{})
}

// refused returns the reason why a view is not ready, and the resources that it does not name as forbidden.
func refused(c *Cache) (why string, unsaid []string) {
	why = fmt.Sprint(c.Ready())
	all := []string{
		"nodes", "pods", "replicationcontrollers", "deployments", "replicasets", "statefulsets", "poddisruptionbudgets",
	}
	return why, slices.DeleteFunc(all, func(resource string) bool {
		return strings.Contains(why, resource+" is forbidden") || strings.Contains(why, `cannot list resource "`+resource+`"`)
	})
}
