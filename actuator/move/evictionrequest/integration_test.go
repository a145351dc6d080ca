package evictionrequest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/movetest"
)

// nobody is a user without any rights.
const nobody = "nobody"

// TestEvictionRequests shares one control plane among its subtests.
//
// No released control plane serves lifecycle.k8s.io/v1alpha1. Therefore the test installs definitions of the two kinds,
// written after the Go types of k8s.io/api: the names, types, and enums of all fields, and the rules that a definition
// can express. The real API server validates against them; rules that they cannot express, such as future admission,
// are not tested. The other side is the test's own controller, see controller. It speaks JSON, the only encoding that
// API servers support for custom resources; the tested client prefers protobuf, as in the program.
//
// The subtests without the definitions run first; the last one stops the API server.
func TestEvictionRequests(t *testing.T) {
	c := clustertest.New(t, cluster.Options{Users: []cluster.User{{Name: nobody}}})
	if _, err := c.AddNodes(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	var numbers atomic.Int32
	for _, tt := range []struct {
		name string
		test func(*place)
	}{
		{"the API is available when the API server serves it", testAvailable},
		{"the definitions keep what the Go types say", testDefinitions},
		{"a request is made, worked on for hours, and removed when the pod is gone", testEvicted},
		{"a request without an answer is withdrawn", testNobodyAnswers},
		{"a request that failed is taken back", testFailed},
		{"a request that was made and not remembered is not made again", testCrashAfterCreate},
		{"a request that was withdrawn and not removed is removed", testCrashAfterWithdrawal},
		{"a request is not made for a pod that went before", testGoneBefore},
		{"a request that was made and not remembered goes with its pod", testGoneAfterCrash},
		{"a request is removed when the pod goes by other means", testGoneOtherwise},
		{"a request that is left over from an earlier move is replaced", testLeftOver},
		{"no request under a name that is taken", testNameTaken},
		{"a request that another client removes is not made again", testRemovedBySomebody},
		{"a request is removed when its reason is gone", testCancel},
		{"a dry run asks the API server and makes nothing", testDryRun},
		{"a request that the API server calls invalid leaves the pod to the eviction API", testInvalid},
		{"a missing right leaves the pod to the eviction API", testForbidden},
		{"a pod that the API does not serve is refused", testRefused},
		{"a request that is forgotten goes with its pod", testForgotten},
		{"an API that is not served any more leaves the pod to the eviction API", testNotServedAnyMore},
		{"an API server that is away settles nothing", testAPIServerAway},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &place{T: expect.T{TB: t}, c: c, namespace: fmt.Sprintf("place-%d", numbers.Add(1))}
			inJSON := c.RESTConfig()
			inJSON.ContentType = runtime.ContentTypeJSON
			p.client, p.inJSON = p.clientFor(c.RESTConfig()), p.clientFor(inJSON)
			p.controller = controller{p.inJSON, p.namespace}
			p.Must(c.AddNamespace(t.Context(), p.namespace))
			tt.test(p)
		})
	}
}

// place is the namespace of one subtest.
type place struct {
	expect.T
	c          *cluster.Cluster
	client     kubernetes.Interface // of the tested method
	inJSON     kubernetes.Interface // of all other clients
	controller controller
	namespace  string
}

