package actuator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/move/evictionrequest"
	readmodel "github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

const (
	looker = "looker" // a user that may only get pods
	nobody = "nobody" // a user without any rights
)

// TestActuatorWithAPIServer shares one control plane among its subtests. Each has its own namespace; the last one
// stops the API server.
func TestActuatorWithAPIServer(t *testing.T) {
	c := clustertest.New(t, cluster.Options{Users: []cluster.User{{Name: looker}, {Name: nobody}}})
	if _, err := c.AddNodes(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	var numbers atomic.Int32
	for _, tt := range []struct {
		name string
		test func(*place)
	}{
		{"a pod is evicted with its UID as a precondition", testUIDPrecondition},
		{"a recreated pod with the same name is not touched", testPodMadeAnew},
		{"a pod that was changed before the call is checked again", changedBeforeTheCall(policy.EvictAnnotation, "false")},
		{"a pod that got an opt-out before the call is checked again", changedBeforeTheCall("karpenter.sh/do-not-disrupt", "true")},
		{"a pod that got an opt-out while it waited is not touched", testOptOutWhileItWaits},
		{"a pod that is being deleted is not touched", testTerminating},
		{"a pod that other objects protect is not touched", testProtectedByFacts},
		{"a pod behind a budget is deferred and the budget is named", testBudget},
		{"a pod behind two budgets fails", testTwoBudgets},
		{"a dry run changes nothing, but budgets count", testDryRun},
		{"a missing right is a failure", testForbidden},
		{"a move ends when a right is missing for an hour", testStepForbidden},
		{"a namespace that is being deleted is left alone", testNamespaceEnds},
		{"an eviction is recorded as a Kubernetes Event", testKubernetesEvent},
		{"a pod of a maintenance that a budget would hold for ever moves by a restart", testMaintenance},
		{"a lease that ends before the first write of a move", leaseEndsBefore("rehome.dev/restarted-at", 0)},
		{"a lease that ends before the last write of a move", leaseEndsBefore(`"rehome.dev/restart-undo":null`, 1)},
		{"many answers and a change of the leader evict every pod once", testChangeOfLeader},
		{"an API server that is away delays evictions and loses none", testAPIServerAway},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &place{T: expect.T{TB: t}, c: c, client: c.Client(), namespace: fmt.Sprintf("place-%d", numbers.Add(1))}
			p.Must(c.AddNamespace(t.Context(), p.namespace))
			tt.test(p)
		})
	}
}

// place is the namespace of one subtest.
type place struct {
	expect.T
	c         *cluster.Cluster
	client    kubernetes.Interface
	namespace string
}

// pods creates a Deployment and returns its running pods.
func (p *place) pods(replicas int, mutate ...func(*appsv1.Deployment)) []corev1.Pod {
	p.Helper()
	_, err := p.c.AddDeployment(p.Context(), p.namespace, "api", replicas, mutate...)
	p.Must(err)
	p.Must(p.c.WaitReady(p.Context(), p.namespace, "api"))
	list, err := p.client.CoreV1().Pods(p.namespace).List(p.Context(), metav1.ListOptions{})
	p.Must(err)
	return list.Items
}

// budget creates a budget that requires that many of the Deployment's pods, and waits until the controller has counted
// them.
func (p *place) budget(name string, minAvailable int) *policyv1.PodDisruptionBudget {
	p.Helper()
	spec := policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt(minAvailable))}
	b, err := p.c.AddBudget(p.Context(), p.namespace, name, "api", spec)
	p.Must(err)
	return b
}

// open returns the intent to evict pod.
func (p *place) open(pod corev1.Pod) Intent {
	o := wish()
	o.Pod = schemas.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	o.ID, o.Node, o.Expires = "scope."+string(pod.UID), pod.Spec.NodeName, time.Now().Add(time.Minute)
	return o
}

// enabledPolicy enables the strategies of wish and A to C, with no rate limit.
func enabledPolicy() policy.Policy {
	return enabling(fast.Rate, wish().Strategy, "A", "B", "C")
}

func (p *place) actuator(change ...func(*Config)) *Actuator {
	cfg := Config{Client: p.client, Policy: enabledPolicy(), Source: "/test/actuator", Bus: newMemory(),
		Log: slog.New(slog.NewTextHandler(p.Output(), nil))}
	for _, f := range change {
		f(&cfg)
	}
	return New(cfg)
}

// handle executes an intent.
func (p *place) handle(a *Actuator, o Intent) schemas.Verdict {
	p.Helper()
	v, err := a.execute(p.Context(), o, unsaved)
	p.Must(err)
	return v
}

