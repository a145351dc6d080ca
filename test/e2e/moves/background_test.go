package moves

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move/background"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// takenOver makes a webhook answer every eviction of the scene as if it carried it out itself.
func takenOver(s *scene.Scene) {
	s.T.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{
			Code: http.StatusTooManyRequests, Message: "Eviction triggered evacuation of " + review.Request.Name,
		}}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // a failed write means that the API server is gone
	}))
	s.T.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	webhook(s, admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: ca}, s.Namespace)
}

// webhook makes the API server call a webhook for the evictions in the namespaces, until end.
func webhook(s *scene.Scene, at admissionregistrationv1.WebhookClientConfig, namespaces ...string) (end func()) {
	s.T.Helper()
	hooks := s.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(s.T.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "evictions.example.org", ClientConfig: at,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces},
			}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
			}},
		}},
	}, metav1.CreateOptions{})
	s.T.Must(err)
	end = func() {
		if err := hooks.Delete(context.WithoutCancel(s.T.Context()), s.Namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.T.Error(err)
		}
	}
	s.T.Cleanup(end)
	return end
}

func evictedInTheBackground(t *testing.T) {
	s := scene.New(t, 2)
	takenOver(s)
	s.AddSingle("api", func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{background.RequestOnly: ""}
	})
	old, workload := s.PodsOf("api")[0], workload(s, "api")
	waitRefused(s, old)
	events := follow(s, s.Policy())
	s.Taint(s.Nodes[0], "dedicated")
	verdicts := events.WaitVerdicts("the move is begun", func(v []schemas.Verdict) bool { return len(v) > 0 })
	want := verdict{schemas.Requested, schemas.ReasonBackgroundAccepted, schemas.MethodBackground, verdicts[0].Message}
	if got := short(verdicts); len(got) != 1 || got[0] != want {
		t.Errorf("verdicts %+v, want one, %s by %s", got, want.outcome, want.method)
	}

	// The pod goes when the webhook releases it, and not before.
	<-time.After(scene.CalmTime)
	onlyPod(s, old)
	if ends := events.Settlements(); len(ends) != 0 {
		t.Errorf("settled before the pod went: %s", scene.Summary(ends))
	}
	s.T.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(t.Context(), old.Name, *metav1.NewPreconditionDeleteOptions(string(old.UID))))
	end := waitSettled(s, events)
	s.WaitPlaced("api", map[string]int{s.Nodes[1]: 1})
	checkSettled(s, end, schemas.ReasonReplaced, schemas.MethodBackground, workload, s.PodsOf("api")[0])
	if n := len(scene.WithOutcome(schemas.Requested, events.Verdicts())); n != 1 || len(s.Evictions()) != 0 {
		t.Errorf("%d moves were begun, and evicted %v; want one, and none", n, s.Evictions())
	}
}

// waitRefused waits until the API server calls the webhook for evictions, which it tests with dry runs.
func waitRefused(s *scene.Scene, pod corev1.Pod) {
	s.T.Helper()
	expect.EventuallyWithState(s.T, "the webhook is asked", func() (bool, string) {
		err := s.Client.PolicyV1().Evictions(s.Namespace).Evict(s.T.Context(), &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: s.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
		return err != nil, fmt.Sprint(err)
	})
}