// clientFor returns a client that prefers protobuf, unless config says otherwise.
func (p *place) clientFor(config *rest.Config) kubernetes.Interface {
	p.Helper()
	if config.ContentType == "" {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	client, err := kubernetes.NewForConfig(config)
	p.Must(err)
	return client
}

// calls records the requests to lifecycle.k8s.io on their way to the API server.
type calls struct {
	mu   sync.Mutex
	made []string
}

// recorded returns a client like the place's, with recorded calls.
func (p *place) recorded() (kubernetes.Interface, *calls) {
	p.Helper()
	config, log := p.c.RESTConfig(), &calls{}
	clustertest.Intercept(config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if _, path, ok := strings.Cut(r.URL.Path, "/apis/lifecycle.k8s.io/v1alpha1"); ok {
			what := strings.TrimPrefix(path, "/namespaces/"+p.namespace+"/")
			if r.URL.RawQuery != "" {
				what += "?" + r.URL.RawQuery
			}
			log.mu.Lock()
			log.made = append(log.made, r.Method+" "+what)
			log.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
	return p.clientFor(config), log
}

// took returns the calls since the last time.
func (c *calls) took() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made
	c.made = nil
	return made
}

// pod creates a pod and returns it when it runs. kwok deletes an earlier pod by its name, sometimes only after the new one
// exists; therefore pod creates a pod that disappears again.
func (p *place) pod() *corev1.Pod {
	p.Helper()
	for {
		_, err := p.client.CoreV1().Pods(p.namespace).Create(p.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "db-0"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}},
				TerminationGracePeriodSeconds: new(int64(0))},
		}, metav1.CreateOptions{})
		p.Must(err)
		pods, err := p.c.WaitPods(p.Context(), p.namespace, "", "the pod is ready or gone", func(pods []*corev1.Pod) bool {
			return len(pods) == 0 || cluster.IsReady(pods[0])
		})
		p.Must(err)
		if len(pods) == 1 {
			return pods[0]
		}
	}
}

// gone waits until no pod is left.
func (p *place) gone() {
	p.Helper()
	_, err := p.c.WaitPods(p.Context(), p.namespace, "", "the pod is gone", func(pods []*corev1.Pod) bool { return len(pods) == 0 })
	p.Must(err)
}

// requests returns the existing requests, including terminating ones.
func (p *place) requests() []lifecycle.EvictionRequest {
	p.Helper()
	list, err := p.inJSON.LifecycleV1alpha1().EvictionRequests(p.namespace).List(p.Context(), metav1.ListOptions{})
	p.Must(err)
	if len(list.Items) == 0 {
		return nil
	}
	return list.Items
}

func (p *place) plan(pod *corev1.Pod) move.State {
	p.Helper()
	return move.Encode(fresh(pod, movetest.Began()))
}

// started starts the move of a pod, and returns the result and whether it was saved.
func (p *place) started(m *Method, pod *corev1.Pod) (progress move.Progress, saved bool) {
	p.Helper()
	progress, err := m.Start(p.Context(), pod, movetest.Began(), func(_ context.Context, r move.Record) error {
		expect.Equal(p, "saved", r, move.Record{Method: schemas.MethodEvictionRequest, State: p.plan(pod)})
		saved = true
		return nil
	})
	p.Must(err)
	return progress, saved
}

// canceled cancels the move and checks that it is undone.
func (p *place) canceled(m *Method, pod *corev1.Pod, state move.State) {
	p.Helper()
	got, err := m.Step(p.Context(), state, true, movetest.Began())
	p.Must(err)
	expect.Equal(p, "canceled", got, givenUp(move.Undone, schemas.Deferred, schemas.ReasonTakenBack,
		"the cause of the move is gone; the EvictionRequest "+named(pod)+" was withdrawn"))
}

// named returns the name of the default requester's request for a pod.
func named(pod *corev1.Pod) string { return "rehome-" + string(pod.UID) + "-" + requesterHash }

// requesterHash is the beginning of the SHA-256 sum of [DefaultRequester]. It must not change between releases.
const requesterHash = "a4fa1a8b"

func made(delay time.Duration) move.Progress {
	return move.Progress{Stage: move.Working, Delay: delay}
}

func atWork() move.Progress {
	return move.Progress{Stage: move.Working, Delay: 30 * time.Second}
}

func over() move.Progress { return move.Progress{Stage: move.Done} }

// wentBefore returns the end of a move without a request.
func wentBefore(message string) move.Progress {
	p := givenUp(move.Done, schemas.Rejected, schemas.ReasonPodGone, message)
	p.Message = ""
	return p
}