// asked is one eviction call from the audit log.
type asked struct {
	User, Pod string
	Code      int
	Options   metav1.DeleteOptions
}

// evictions returns the eviction calls in this namespace.
func (p *place) evictions() []asked {
	p.Helper()
	entries, err := p.c.Audit(p.Context())
	p.Must(err)
	var out []asked
	for _, e := range entries {
		if e.Subresource != "eviction" || e.Namespace != p.namespace {
			continue
		}
		var eviction policyv1.Eviction
		p.Must(json.Unmarshal(e.Object, &eviction))
		if o := eviction.DeleteOptions.Preconditions; o.ResourceVersion == nil {
			p.Errorf("the eviction of pod %s has no resource version as a precondition", e.Name)
		} else {
			o.ResourceVersion = nil
		}
		out = append(out, asked{e.User, e.Name, e.Code, *eviction.DeleteOptions})
	}
	return out
}

// live returns the live pod, or nil.
func (p *place) live(name string) *corev1.Pod {
	p.Helper()
	pod, err := p.actuator().look(p.Context(), schemas.PodRef{Namespace: p.namespace, Name: name}, storage)
	p.Must(err)
	return pod
}

func testUIDPrecondition(p *place) {
	pod := p.pods(2)[0]
	a := p.actuator(func(c *Config) { c.Policy.GracePeriodSeconds = new(int64(7)) })
	o := p.open(pod)
	expect.Equal(p, "verdict", p.handle(a, o), evictedBy(o))
	expect.Equal(p, "eviction calls", p.evictions(), []asked{{"admin", pod.Name, 201, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(7)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	}}})
	if live := p.live(pod.Name); live != nil && live.DeletionTimestamp == nil {
		p.Errorf("pod %s runs on", pod.Name)
	}
}

func testPodMadeAnew(p *place) {
	create := func() *corev1.Pod {
		pods := p.client.CoreV1().Pods(p.namespace)
		pod, err := pods.Create(p.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "db-0", Annotations: map[string]string{policy.EvictAnnotation: "true"}},
			// Not on a kwok node: kwok deletes an ended pod by name and could delete the second pod instead.
			Spec: corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "main", Image: "none"}}},
		}, metav1.CreateOptions{})
		p.Must(err)
		pod.Status.Phase = corev1.PodRunning // for a pending pod the API server retries a UID conflict for ten seconds
		pod, err = pods.UpdateStatus(p.Context(), pod, metav1.UpdateOptions{})
		p.Must(err)
		return pod
	}
	first := create()
	p.Must(p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), "db-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	_, err := p.c.WaitPods(p.Context(), p.namespace, "", "the pod is gone", func(pods []*corev1.Pod) bool { return len(pods) == 0 })
	p.Must(err)
	second := create()

	a, o := p.actuator(), p.open(*first)
	gone := decidedOn(o, schemas.Rejected, schemas.ReasonPodGone, "the pod is gone; another one of its name has UID "+string(second.UID))
	expect.Equal(p, "verdict", p.handle(a, o), gone)
	expect.Equal(p, "eviction calls", p.evictions(), nil)

	// The pod is recreated between the look and the call, so only the precondition protects it.
	progress, err := a.evictions.Start(p.Context(), first, time.Now(), func(context.Context, move.Record) error { return nil })
	p.Must(err)
	expect.Equal(p, "progress of the call alone", progress, move.Refused(schemas.MethodEviction,
		&move.Refusal{Outcome: gone.Outcome, Reason: gone.Reason, Message: gone.Message}))
	expect.Equal(p, "eviction calls", p.evictions(), []asked{
		{"admin", "db-0", 409, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &first.UID}}},
	})
	if live := p.live("db-0"); live == nil || live.UID != second.UID || live.DeletionTimestamp != nil {
		p.Errorf("the second pod is not what it was: %+v", live)
	}
}

// changedBeforeTheCall protects a pod by an annotation between the read and the eviction call.
func changedBeforeTheCall(annotation, value string) func(*place) {
	return func(p *place) {
		pod := p.pods(2)[0]
		config := p.c.RESTConfig()
		protect := sync.OnceFunc(func() { p.annotate(pod, annotation, value) })
		clustertest.Intercept(config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/eviction") {
				protect()
			}
			return next.RoundTrip(r)
		})
		client, err := kubernetes.NewForConfig(config)
		p.Must(err)
		o := p.open(pod)
		v := p.handle(p.actuator(func(c *Config) { c.Client = client }), o)
		expect.Equal(p, "verdict", v, decidedOn(o, schemas.Rejected, schemas.ReasonProtected, v.Message))
		expect.Equal(p, "eviction calls", p.evictions(), []asked{
			{"admin", pod.Name, 409, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}},
		})
	}
}

