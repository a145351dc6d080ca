package background_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/move/background"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/movetest"
)

// TestWebhookEvictions shares one control plane among its subtests. It has a real webhook that takes over
// the evictions of pods labeled vm=true, like KubeVirt. The subtests move the pods in place of KubeVirt.
func TestWebhookEvictions(t *testing.T) {
	c := clustertest.New(t, cluster.Options{})
	if _, err := c.AddNodes(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	takeOver(t, c.Client())
	var numbers atomic.Int32
	for _, tt := range []struct {
		name string
		test func(*place)
	}{
		{"the answer of a webhook is accepted, however often it is given", testWebhookAnswers},
		{"a budget's answer is not accepted", testBudgetAnswers},
		{"a move is over when the pod goes", testPodGoes},
		{"a move is over when the pod ends", testPodEnds},
		{"a recreated pod is not the moved one", testPodMadeAnew},
		{"a move that does not begin is given up", testNobodyBegins},
		{"a move that takes too long is given up", testTooLong},
		{"a move without its annotation is given up", testAnnotationTakenAway},
		{"a pod without the opt-in annotation is given up", testMarkTakenAway},
		{"an API server that does not answer settles nothing", testNoAnswer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &place{T: expect.T{TB: t}, c: c, client: c.Client(), namespace: fmt.Sprintf("place-%d", numbers.Add(1))}
			p.Must(c.AddNamespace(t.Context(), p.namespace))
			tt.test(p)
		})
	}
}

// takeOver makes the API server call a webhook about evictions.
func takeOver(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		pod, err := client.CoreV1().Pods(review.Request.Namespace).Get(r.Context(), review.Request.Name, metav1.GetOptions{})
		if err == nil && pod.Labels["vm"] == "true" {
			review.Response.Allowed = false
			review.Response.Result = &metav1.Status{Code: http.StatusTooManyRequests,
				Message: fmt.Sprintf("Eviction triggered evacuation of VMI \"%s/%s\"", pod.Namespace, pod.Name)}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Errorf("webhook: %v", err)
		}
	}))
	t.Cleanup(webhook.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "evictions"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name:                    "evictions.example.org",
				ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &webhook.URL, CABundle: ca},
				SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
				AdmissionReviewVersions: []string{"v1"},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"pods/eviction"}},
				}},
			}},
		}, metav1.CreateOptions{})
	expect.Must(t, err)
}

// place is the namespace of one subtest.
type place struct {
	expect.T
	c         *cluster.Cluster
	client    kubernetes.Interface
	namespace string
}

// vm creates a pod whose evictions are taken over, and returns it when it runs.
func (p *place) vm() *corev1.Pod {
	p.Helper()
	p.create()
	pods, err := p.c.WaitPods(p.Context(), p.namespace, "", "the pod is ready", func(pods []*corev1.Pod) bool {
		return len(pods) == 1 && cluster.IsReady(pods[0])
	})
	p.Must(err)
	return pods[0]
}

func (p *place) create() {
	p.Helper()
	_, err := p.client.CoreV1().Pods(p.namespace).Create(p.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "vm", Labels: map[string]string{"vm": "true"},
			Annotations: map[string]string{background.RequestOnly: ""}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}},
			TerminationGracePeriodSeconds: new(int64(0))},
	}, metav1.CreateOptions{})
	p.Must(err)
}

func (p *place) evict(pod *corev1.Pod, dryRun ...string) error {
	return p.client.CoreV1().RESTClient().Post().MaxRetries(0).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SubResource("eviction").Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun}}).
		Do(p.Context()).Error()
}

// annotate sets an annotation of the pod to "kubevirt", or removes it.
func (p *place) annotate(pod *corev1.Pod, key string, present bool) {
	p.Helper()
	value := "null"
	if present {
		value = `"kubevirt"`
	}
	_, err := p.client.CoreV1().Pods(pod.Namespace).Patch(p.Context(), pod.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, value), metav1.PatchOptions{})
	p.Must(err)
}

// start starts the move of pod and returns the saved record.
func (p *place) start(m *background.Method, pod *corev1.Pod) move.State {
	p.Helper()
	var saved move.Record
	got, err := m.Start(p.Context(), pod, movetest.Began(), func(_ context.Context, r move.Record) error { saved = r; return nil })
	p.Must(err)
	want := move.Progress{Method: schemas.MethodBackground, Delay: 10 * time.Second}
	if !reflect.DeepEqual(got, want) || saved.Method != schemas.MethodBackground {
		p.Fatalf("got %+v, want %+v; saved %+v", got, want, saved)
	}
	return saved.State
}

func working() move.Progress {
	return move.Progress{Stage: move.Working, Delay: 10 * time.Second}
}

func undone(message string) move.Progress {
	return move.Progress{Stage: move.Undone, Message: message,
		Refusal: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonTakenBack, Message: message}}
}