func givenUp(stage move.Stage, outcome schemas.Outcome, reason schemas.ReasonCode, message string) move.Progress {
	p := move.Progress{Stage: stage, Message: message,
		Refusal: &move.Refusal{Outcome: outcome, Reason: reason, Message: message}}
	if stage == move.Released {
		p.Method = schemas.MethodEvictionRequest
	}
	return p
}

func testAvailable(p *place) {
	client, log := p.recorded()
	pod, m := p.pod(), New(Config{Client: client})
	start := func(what string, after time.Duration, want move.Stage, asked int) {
		p.Helper()
		save := func(context.Context, move.Record) error { return nil }
		got, err := m.Start(p.Context(), pod, movetest.Began().Add(after), save)
		p.Must(err)
		if made := log.took(); got.Stage != want || len(made) != asked {
			p.Errorf("%s: stage %d, want %d; asked %q, want %d", what, got.Stage, want, made, asked)
		}
	}
	start("not served", 0, move.NotApplicable, 1)
	p.Must(p.c.AddEvictionRequests(p.Context()))
	start("served since a moment", absentFor-time.Second, move.NotApplicable, 0)
	start("served", absentFor, move.Working, 1)
}

func testDefinitions(p *place) {
	at := metav1.NewTime(movetest.Began().Local())
	uid := types.UID("0b9e8f5c-5d7b-4f5e-9a52-6a4d3c1e2f10")
	conditions := []metav1.Condition{{Type: "Failed", Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: at,
		Reason: "AwaitingEviction", Message: "m"}}
	wantRequest := lifecycle.EvictionRequest{
		Spec: lifecycle.EvictionRequestSpec{
			Target:    lifecycle.EvictionRequestTarget{Pod: &lifecycle.EvictionRequestPodReference{Name: "db-0", UID: uid}},
			Requester: "example.org/other", Intent: lifecycle.EvictionRequestIntentEviction,
		},
		Status: lifecycle.EvictionRequestStatus{Conditions: conditions, ObservedGeneration: new(int64(1))},
	}
	requests := p.inJSON.LifecycleV1alpha1().EvictionRequests(p.namespace)
	r, err := requests.Create(p.Context(), &lifecycle.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: wantRequest.Spec}, strictly())
	p.Must(err)
	r.Status = wantRequest.Status
	r, err = requests.UpdateStatus(p.Context(), r, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	p.Must(err)
	expect.Equal(p, "request", lifecycle.EvictionRequest{Spec: r.Spec, Status: r.Status}, wantRequest)

	wantEviction := lifecycle.Eviction{
		Spec: lifecycle.EvictionSpec{Target: lifecycle.EvictionTarget{Pod: &lifecycle.EvictionPodReference{Name: "db-0", UID: uid}}},
		Status: lifecycle.EvictionStatus{
			Conditions: conditions, ObservedGeneration: new(int64(1)),
			Requesters:       []lifecycle.Requester{{Name: "example.org/other", Intent: lifecycle.RequesterIntentEviction}},
			TargetResponders: []lifecycle.TargetResponder{{Name: "example.org/r", Priority: new(int32(100000)), State: lifecycle.ResponderStateActive}},
			Responders: []lifecycle.ResponderStatus{{Name: "example.org/r", StartTime: &at, HeartbeatTime: &at, ExpectedCompletionTime: &at,
				CompletionTime: &at, Message: new("m")}},
		},
	}
	evictions := p.inJSON.LifecycleV1alpha1().Evictions(p.namespace)
	e, err := evictions.Create(p.Context(), &lifecycle.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Spec: wantEviction.Spec}, strictly())
	p.Must(err)
	e.Status = wantEviction.Status
	e, err = evictions.UpdateStatus(p.Context(), e, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	p.Must(err)
	expect.Equal(p, "eviction", lifecycle.Eviction{Spec: e.Spec, Status: e.Status}, wantEviction)

	r.Spec.Requester = "example.org/another"
	if _, err := requests.Update(p.Context(), r, metav1.UpdateOptions{}); err == nil {
		p.Error("the requester is not immutable")
	}
}

