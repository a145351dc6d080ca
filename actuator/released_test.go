package actuator

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestReleasedRestartNotEvicted(t *testing.T) {
	for _, c := range []struct {
		name      string
		method    schemas.Method
		otherwise policy.RestartOtherwise
		wait      bool
	}{
		{"the_policy_skips_after_a_restart", schemas.MethodRestart, policy.OtherwiseSkip, false},
		{"the_policy_skips_after_a_surge", schemas.MethodSurge, policy.OtherwiseSkip, false},
		{"another_restart_moves_the_pod", schemas.MethodRestart, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := before("1", time.Second)
			r.Settled, r.Method, r.State = false, c.method, move.State("{}")
			m := newMemory()
			tm := recalled(t, m, policy.Policy{Restart: policy.Restart{Workloads: policy.RestartAll, Otherwise: c.otherwise}})
			x := &inFlight{record: r, at: keysOf(r.Intent, tm.cfg.View), reported: true}
			tm.moves.add(x, tm.cfg.View)
			refusal := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartPaused, Message: "spec.paused is true", Wait: c.wait}
			// There is no API server: reading or evicting the pod would fail the test.
			tm.step(t.Context(), x, letsGo{refusal: refusal}, r.State, false)
			tm.publishing.Wait()

			want := r.Intent.Verdict(schemas.Settled, schemas.ReasonTakenBack, "spec.paused is true")
			want.Method, want.Workload, want.Settlement = c.method, &api, &schemas.Settlement{Seconds: 1}
			expect.Equal(t, "verdicts", len(m.published), 1)
			expect.Equal(t, "verdict", schematest.Decode[schemas.Verdict](t, m.published[0]), want)
			expect.Equal(t, "moves in flight", len(tm.moves.all), 0)
		})
	}
}

// letsGo is a method that releases a move at its next step.
type letsGo struct {
	move.Starter // nil: each move has begun
	refusal      *move.Refusal
}

func (l letsGo) Step(_ context.Context, _ move.State, canceled bool, _ time.Time) (move.Progress, error) {
	if canceled {
		return move.Progress{Stage: move.Undone, Message: "canceled"}, nil
	}
	return move.Progress{Stage: move.Released, Refusal: l.refusal}, nil
}

// The first change of a move whose answer was lost needs every gate again.
func TestPlannedStepGates(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		state       string
		want        []string // the steps
		message     string   // of the end, if the move ends
	}{
		"protected_by_now":  {map[string]string{"karpenter.sh/do-not-disrupt": "true"}, `{"phase":"Planned"}`, []string{"cancel"}, "karpenter.sh/do-not-disrupt"},
		"still_unprotected": {nil, `{"phase":"Planned"}`, []string{"step"}, ""},
		"changed_already":   {map[string]string{"karpenter.sh/do-not-disrupt": "true"}, `{"phase":"Waiting"}`, []string{"step"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := before("1", time.Second)
			r.Settled, r.Method, r.State = false, schemas.MethodBackground, move.State(c.state)
			pod := ownedPod(r.Intent.Pod.Name, r.Intent.Pod.UID, "api")
			pod.Annotations = c.annotations
			m := newMemory()
			tm := recalled(t, m, enabling(policy.Rate{}, r.Intent.Strategy))
			tm.cfg.Client = serving(pod).client(t)
			x := &inFlight{record: r, at: keysOf(r.Intent, tm.cfg.View), reported: true}
			tm.moves.add(x, tm.cfg.View)
			method := &stepped{began: time.Now()}
			tm.step(t.Context(), x, method, r.State, false)
			tm.publishing.Wait()
			var calls []string
			for _, call := range method.calls {
				word, _, _ := strings.Cut(call, " ")
				calls = append(calls, word)
			}
			expect.Equal(t, "steps", calls, c.want)
			var messages []string
			for _, e := range m.published {
				messages = append(messages, schematest.Decode[schemas.Verdict](t, e).Message)
			}
			if c.message == "" {
				expect.Equal(t, "verdicts", messages, nil)
			} else if len(messages) != 1 || !strings.Contains(messages[0], c.message) {
				t.Errorf("verdicts: got %q, want one with %q", messages, c.message)
			}
		})
	}
}

// ownedPod returns a pod of a ReplicaSet with that name on worker-1.
func ownedPod(name string, uid types.UID, owner string) *corev1.Pod {
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{
		Namespace: "web", Name: name, UID: uid,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: "rs", Controller: new(true)}},
	}, Spec: corev1.PodSpec{NodeName: "worker-1"}}
}

// created is the answer to an eviction.
func created() *http.Response {
	return response(http.StatusCreated, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
	})
}