func testWebhookAnswers(p *place) {
	pod := p.vm()
	expect.Eventually(p, "the webhook is asked", func() bool { return background.Accepted(pod, p.evict(pod, metav1.DryRunAll)) })
	for range 2 {
		if err := p.evict(pod); !background.Accepted(pod, err) {
			p.Errorf("not accepted: %v", err)
		}
	}
	movetest.Step(p, background.New(p.client), p.start(background.New(nil), pod), 0, working())
}

func testBudgetAnswers(p *place) {
	pod := p.vm()
	p.Must(p.label(pod, "false"))
	_, err := p.client.PolicyV1().PodDisruptionBudgets(p.namespace).Create(p.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "vm"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"vm": "false"}}},
	}, metav1.CreateOptions{})
	p.Must(err)
	err = p.evict(pod)
	if !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || background.Accepted(pod, err) {
		p.Errorf("accepted, or not a budget's answer: %v", err)
	}
}

func (p *place) label(pod *corev1.Pod, value string) error {
	_, err := p.client.CoreV1().Pods(pod.Namespace).Patch(p.Context(), pod.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"vm":%q}}}`, value), metav1.PatchOptions{})
	return err
}

func testPodGoes(p *place) {
	pod, m := p.vm(), background.New(p.client)
	state := p.start(m, pod)
	state = movetest.Step(p, m, state, time.Second, working())
	p.annotate(pod, background.EvictionInProgress, true)
	state = movetest.Step(p, m, state, time.Minute, working())
	again := movetest.Step(p, m, state, time.Minute, working())
	if string(again) != string(state) {
		p.Errorf("a step that is repeated remembers %s, was %s", again, state)
	}
	state = movetest.Step(p, m, state, background.Finish-time.Second, working())
	p.Must(p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), pod.Name, metav1.DeleteOptions{}))
	_, err := p.c.WaitPods(p.Context(), p.namespace, "", "the pod is gone", func(pods []*corev1.Pod) bool { return len(pods) == 0 })
	p.Must(err)
	movetest.Step(p, m, state, 2*time.Hour, move.Progress{Stage: move.Done})
}

func testPodEnds(p *place) {
	pod, m := p.vm(), background.New(p.client)
	state := p.start(m, pod)
	_, err := p.client.CoreV1().Pods(p.namespace).Patch(p.Context(), pod.Name, types.MergePatchType,
		[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	p.Must(err)
	movetest.Step(p, m, state, time.Minute, move.Progress{Stage: move.Done})
}

func testPodMadeAnew(p *place) {
	pod, m := p.vm(), background.New(p.client)
	state := p.start(m, pod)
	p.Must(p.client.CoreV1().Pods(p.namespace).Delete(p.Context(), pod.Name, metav1.DeleteOptions{}))
	_, err := p.c.WaitPods(p.Context(), p.namespace, "", "the pod is gone", func(pods []*corev1.Pod) bool { return len(pods) == 0 })
	p.Must(err)
	p.create() // without a wait: kwok may delete the old pod once more, by its name
	movetest.Step(p, m, state, time.Minute, move.Progress{Stage: move.Done})
}

func testNobodyBegins(p *place) {
	pod, m := p.vm(), background.New(p.client)
	state := p.start(m, pod)
	state = movetest.Step(p, m, state, background.Begin-time.Second, working())
	message := "the pod does not have the annotation descheduler.alpha.kubernetes.io/eviction-in-progress, %s after the eviction call"
	movetest.Step(p, m, state, background.Begin, undone(fmt.Sprintf(message, "10m0s")))
}

func testTooLong(p *place) {
	pod, m := p.vm(), background.New(p.client)
	p.annotate(pod, background.EvictionInProgress, true)
	state := p.start(m, pod)
	state = movetest.Step(p, m, state, background.Finish-time.Second, working())
	movetest.Step(p, m, state, background.Finish, undone("the pod is still there 6h0m0s after the eviction call"))
}

func testAnnotationTakenAway(p *place) {
	pod, m := p.vm(), background.New(p.client)
	state := p.start(m, pod)
	p.annotate(pod, background.EvictionInProgress, true)
	state = movetest.Step(p, m, state, time.Minute, working())
	p.annotate(pod, background.EvictionInProgress, false)
	movetest.Step(p, m, state, time.Hour,
		undone("the annotation descheduler.alpha.kubernetes.io/eviction-in-progress was taken away; the pod stays"))
}

func testMarkTakenAway(p *place) {
	pod, m := p.vm(), background.New(p.client)
	state := p.start(m, pod)
	p.annotate(pod, background.RequestOnly, false)
	movetest.Step(p, m, state, time.Minute,
		undone("the pod does not have the annotation descheduler.alpha.kubernetes.io/request-evict-only any more"))
}

func testNoAnswer(p *place) {
	pod, m := p.vm(), background.New(p.client)
	state := p.start(m, pod)
	ctx, cancel := context.WithCancel(p.Context())
	cancel()
	if got, err := m.Step(ctx, state, false, movetest.Began().Add(24*time.Hour)); err == nil {
		p.Errorf("no error, but %+v", got)
	}
	if got, err := m.Step(p.Context(), move.State("{"), false, movetest.Began()); err == nil {
		p.Errorf("invalid state: no error, but %+v", got)
	}
}