func testEvicted(p *place) {
	pod := p.pod()
	client, log := p.recorded()
	m := New(Config{Client: client, Wait: func() time.Duration { return 10 * time.Second }})
	state := p.plan(pod)
	log.took()
	state = movetest.Step(p, m, state, 0, made(10*time.Second))
	expect.Equal(p, "calls that make it", log.took(), []string{"POST evictionrequests"})
	requests := p.requests()
	if len(requests) != 1 {
		p.Fatalf("%d requests, want one: %+v", len(requests), requests)
	}
	expect.Equal(p, "spec", requests[0].Spec, lifecycle.EvictionRequestSpec{
		Target:    lifecycle.EvictionRequestTarget{Pod: &lifecycle.EvictionRequestPodReference{Name: "db-0", UID: pod.UID}},
		Requester: "descheduler.rehome.dev/actuator",
		Intent:    lifecycle.EvictionRequestIntentEviction,
	})
	state = movetest.Step(p, m, state, 4*time.Second,
		move.Progress{Stage: move.Working, Delay: 6 * time.Second})
	p.Must(p.controller.reconcile(p.Context()))
	log.took()
	state = movetest.Step(p, m, state, 11*time.Second, atWork())
	path := "evictionrequests/" + named(pod)
	expect.Equal(p, "calls that look", log.took(),
		[]string{"GET " + path, "GET evictions?labelSelector=descheduler.rehome.dev%2Factuator"})
	state = movetest.Step(p, m, state, 26*time.Hour, atWork())
	p.Must(p.controller.evict(p.Context(), pod))
	p.gone()
	p.Must(p.controller.reconcile(p.Context()))
	log.took()
	state = movetest.Step(p, m, state, 27*time.Hour, over())
	expect.Equal(p, "calls that end it", log.took(), []string{"GET " + path, "DELETE " + path})
	expect.Equal(p, "requests", p.requests(), nil)
	movetest.Step(p, m, state, 27*time.Hour, over()) // the previous step was not remembered
}

func testNobodyAnswers(p *place) {
	pod := p.pod()
	client, log := p.recorded()
	m := New(Config{Client: client})
	state := movetest.Step(p, m, p.plan(pod), 0, made(30*time.Second))
	state = movetest.Step(p, m, state, time.Minute-time.Second,
		move.Progress{Stage: move.Working, Delay: time.Second})
	log.took()
	unanswered := givenUp(move.Released, schemas.Deferred, schemas.ReasonTakenBack,
		"no responder answered the EvictionRequest "+named(pod)+" within 1m0s")
	state = movetest.Step(p, m, state, time.Minute, unanswered)
	path := "evictionrequests/" + named(pod)
	expect.Equal(p, "calls that take it back", log.took(), []string{"GET " + path,
		"GET evictions?labelSelector=descheduler.rehome.dev%2Factuator", "PATCH " + path, "DELETE " + path})
	p.untouched(pod)
	// The eviction that follows can be refused. The move is still Released then.
	state = movetest.Step(p, m, state, 2*time.Minute, unanswered)
	expect.Equal(p, "calls when it is taken back", log.took(), nil)
	got, err := m.Step(p.Context(), state, true, movetest.Began().Add(2*time.Minute))
	p.Must(err)
	expect.Equal(p, "canceled step", got, givenUp(move.Undone, schemas.Deferred, schemas.ReasonTakenBack,
		"the cause of the move is gone; the EvictionRequest "+named(pod)+" was withdrawn"))
	p.untouched(pod)
}