// restarting returns an actuator that restarts Deployments, if it can.
func restarting(client kubernetes.Interface) *Actuator {
	p := enabling(policy.Rate{}, wish().Strategy)
	p.Restart.Workloads = policy.RestartAll
	return New(Config{Client: client, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }, Policy: p})
}

// If a right for a method is missing, pods must move by the next method.
func TestMissingRight(t *testing.T) {
	maintained := wish()
	maintained.Strategy = schemas.MaintenanceStrategy
	for name, intent := range map[string]Intent{"falls_through_to_eviction": wish(), "of_a_maintenance_is_reported_too": maintained} {
		t.Run(name, func(t *testing.T) {
			a := mayNotRestart(t)
			v, err := a.execute(t.Context(), intent, unsaved)
			expect.Equal(t, "error", err, nil)
			expect.Equal(t, "outcome", v.Outcome, schemas.Evicted)
			if v.Instead == nil || v.Instead.Reason != schemas.ReasonForbidden {
				t.Errorf("instead of %+v, want a method that was forbidden", v.Instead)
			}
			if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "method rollout-restart: a right is missing") {
				t.Errorf("readiness: got %v, want that it names the method", err)
			}
		})
	}
	t.Run("is_no_fault_if_the_method_is_disabled", func(t *testing.T) {
		a := mayNotRestart(t)
		metric := func() float64 {
			return testutil.ToFloat64(a.metrics.rights.WithLabelValues(string(schemas.MethodRestart)))
		}
		_, err := a.execute(t.Context(), wish(), unsaved)
		expect.Equal(t, "error", err, nil)
		expect.Equal(t, "metric", metric(), 1)
		a.SetPolicy(enabling(policy.Rate{}, wish().Strategy))
		expect.Equal(t, "readiness", a.Ready(), nil)
		expect.Equal(t, "metric", metric(), 0)
		// An execution that began before the change ends.
		a.noteRight(move.Refused(schemas.MethodRestart, &move.Refusal{Reason: schemas.ReasonForbidden}))
		expect.Equal(t, "readiness later", a.Ready(), nil)
	})
}

// mayNotRestart returns an actuator that lacks the rights to restart Deployments, as the policy wants.
func mayNotRestart(t *testing.T) *Actuator {
	t.Helper()
	pod := ownedPod("api-0", "uid-0", "api")
	return restarting(wire(func(r *http.Request) (*http.Response, error) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/apis/apps/"):
			return failure(http.StatusForbidden, metav1.StatusReasonForbidden), nil
		case r.Method == http.MethodGet:
			return response(http.StatusOK, pod), nil
		}
		return created(), nil
	}).client(t))
}

// Users choose names that the API server does not check. A pod with such a name must not hold up others.
func TestInvalidNamesInPod(t *testing.T) {
	for _, c := range []struct{ name, owner, above, claim string }{
		{"of_its_controller", "a/b", "", ""}, {"of_its_Deployment", "api", "..", ""}, {"of_a_claim", "api", "api", "a/b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := ownedPod("api-0", "uid-0", c.owner)
			if c.claim != "" {
				fixtures.Claims(c.claim)(pod)
			}
			one := int32(1)
			client := wire(func(r *http.Request) (*http.Response, error) {
				switch {
				case strings.Contains(r.URL.Path, "/replicasets/"):
					return response(http.StatusOK, &appsv1.ReplicaSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}, ObjectMeta: metav1.ObjectMeta{
						Namespace: "web", Name: "api", UID: "rs",
						OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: c.above, UID: "d", Controller: new(true)}},
					}}), nil
				case strings.Contains(r.URL.Path, "/deployments/"):
					return response(http.StatusOK, &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{
						Namespace: "web", Name: "api", UID: "d", Annotations: map[string]string{policy.RestartMark: "true"},
					}, Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{}}}), nil
				case strings.Contains(r.URL.Path, "/poddisruptionbudgets"):
					return response(http.StatusOK, &policyv1.PodDisruptionBudgetList{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudgetList"}}), nil
				case strings.Contains(r.URL.Path, "/horizontalpodautoscalers"):
					return response(http.StatusOK, &autoscalingv2.HorizontalPodAutoscalerList{
						TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscalerList"}}), nil
				case r.Method == http.MethodGet:
					return response(http.StatusOK, pod), nil
				}
				return created(), nil
			}).client(t)
			a := restarting(client)
			v, err := a.execute(t.Context(), wish(), unsaved)
			expect.Equal(t, "error", err, nil)
			if v.Outcome == "" {
				t.Error("there is no verdict")
			}
		})
	}
}
