package e2e

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/expect"
)

// condition is a Deployment that cannot create a replacement first.
type condition struct {
	change func(*scene, *appsv1.Deployment) // before its creation
	after  func(*scene)                     // when its pod is ready
	want   verdict                          // if the policy skips such pods
}

// conditions returns all obstacles, by the name of the Deployment.
func conditions() map[string]condition {
	restart := func(o schemas.Outcome, r schemas.ReasonCode, message string) verdict {
		return verdict{o, r, schemas.MethodRestart, message}
	}
	const d, r = schemas.Deferred, schemas.Rejected
	return map[string]condition{
		"paused": {
			after: func(s *scene) { s.patchDeployment("paused", `{"spec":{"paused":true}}`) },
			want:  restart(d, schemas.ReasonRestartPaused, "spec.paused is true"),
		},
		"recreate": {
			change: func(_ *scene, d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType },
			want: restart(r, schemas.ReasonRestartStrategy,
				"spec.strategy.type is Recreate: it stops its pods before it starts new ones"),
		},
		"nosurge": {
			change: func(_ *scene, d *appsv1.Deployment) { d.Spec.Strategy.RollingUpdate = rolling(0, 1) },
			want: restart(r, schemas.ReasonRestartStrategy,
				"maxSurge comes to 0 of 1 replicas: it starts no pod before it stops one"),
		},
		"stopsfirst": {
			change: func(_ *scene, d *appsv1.Deployment) { d.Spec.Strategy.RollingUpdate = rolling(1, 1) },
			want: restart(r, schemas.ReasonRestartStrategy,
				"maxUnavailable comes to 1 of 1 replicas: a rollout may stop a pod before its replacement is available"),
		},
		"unavailable": {
			change: func(_ *scene, d *appsv1.Deployment) { d.Spec.MinReadySeconds = 500 },
			want:   restart(d, schemas.ReasonRestartUnhealthy, "0 of 1 pods are available"),
		},
		"stuck": {
			change: func(_ *scene, d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = new(int32(1)) },
			after: func(s *scene) {
				s.nowhere("stuck")
				s.progressing("stuck", corev1.ConditionFalse)
			},
			want: restart(d, schemas.ReasonRestartUnhealthy, "its last rollout got stuck: Progressing is False, "+
				"ProgressDeadlineExceeded: ReplicaSet \"SET\" has timed out progressing."),
		},
		"rolling": {
			after: func(s *scene) { s.nowhere("rolling") },
			want: restart(d, schemas.ReasonRestartRunning,
				"a rollout is in progress: 1 of 1 pods are of the newest template, 2 are there"),
		},
		"volume": {
			change: func(s *scene, d *appsv1.Deployment) { s.claim("data", &d.Spec.Template.Spec) },
			want: restart(r, schemas.ReasonRestartVolume,
				"the PersistentVolumeClaim data is ReadWriteOnce: two pods on two nodes cannot use it"),
		},
		"cooldown": {
			change: func(_ *scene, d *appsv1.Deployment) {
				d.Annotations = map[string]string{"rehome.dev/restarted-at": time.Now().UTC().Format(time.RFC3339Nano)}
			},
			want: restart(d, schemas.ReasonRestartCooldown, "it was restarted at TIME, and is not restarted again before TIME"),
		},
	}
}

// evictedInstead has a Deployment for every condition on one node.
func evictedInstead(t *testing.T) {
	s, events := playConditions(t, "Evict")
	want := map[string]schemas.Verdict{}
	for name, c := range conditions() {
		want[name] = schemas.Verdict{
			Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Message: "evicted from " + s.nodes[0],
			Method:  schemas.MethodEviction,
			Instead: &schemas.Instead{Method: c.want.method, Reason: c.want.reason, Message: c.want.message},
		}
	}
	s.moved(0, len(want))
	got := map[string]schemas.Verdict{}
	for _, v := range events.until("all have a verdict", func(v []schemas.Verdict) bool { return len(v) >= len(want) }) {
		seen := schemas.Verdict{Outcome: v.Outcome, Reason: v.Reason, Message: v.Message, Method: v.Method}
		if v.Instead != nil {
			seen.Instead = &schemas.Instead{Method: v.Instead.Method, Reason: v.Instead.Reason, Message: s.plain(v, v.Instead.Message)}
		}
		got[deploymentOf(v)] = seen
	}
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s\n got %+v %+v\nwant %+v %+v", name, got[name], got[name].Instead, want[name], want[name].Instead)
		}
	}
	s.noRestarts()
}