// untouched checks that there is no request and that the pod is unchanged.
func (p *place) untouched(pod *corev1.Pod) {
	p.Helper()
	expect.Equal(p, "requests", p.requests(), nil)
	live, err := p.client.CoreV1().Pods(pod.Namespace).Get(p.Context(), pod.Name, metav1.GetOptions{})
	p.Must(err)
	expect.Equal(p, "pod", live, pod)
}

func testFailed(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	state := movetest.Step(p, m, p.plan(pod), 0, made(30*time.Second))
	p.Must(p.controller.reconcile(p.Context()))
	state = movetest.Step(p, m, state, time.Hour, atWork())
	p.Must(p.controller.giveUp(p.Context(), pod))
	movetest.Step(p, m, state, time.Hour, givenUp(move.Released, schemas.Deferred, schemas.ReasonTakenBack,
		"the EvictionRequest "+named(pod)+" failed: NoFurtherResponder"))
	p.untouched(pod)
}

func testCrashAfterCreate(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	planned := p.plan(pod)
	first := movetest.Step(p, m, planned, 0, made(30*time.Second))
	before := p.requests()
	again := movetest.Step(p, New(Config{Client: p.client}), planned, 0, made(30*time.Second))
	expect.Equal(p, "requests", p.requests(), before)
	expect.Equal(p, "remembered", string(again), string(first))
	// For the new process the request is new, so it waits for the whole time.
	again = movetest.Step(p, m, planned, time.Hour, made(30*time.Second))
	again = movetest.Step(p, m, again, time.Hour+time.Minute-time.Second,
		move.Progress{Stage: move.Working, Delay: time.Second})
	movetest.Step(p, m, again, time.Hour+time.Minute, givenUp(move.Released, schemas.Deferred, schemas.ReasonTakenBack,
		"no responder answered the EvictionRequest "+named(pod)+" within 1m0s"))
	p.untouched(pod)
}

// withdrawn withdraws the request for the pod, like a step that is killed before it can remove it.
func (p *place) withdrawn(pod *corev1.Pod) {
	p.Helper()
	_, err := p.inJSON.LifecycleV1alpha1().EvictionRequests(p.namespace).Patch(p.Context(), named(pod), types.MergePatchType,
		[]byte(`{"spec":{"intent":"Withdrawn"}}`), metav1.PatchOptions{})
	p.Must(err)
}

func testCrashAfterWithdrawal(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	state := movetest.Step(p, m, p.plan(pod), 0, made(30*time.Second))
	p.withdrawn(pod)
	movetest.Step(p, m, state, time.Minute, givenUp(move.Released, schemas.Deferred, schemas.ReasonTakenBack,
		"the EvictionRequest "+named(pod)+" was withdrawn"))
	p.untouched(pod)
}

func testGoneBefore(p *place) {
	pod := p.pod()
	client, log := p.recorded()
	m := New(Config{Client: client})
	state := p.plan(pod)
	log.took()
	p.Must(p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), pod.Name, metav1.DeleteOptions{}))
	p.gone()
	p.pod() // another one of its name
	movetest.Step(p, m, state, 0, wentBefore("the pod is gone; another one has its name"))
	expect.Equal(p, "calls", log.took(), []string{"GET evictionrequests/" + named(pod)})
}