func (p *place) annotate(pod corev1.Pod, annotation, value string) {
	p.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	_, err := p.client.CoreV1().Pods(p.namespace).Patch(p.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	p.Must(err)
}

// testOptOutWhileItWaits protects a pod whose intent waits for the rate limit. Nothing withdraws the intent.
func testOptOutWhileItWaits(p *place) {
	pods, bus := p.pods(2), newMemory()
	slow := enabledPolicy()
	slow.Rate = policy.Rate{EvictionsPerSecond: 0.001, Burst: 1}
	a := p.actuator(func(c *Config) { c.Bus, c.Policy = bus, slow })
	stop := p.lead(a)
	defer stop()
	bus.put(p.answer("A", "node", 1, pods))
	p.until(bus, 1, false)
	evicted, waits := p.evictions(), pods[0]
	if len(evicted) == 1 && evicted[0].Pod == waits.Name {
		waits = pods[1]
	}
	p.annotate(waits, "karpenter.sh/do-not-disrupt", "true")
	a.SetPolicy(enabledPolicy())
	p.until(bus, 2, true)
	got := map[schemas.ReasonCode]int{}
	for _, h := range bus.heard(p, time.Now()) {
		got[h.Reason]++
	}
	expect.Equal(p, "verdicts", got, map[schemas.ReasonCode]int{schemas.ReasonEvictionAccepted: 1, schemas.ReasonProtected: 1})
	expect.Equal(p, "eviction calls", p.evictions(), evicted)
}

func testTerminating(p *place) {
	const finalizer = "rehome.dev/test"
	pod := p.pods(1, func(d *appsv1.Deployment) { d.Spec.Template.Finalizers = []string{finalizer} })[0]
	p.Must(p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), pod.Name, metav1.DeleteOptions{}))
	o := p.open(pod)
	expect.Equal(p, "verdict", p.handle(p.actuator(), o), decidedOn(o, schemas.Rejected, schemas.ReasonPodTerminating,
		"the pod is being deleted, until "+clock(p.live(pod.Name).DeletionTimestamp.Time)))
	expect.Equal(p, "eviction calls", p.evictions(), nil)
}

// testProtectedByFacts reads the PriorityClass and the node from the caches that the role has.
func testProtectedByFacts(p *place) {
	_, err := p.client.SchedulingV1().PriorityClasses().Create(p.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: p.namespace}, Value: 1000,
	}, metav1.CreateOptions{})
	p.Must(err)
	pod := p.pods(1, func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = p.namespace })[0]
	view, err := readmodel.New(readmodel.Config{Client: p.client, Kinds: Kinds()})
	p.Must(err)
	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan error, 1)
	go func() { ended <- view.Run(ctx) }()
	defer func() {
		cancel()
		p.Must(<-ended)
	}()
	view.WaitForSync(ctx)

	above, outside, o := enabledPolicy(), enabledPolicy(), p.open(pod)
	above.Profiles[0].Evictor, err = policy.NewEvictor(policy.EvictorArgs{PriorityThreshold: policy.PriorityThreshold{Name: p.namespace}})
	p.Must(err)
	outside.NodeSelector = "pool=web"
	a := p.actuator(func(c *Config) { c.Facts, c.Policy = view, above })
	expect.Equal(p, "verdict on a pod above the threshold", p.handle(a, o), decidedOn(o, schemas.Rejected, schemas.ReasonProtected,
		"PriorityThreshold: its priority 1000 is not below the threshold 1000 of the PriorityClass "+p.namespace))
	a.SetPolicy(outside)
	expect.Equal(p, "verdict on a pod outside nodeSelector", p.handle(a, o), decidedOn(o, schemas.Rejected, schemas.ReasonProtected,
		`NodeNotUsable: the policy's nodeSelector "pool=web" does not select node `+pod.Spec.NodeName))
	expect.Equal(p, "eviction calls", p.evictions(), nil)
	a.SetPolicy(enabledPolicy())
	expect.Equal(p, "verdict without these rules", p.handle(a, o), evictedBy(o))
}