// skipped uses the same Deployments, and checks that nothing moves.
func skipped(t *testing.T) {
	s, events := playConditions(t, "Skip")
	want := map[string]verdict{}
	for name, c := range conditions() {
		c.want.method = ""
		want[name] = c.want
	}
	got := map[string]verdict{}
	events.until("all have a verdict", func(list []schemas.Verdict) bool {
		for _, v := range list {
			got[deploymentOf(v)] = verdict{v.Outcome, v.Reason, v.Method, s.plain(v, v.Message)}
		}
		return len(got) >= len(want)
	})
	if !maps.Equal(got, want) {
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("%s\n got %+v\nwant %+v", name, got[name], want[name])
			}
		}
	}
	<-time.After(calm)
	if asked := append(s.evictions(), s.audited(429)...); len(asked) != 0 {
		t.Errorf("%v would be evicted, want none", asked)
	}
	s.noRestarts()
}

// playConditions creates a Deployment for every condition on one node, and taints the node.
func playConditions(t *testing.T, otherwise string) (*scene, *recording) {
	t.Helper()
	s := newScene(t, 2)
	for name, c := range conditions() {
		s.deploy(name, func(d *appsv1.Deployment) {
			if c.change != nil {
				c.change(s, d)
			}
		})
		if name != "unavailable" {
			s.available(name)
		}
		if c.after != nil {
			c.after(s)
		}
	}
	events := s.follow(s.policy("restart: {workloads: All, otherwise: "+otherwise+"}", noStorm))
	s.taint(s.nodes[0], "dedicated")
	return s, events
}

// noRestarts checks that rehome has not changed the Deployments.
func (s *scene) noRestarts() {
	s.t.Helper()
	log, err := s.cluster.Audit(s.t.Context())
	s.t.Must(err)
	for _, e := range log {
		if e.Namespace == s.namespace && e.Resource == "deployments" && strings.HasPrefix(e.UserAgent, "rehome") {
			s.t.Errorf("deployment %s was changed: %s %s", e.Name, e.Verb, e.Object)
		}
	}
}

// plain returns a message about the Deployment of a verdict without its name, times, and names that differ between runs.
func (s *scene) plain(v schemas.Verdict, message string) string {
	rest, named := strings.CutPrefix(message, "deployment "+s.namespace+"/"+deploymentOf(v)+": ")
	if !named {
		return message
	}
	words := strings.Fields(rest)
	for i, w := range words {
		if _, err := time.Parse(time.RFC3339, strings.TrimSuffix(w, ",")); err == nil {
			words[i] = "TIME" + w[len(strings.TrimSuffix(w, ",")):]
		}
		if strings.HasPrefix(w, `"`+deploymentOf(v)+"-") {
			words[i] = `"SET"`
		}
	}
	return strings.Join(words, " ")
}

func rolling(surge, unavailable int32) *appsv1.RollingUpdateDeployment {
	return &appsv1.RollingUpdateDeployment{
		MaxSurge: new(intstr.FromInt32(surge)), MaxUnavailable: new(intstr.FromInt32(unavailable)),
	}
}

func (s *scene) patchDeployment(name, patch string) {
	s.t.Helper()
	_, err := s.client.AppsV1().Deployments(s.namespace).Patch(
		s.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	s.t.Must(err)
	expect.EventuallyWithState(s.t, "its controller has seen the change of "+name, func() (bool, string) {
		d := s.live(name)
		return d.Status.ObservedGeneration >= d.Generation, fmt.Sprint(d.Status)
	})
}

// nowhere begins a rollout whose pod is unschedulable.
func (s *scene) nowhere(name string) {
	s.t.Helper()
	s.patchDeployment(name, `{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"yes"}}}}}`)
	expect.EventuallyWithState(s.t, "a pod of "+name+" waits for a node", func() (bool, string) {
		d := s.live(name)
		return d.Status.Replicas == 2 && d.Status.UpdatedReplicas == 1, fmt.Sprint(d.Status)
	})
}

// progressing waits until the condition Progressing of a Deployment has a status.
func (s *scene) progressing(name string, want corev1.ConditionStatus) {
	s.t.Helper()
	expect.EventuallyWithState(s.t, fmt.Sprintf("Progressing of %s is %s", name, want), func() (bool, string) {
		conditions := s.live(name).Status.Conditions
		return slices.ContainsFunc(conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentProgressing && c.Status == want
		}), fmt.Sprint(conditions)
	})
}

// claim creates a ReadWriteOnce claim with a volume, and adds it to a pod.
func (s *scene) claim(name string, pod *corev1.PodSpec) {
	s.t.Helper()
	volume, err := s.cluster.AddClaim(s.t.Context(), s.namespace, name, corev1.ReadWriteOnce)
	s.t.Must(err)
	pod.Volumes = append(pod.Volumes, volume)
}

// autoscaler creates a HorizontalPodAutoscaler for a Deployment with at most three replicas.
func (s *scene) autoscaler(deployment string) {
	s.t.Helper()
	_, err := s.client.AutoscalingV2().HorizontalPodAutoscalers(s.namespace).Create(s.t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: deployment},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment},
			MaxReplicas:    3,
		},
	}, metav1.CreateOptions{})
	s.t.Must(err)
}