func testGoneAfterCrash(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	planned := p.plan(pod)
	movetest.Step(p, m, planned, 0, made(30*time.Second))
	p.Must(p.controller.reconcile(p.Context()))
	_, err := p.client.CoreV1().Pods(p.namespace).Patch(p.Context(), pod.Name, types.MergePatchType,
		[]byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	p.Must(err)
	movetest.Step(p, m, planned, time.Minute, over())
	expect.Equal(p, "requests", p.requests(), nil)
}

func testGoneOtherwise(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	state := movetest.Step(p, m, p.plan(pod), 0, made(30*time.Second))
	_, err := p.client.CoreV1().Pods(p.namespace).Patch(p.Context(), pod.Name, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["rehome.dev/test"]}}`), metav1.PatchOptions{})
	p.Must(err)
	p.Must(p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), pod.Name, metav1.DeleteOptions{}))
	movetest.Step(p, m, state, 2*time.Second, over())
	expect.Equal(p, "requests", p.requests(), nil)
}

func testLeftOver(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	movetest.Step(p, m, p.plan(pod), 0, made(30*time.Second))
	old := p.requests()[0].UID
	p.withdrawn(pod)
	state := movetest.Step(p, m, p.plan(pod), 0,
		move.Progress{Stage: move.Working, Delay: time.Second})
	expect.Equal(p, "requests", p.requests(), nil)
	movetest.Step(p, m, state, time.Second, made(30*time.Second))
	if requests := p.requests(); len(requests) != 1 || requests[0].UID == old {
		p.Errorf("want a new request instead of %s: %+v", old, requests)
	}
}

func testNameTaken(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	r := m.request(schemas.PodRef{Namespace: p.namespace, Name: pod.Name, UID: pod.UID})
	r.Spec.Requester = "example.org/other"
	_, err := p.inJSON.LifecycleV1alpha1().EvictionRequests(p.namespace).Create(p.Context(), r, strictly())
	p.Must(err)
	before := p.requests()
	state := movetest.Step(p, m, p.plan(pod), 50*time.Second,
		move.Progress{Stage: move.Working, Delay: 10 * time.Second})
	movetest.Step(p, m, state, time.Minute, givenUp(move.Released, schemas.Deferred, schemas.ReasonTakenBack,
		"the EvictionRequest "+named(pod)+" exists and does not terminate"))
	p.canceled(m, pod, state)
	expect.Equal(p, "requests", p.requests(), before)
}

func testRemovedBySomebody(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	state := movetest.Step(p, m, p.plan(pod), 0, made(30*time.Second))
	p.Must(p.inJSON.LifecycleV1alpha1().EvictionRequests(p.namespace).Delete(p.Context(), named(pod), metav1.DeleteOptions{}))
	movetest.Step(p, m, state, time.Minute, givenUp(move.Undone, schemas.Deferred, schemas.ReasonTakenBack,
		"another client removed the EvictionRequest "+named(pod)))
	p.untouched(pod)
}

func testCancel(p *place) {
	pod := p.pod()
	client, log := p.recorded()
	m := New(Config{Client: client})
	state := p.plan(pod)
	p.canceled(m, pod, state) // before it was made
	state = movetest.Step(p, m, state, 0, made(30*time.Second))
	p.Must(p.controller.reconcile(p.Context()))
	log.took()
	p.canceled(m, pod, state)
	path := "evictionrequests/" + named(pod)
	expect.Equal(p, "calls", log.took(), []string{"GET " + path, "PATCH " + path, "DELETE " + path})
	p.canceled(m, pod, state)
	p.untouched(pod)
}

func testDryRun(p *place) {
	pod := p.pod()
	client, log := p.recorded()
	m := New(Config{Client: client, DryRun: true})
	state := p.plan(pod)
	log.took()
	movetest.Step(p, m, state, 0, over())
	expect.Equal(p, "calls", log.took(), []string{"POST evictionrequests?dryRun=All"})
	p.untouched(pod)

	// The earlier request must not change.
	real := New(Config{Client: p.client})
	state = movetest.Step(p, real, state, 0, made(30*time.Second))
	before := p.requests()
	p.canceled(m, pod, state)
	movetest.Step(p, m, state, time.Minute, givenUp(move.Released, schemas.Deferred, schemas.ReasonTakenBack,
		"no responder answered the EvictionRequest "+named(pod)+" within 1m0s"))
	expect.Equal(p, "requests", p.requests(), before)
	bad := New(Config{Client: client, DryRun: true, Requester: "node.kubernetes.io/actuator"})
	got, err := bad.Step(p.Context(), p.plan(pod), false, movetest.Began())
	p.Must(err)
	if got.Stage != move.Released {
		p.Errorf("what would be refused: %+v", got)
	}
}

func testInvalid(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client, Requester: "node.kubernetes.io/actuator"})
	got, err := m.Step(p.Context(), p.plan(pod), false, movetest.Began())
	p.Must(err)
	expect.Equal(p, "step", got, givenUp(move.Released, schemas.Rejected, schemas.ReasonInvalid, got.Message))
	if !strings.Contains(got.Message, "spec.requester") {
		p.Errorf("message %q does not name the invalid field", got.Message)
	}
	p.untouched(pod)
}

func testForbidden(p *place) {
	pod := p.pod()
	state := p.plan(pod)
	config, err := p.c.UserConfig(nobody)
	p.Must(err)
	client, pods := p.clientFor(config), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}
	p.Must(p.c.Grant(p.Context(), cluster.UserSubject(nobody), p.namespace, pods))
	expect.Eventually(p, "the right to look at pods", func() bool {
		_, err := client.CoreV1().Pods(p.namespace).Get(p.Context(), pod.Name, metav1.GetOptions{})
		return err == nil
	})
	m := New(Config{Client: client})
	movetest.Step(p, m, state, 0, givenUp(move.Released, schemas.Deferred, schemas.ReasonForbidden,
		"create eviction request "+p.namespace+"/"+named(pod)+`: evictionrequests.lifecycle.k8s.io is forbidden: User "nobody" cannot create resource "evictionrequests"`+
			` in API group "lifecycle.k8s.io" in the namespace "`+p.namespace+`"`))
	p.untouched(pod)

	// There is nothing to clean up for a user without the right to create requests.
	p.Must(p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), pod.Name, metav1.DeleteOptions{}))
	p.gone()
	movetest.Step(p, m, state, time.Second, wentBefore("the pod is gone"))
}

func testRefused(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("training")}
	got, saved := p.started(m, pod)
	expect.Equal(p, "saved", saved, false)
	expect.Equal(p, "start", got, givenUp(move.Released, schemas.Rejected, schemas.ReasonInvalid,
		"no EvictionRequest for a pod of a scheduling group: the API does not serve them"))
}

func testForgotten(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	movetest.Step(p, m, p.plan(pod), 0, made(30*time.Second))
	p.Must(p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), pod.Name, metav1.DeleteOptions{}))
	expect.Eventually(p, "the garbage collector removes the request", func() bool { return len(p.requests()) == 0 })
}

func testNotServedAnyMore(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	state := p.plan(pod)
	for _, plural := range []string{"evictionrequests", "evictions"} {
		p.Must(p.client.Discovery().RESTClient().Delete().
			AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + plural + "." + lifecycle.GroupName).
			Do(p.Context()).Error())
	}
	expect.Eventually(p, "the kinds are not served", func() bool {
		_, err := p.client.Discovery().ServerResourcesForGroupVersion(version)
		return err != nil
	})
	got, err := m.Step(p.Context(), state, false, movetest.Began())
	p.Must(err)
	expect.Equal(p, "step", got, givenUp(move.Released, schemas.Deferred, schemas.ReasonAPIUnavailable, got.Message))
	next, saved := p.started(m, pod)
	expect.Equal(p, "start", next, move.Progress{Stage: move.NotApplicable})
	expect.Equal(p, "saved", saved, false)
}

func testAPIServerAway(p *place) {
	pod, m := p.pod(), New(Config{Client: p.client})
	p.Must(p.c.AddEvictionRequests(p.Context()))
	state := p.plan(pod)
	p.Must(p.c.StopAPIServer())
	if got, err := m.Step(p.Context(), state, false, movetest.Began()); err == nil {
		p.Errorf("a step without an API server: %+v", got)
	}
	p.Must(p.c.StartAPIServer(p.Context()))
}