func testBudget(p *place) {
	pods := p.pods(3)
	budget := p.budget("api", 3)
	o := p.open(pods[0])
	want := decidedOn(o, schemas.Deferred, schemas.ReasonDisruptionBudget,
		"poddisruptionbudget "+p.namespace+"/api: 3 of 3 healthy pods needed")
	want.Blockers = []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: p.namespace, Name: "api", UID: budget.UID}}
	expect.Equal(p, "verdict", p.handle(p.actuator(), o), want)
	expect.Equal(p, "eviction calls", p.evictions(), []asked{
		{"admin", pods[0].Name, 429, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pods[0].UID}}},
	})
}

func testTwoBudgets(p *place) {
	pod := p.pods(3)[0]
	api, again := p.budget("api", 1), p.budget("again", 1)
	o := p.open(pod)
	want := decidedOn(o, schemas.Failed, schemas.ReasonInvalid,
		fmt.Sprintf("more than one poddisruptionbudget matches the pod: %[1]s/again, %[1]s/api", p.namespace))
	want.Blockers = []schemas.ObjectRef{
		{Kind: "PodDisruptionBudget", Namespace: p.namespace, Name: "again", UID: again.UID},
		{Kind: "PodDisruptionBudget", Namespace: p.namespace, Name: "api", UID: api.UID},
	}
	expect.Equal(p, "verdict", p.handle(p.actuator(), o), want)
	if live := p.live(pod.Name); live == nil || live.DeletionTimestamp != nil {
		p.Errorf("pod %s was evicted", pod.Name)
	}
}

func testDryRun(p *place) {
	pods := p.pods(3)
	a := p.actuator(func(c *Config) { c.DryRun = true })
	dry := func(v schemas.Verdict) schemas.Verdict { v.DryRun = true; return v }
	for _, pod := range pods {
		o := p.open(pod)
		expect.Equal(p, "verdict", p.handle(a, o), dry(evictedBy(o)))
	}
	budget := p.budget("api", 3)
	o := p.open(pods[0])
	want := dry(decidedOn(o, schemas.Deferred, schemas.ReasonDisruptionBudget,
		"poddisruptionbudget "+p.namespace+"/api: 3 of 3 healthy pods needed"))
	want.Blockers = []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: p.namespace, Name: "api", UID: budget.UID}}
	expect.Equal(p, "verdict behind a budget", p.handle(a, o), want)
	after, err := p.client.CoreV1().Pods(p.namespace).List(p.Context(), metav1.ListOptions{})
	p.Must(err)
	expect.Equal(p, "pods afterwards", after.Items, pods)
}

func testForbidden(p *place) {
	pod := p.pods(2)[0]
	p.Must(p.c.Bind(p.Context(), cluster.UserSubject(looker), p.namespace, "view"))
	for user, message := range map[string]string{
		nobody: fmt.Sprintf(`pods %q is forbidden: User "nobody" cannot get resource "pods" in API group "" in the namespace %q`,
			pod.Name, p.namespace),
		looker: fmt.Sprintf(`pods %q is forbidden: User "looker" cannot create resource "pods/eviction" in API group "" in the namespace %q`,
			pod.Name, p.namespace),
	} {
		a := p.actuator(func(c *Config) { c.Client = clustertest.As(p, p.c, user) })
		o := p.open(pod)
		v := p.handle(a, o)
		for v.Message != message && user == looker && strings.Contains(v.Message, "get resource") { // the binding is new
			v = p.handle(a, o)
		}
		expect.Equal(p, "verdict for "+user, v, decidedOn(o, schemas.Failed, schemas.ReasonForbidden, message))
	}
}

// testStepForbidden continues a move whose EvictionRequest the actuator may not read.
func testStepForbidden(p *place) {
	pod := p.pods(2)[0]
	p.Must(p.c.Bind(p.Context(), cluster.UserSubject(looker), p.namespace, "view"))
	client := clustertest.As(p, p.c, looker)
	expect.Eventually(p, "the right to look at pods", func() bool {
		_, err := client.CoreV1().Pods(p.namespace).Get(p.Context(), pod.Name, metav1.GetOptions{})
		return err == nil
	})
	o, m := p.open(pod), newMemory()
	o.Expires = noon
	r := record{Intent: o, Method: schemas.MethodEvictionRequest, Begun: noon, Moved: noon,
		State: move.Encode(map[string]any{"pod": o.Pod, "phase": "Requested", "since": noon})}
	p.Must(m.Put(p.Context(), r.key(), move.Encode(r)))
	var passed atomic.Int64
	a := p.actuator(func(c *Config) {
		c.Client, c.Bus, c.Ledger, c.View = client, m, m, webPods()
		c.Now = func() time.Time { return noon.Add(time.Duration(passed.Load())) }
	})
	stop := p.lead(a)
	defer stop()
	expect.Eventually(p, "a step that failed", func() bool {
		s := a.session.Load()
		if s == nil {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		x := s.moves.all[pod.UID]
		return x != nil && !x.failed.IsZero()
	})
	passed.Store(int64(time.Hour))
	a.session.Load().queues.inFlight.Add(pod.UID)
	p.until(m, 1, true)
	requester := sha256.Sum256([]byte(evictionrequest.DefaultRequester))
	name := fmt.Sprintf("rehome-%s-%x", pod.UID, requester[:4])
	want := decidedOn(o, schemas.Settled, schemas.ReasonMoveFailed, fmt.Sprintf("the steps of the move failed for 1h0m0s, and it was not undone: "+
		`get eviction request %s/%s: evictionrequests.lifecycle.k8s.io %q is forbidden: User "looker" cannot get resource "evictionrequests" `+
		`in API group "lifecycle.k8s.io" in the namespace %q`, p.namespace, name, name, p.namespace))
	want.Method, want.Settlement = schemas.MethodEvictionRequest, &schemas.Settlement{Seconds: 3600}
	expect.Equal(p, "verdict", schematest.Decode[schemas.Verdict](p, m.published[0]), want)
}

func testNamespaceEnds(p *place) {
	const finalizer = "rehome.dev/test"
	pod := p.pods(1, func(d *appsv1.Deployment) { d.Spec.Template.Finalizers = []string{finalizer} })[0]
	p.Must(p.client.CoreV1().Namespaces().Delete(p.Context(), p.namespace, metav1.DeleteOptions{}))
	got, err := p.actuator().evictions.Start(p.Context(), &pod, time.Now(), func(context.Context, move.Record) error { return nil })
	p.Must(err)
	expect.Equal(p, "progress", got, move.Refused(schemas.MethodEviction,
		&move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodTerminating, Message: got.Message}))
}

// evictedBy returns the verdict on a pod whose eviction the API server accepted.
func evictedBy(o Intent) schemas.Verdict {
	v := decidedOn(o, schemas.Evicted, schemas.ReasonEvictionAccepted, "evicted from "+o.Node)
	v.Method = schemas.MethodEviction
	return v
}

// lead runs a until the caller calls the returned function.
func (p *place) lead(a *Actuator) (stop func()) {
	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Lead(ctx) }()
	return func() {
		p.Helper()
		cancel()
		p.Must(<-ended)
	}
}

// answer returns the event of an answer of strategy that lists pods on any node.
func (p *place) answer(strategy, key string, sequence uint64, pods []corev1.Pod) schemas.Event {
	p.Helper()
	a := schemas.Intents{Profile: "default", Strategy: strategy, Scope: schemas.ScopeRef{
		Kind: schemas.DomainKind, Key: key, Event: fmt.Sprintf("%s-%s-%d", strategy, key, sequence), Sequence: sequence, Since: time.Now(),
	}}
	for _, pod := range pods {
		intent := p.open(pod).Intent
		intent.ID = a.Scope.Event + "." + string(pod.UID)
		a.Intents = append(a.Intents, intent)
	}
	return schematest.Event(p, "/test", a, time.Now(), schemas.Event{})
}

// until waits until m has stored that many verdicts and, if settled, holds no answers.
func (p *place) until(m *memory, verdicts int, settled bool) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Minute)
	defer cancel()
	p.Must(m.await(ctx, func() bool { return len(m.published) >= verdicts && (!settled || len(m.table) == 0) }))
}

// pause waits for a tenth of a second.
func (p *place) pause() {
	select {
	case <-p.Context().Done():
	case <-time.After(100 * time.Millisecond):
	}
}

func testKubernetesEvent(p *place) {
	pod := p.pods(1)[0]
	watcher, err := p.client.EventsV1().Events(p.namespace).Watch(p.Context(), metav1.ListOptions{
		FieldSelector: "reportingController=rehome",
	})
	p.Must(err)
	defer watcher.Stop()
	before := goleak.IgnoreCurrent()
	bus := newMemory()
	stop := p.lead(p.actuator(func(c *Config) { c.Bus = bus }))
	bus.put(p.answer("A", "node", 1, []corev1.Pod{pod}))
	var got *eventsv1.Event
	select {
	case e := <-watcher.ResultChan():
		if e.Type != watch.Added {
			p.Fatalf("watch: %+v", e)
		}
		got = e.Object.(*eventsv1.Event)
	case <-time.After(time.Minute):
		p.Fatal("there is no Kubernetes Event")
	}
	want := eventsv1.Event{
		ObjectMeta: got.ObjectMeta, EventTime: got.EventTime, ReportingInstance: got.ReportingInstance,
		ReportingController: "rehome", Action: "Descheduled", Reason: "A", Type: "Normal",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Note:      "evicted from node " + pod.Spec.NodeName + " by rehome: does not tolerate dedicated=gpu:NoSchedule",
	}
	want.DeprecatedSource, want.TypeMeta = got.DeprecatedSource, got.TypeMeta
	expect.Equal(p, "Kubernetes Event", *got, want)

	stop()
	if err := goleak.Find(before); err != nil {
		p.Errorf("the end of the term leaves goroutines: %v", err)
	}
}

func testChangeOfLeader(p *place) {
	pods := p.pods(60)
	bus := newMemory()
	bus.put(p.answer("A", "one", 1, pods[:40]))
	bus.put(p.answer("B", "two", 1, pods[20:])) // both answers list twenty pods
	bus.put(p.answer("C", "three", 1, pods[50:]))
	stop := p.lead(p.actuator(func(c *Config) { c.Bus, c.Parallel = bus, 4 }))
	p.until(bus, 15, false)
	stop()
	p.toldOf(bus)
	interim := len(p.evictions())
	if interim >= len(pods) {
		p.Fatalf("the first leader asked for all %d evictions: the change came too late", interim)
	}
	stop = p.lead(p.actuator(func(c *Config) { c.Bus = bus }))
	p.until(bus, 1, true)
	stop()

	var evicted, wanted []string
	for _, e := range p.evictions() {
		if e.Code != 201 {
			p.Errorf("eviction of %s: %d", e.Pod, e.Code)
		}
		evicted = append(evicted, e.Pod)
	}
	for _, pod := range pods {
		wanted = append(wanted, pod.Name)
	}
	slices.Sort(evicted)
	slices.Sort(wanted)
	expect.Equal(p, "evicted pods", evicted, wanted)

	verdicts := map[string]int{}
	for _, h := range bus.heard(p, time.Now()) {
		if h.Reason == schemas.ReasonEvictionAccepted {
			verdicts[h.ID[strings.Index(h.ID, ".")+1:]]++
		}
	}
	for _, pod := range pods {
		if verdicts[string(pod.UID)] != 1 {
			p.Errorf("pod %s has %d verdicts that it was evicted, want one", pod.Name, verdicts[string(pod.UID)])
		}
	}
}

// toldOf checks that each eviction on the bus was also recorded as a Kubernetes Event, including the last ones.
func (p *place) toldOf(bus *memory) {
	p.Helper()
	list, err := p.client.EventsV1().Events(p.namespace).List(p.Context(), metav1.ListOptions{FieldSelector: "reportingController=rehome"})
	p.Must(err)
	var got, want []string
	for _, e := range list.Items {
		got = append(got, string(e.Regarding.UID))
	}
	for _, h := range bus.heard(p, time.Now()) {
		if h.Reason == schemas.ReasonEvictionAccepted {
			want = append(want, h.ID[strings.Index(h.ID, ".")+1:])
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	expect.Equal(p, "pods with a Kubernetes Event", got, want)
}

func testAPIServerAway(p *place) {
	pods := p.pods(5)
	bus := newMemory()
	a := p.actuator(func(c *Config) { c.Bus = bus })
	stop := p.lead(a)
	defer stop()
	p.Must(p.c.StopAPIServer())
	bus.put(p.answer("A", "node", 1, pods))
	for a.Ready() == nil {
		p.pause()
	}
	if err := a.Ready(); !errors.Is(err, ErrUnavailable) {
		p.Errorf("readiness: %v, want an error that wraps ErrUnavailable", err)
	}
	expect.Equal(p, "verdicts while the API server is away", bus.heard(p, time.Now()), nil)
	p.Must(p.c.StartAPIServer(p.Context()))
	p.until(bus, 1, true)
	got := map[schemas.ReasonCode]int{}
	for _, h := range bus.heard(p, time.Now()) {
		got[h.Reason]++
	}
	expect.Equal(p, "verdicts", got, map[schemas.ReasonCode]int{schemas.ReasonEvictionAccepted: len(pods)})
	expect.Equal(p, "readiness", a.Ready(), nil)
}
