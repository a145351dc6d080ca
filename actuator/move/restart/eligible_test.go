package restart

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

const (
	restart = schemas.MethodRestart
	surge   = schemas.MethodSurge
)

// rule is one case: a change of an eligible candidate, and the complete answer.
type rule struct {
	name   string
	method schemas.Method
	change func(*candidate)
	want   *move.Refusal
}

func hold(t *testing.T, rules []rule) {
	t.Helper()
	for _, tt := range rules {
		t.Run(tt.name, func(t *testing.T) {
			c := aCandidate(tt.method)
			tt.change(&c)
			same(t, "refusal", eligible(c), tt.want)
		})
	}
}

func strategy(surge, unavailable any) func(*candidate) {
	return func(c *candidate) {
		c.Deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
			MaxSurge: intOrString(surge), MaxUnavailable: intOrString(unavailable),
		}
	}
}

func intOrString(v any) *intstr.IntOrString {
	switch v := v.(type) {
	case int:
		return new(intstr.FromInt(v))
	case string:
		return new(intstr.FromString(v))
	}
	return nil
}

func TestDeploymentMaxSurge(t *testing.T) {
	const reason = schemas.ReasonRestartStrategy
	zero := refusal(schemas.Rejected, reason, "maxSurge comes to 0 of 1 replicas: it starts no pod before it stops one")
	hold(t, []rule{
		{"one replica and the default strategy is fine", restart, func(*candidate) {}, nil},
		{"for a surge as well", surge, func(*candidate) {}, nil},
		{"Recreate stops first", restart, func(c *candidate) {
			c.Deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		}, refusal(schemas.Rejected, reason, "spec.strategy.type is Recreate: it stops its pods before it starts new ones")},
		{"Recreate says that there must not be two, which a surge would make", surge, func(c *candidate) {
			c.Deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		}, refusal(schemas.Rejected, reason, "spec.strategy.type is Recreate: it stops its pods before it starts new ones")},
		{"maxSurge 0 stops first", restart, strategy(0, 1), zero},
		{"maxSurge 0 and maxUnavailable 0 is the same", restart, strategy(0, 0), zero},
		{"maxSurge 0% as well", surge, strategy("0%", "25%"), zero},
		{"maxSurge is rounded up", restart, strategy("1%", 0), nil},
		{"maxUnavailable is rounded down", restart, strategy(1, "99%"), nil},
		{"a rollout that may have no pod for a moment gains nothing", restart, strategy(1, 1), refusal(schemas.Rejected, reason,
			"maxUnavailable comes to 1 of 1 replicas: a rollout may stop a pod before its replacement is available")},
		{"a surge is no rollout and does not care", surge, strategy(1, 1), nil},
		{"a quarter of four replicas is one that may be missing", restart, func(c *candidate) { c.Deployment = aDeployment(4) },
			refusal(schemas.Rejected, reason,
				"maxUnavailable comes to 1 of 4 replicas: a rollout may stop a pod before its replacement is available")},
		{"a quarter of three is zero", restart, func(c *candidate) { c.Deployment = aDeployment(3) }, nil},
		{"a share that is no number is named", restart, strategy("many", 0), refusal(schemas.Rejected, reason,
			"spec.strategy.rollingUpdate: maxSurge: invalid value for IntOrString: invalid type: string is not a percentage")},
	})
}

func TestDeploymentHealth(t *testing.T) {
	status := func(change func(*appsv1.DeploymentStatus)) func(*candidate) {
		return func(c *candidate) { change(&c.Deployment.Status) }
	}
	progressing := func(status corev1.ConditionStatus, reason string) func(*candidate) {
		return func(c *candidate) {
			c.Deployment.Status.Conditions = []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason, Message: "words"},
			}
		}
	}
	running, unhealthy := schemas.ReasonRestartRunning, schemas.ReasonRestartUnhealthy
	hold(t, []rule{
		{"a paused one rolls nothing out", restart, func(c *candidate) { c.Deployment.Spec.Paused = true },
			refusal(schemas.Deferred, schemas.ReasonRestartPaused, "spec.paused is true")},
		{"a change that its controller has not seen yet is a rollout", restart,
			status(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 2 }),
			refusal(schemas.Deferred, running, "its controller has not seen the last change yet")},
		{"a pod of the old template is left", restart, status(func(s *appsv1.DeploymentStatus) { s.Replicas = 2 }),
			refusal(schemas.Deferred, running, "a rollout is in progress: 1 of 1 pods are of the newest template, 2 are there")},
		{"the pod is of the old template", surge, status(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 0 }),
			refusal(schemas.Deferred, running, "a rollout is in progress: 0 of 1 pods are of the newest template, 1 are there")},
		{"Progressing is False", restart, progressing(corev1.ConditionFalse, "ReplicaSetCreateError"),
			refusal(schemas.Deferred, unhealthy, "its last rollout got stuck: Progressing is False, ReplicaSetCreateError: words")},
		{"the progress deadline is exceeded, whatever the status says", restart,
			progressing(corev1.ConditionUnknown, "ProgressDeadlineExceeded"),
			refusal(schemas.Deferred, unhealthy, "its last rollout got stuck: Progressing is Unknown, ProgressDeadlineExceeded: words")},
		{"a Deployment without conditions is judged by its numbers", restart, func(c *candidate) {
			c.Deployment.Status.Conditions = nil
		}, nil},
		{"a pod is not available", restart, status(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 0 }),
			refusal(schemas.Deferred, unhealthy, "0 of 1 pods are available")},
		{"a pod is counted as unavailable", surge, status(func(s *appsv1.DeploymentStatus) { s.UnavailableReplicas = 1 }),
			refusal(schemas.Deferred, unhealthy, "1 of 1 pods are available")},
		{"a surge for another pod is under way", surge, func(c *candidate) {
			c.Deployment = aDeployment(3)
			c.Deployment.Annotations = map[string]string{surgeReplicas: "2"}
		}, refusal(schemas.Deferred, running, "it has one replica more than 2 until a pod has gone; 3 of 3 are available")},
		{"a mark of a surge that was left behind counts for nothing", surge, func(c *candidate) {
			c.Deployment.Annotations = map[string]string{surgeReplicas: "2"}
		}, nil},
	})
}

func TestRestartCooldown(t *testing.T) {
	ago := func(d, cooldown time.Duration) func(*candidate) {
		return func(c *candidate) {
			c.Policy.Cooldown = cooldown
			c.Deployment.Annotations = map[string]string{restartedAt: noon().Add(-d).Format(time.RFC3339Nano)}
		}
	}
	cooldown := func(last, again string) *move.Refusal {
		return refusal(schemas.Deferred, schemas.ReasonRestartCooldown,
			"it was restarted at "+last+", and is not restarted again before "+again)
	}
	hold(t, []rule{
		{"just within the default", restart, ago(10*time.Minute-1, 0), cooldown("2026-11-03T11:50:00Z", "2026-11-03T12:00:00Z")},
		{"just over the default", restart, ago(10*time.Minute, 0), nil},
		{"within the policy's", surge, ago(59*time.Minute, time.Hour), cooldown("2026-11-03T11:01:00Z", "2026-11-03T12:01:00Z")},
		{"over the policy's", restart, ago(2*time.Second, time.Second), nil},
		{"a single replica that has to leave one node after the other", restart, func(c *candidate) {
			ago(time.Second, 0)(c)
			c.Policy.AgainAlone = true
		}, nil},
		{"and several that have to", surge, func(c *candidate) {
			c.Deployment = aDeployment(3)
			ago(9*time.Minute, 0)(c)
			c.Policy.AgainAlone = true
		}, cooldown("2026-11-03T11:51:00Z", "2026-11-03T12:01:00Z")},
		{"an invalid time is ignored", restart, func(c *candidate) {
			c.Deployment.Annotations = map[string]string{restartedAt: "yesterday"}
		}, nil},
	})
}

func TestSharedVolumes(t *testing.T) {
	const reason = schemas.ReasonRestartVolume
	mounted := func(claims ...*corev1.PersistentVolumeClaim) func(*candidate) {
		return func(c *candidate) {
			for _, claim := range claims {
				fixtures.Claims(claim.Name)(c.Pod)
			}
			c.Claims = claims
		}
	}
	volume := func(source corev1.VolumeSource) func(*candidate) {
		return func(c *candidate) { c.Pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}} }
	}
	alone := func(mode string) *move.Refusal {
		return refusal(schemas.Rejected, reason, "the PersistentVolumeClaim data is "+mode+": two pods on two nodes cannot use it")
	}
	disk := refusal(schemas.Rejected, reason, "the volume data is a disk: two pods on two nodes cannot use it")
	bound := claim("data", corev1.ReadWriteOnce)
	bound.Status.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}
	hold(t, []rule{
		{"ReadWriteOnce is one node's", restart, mounted(claim("data", corev1.ReadWriteOnce)), alone("ReadWriteOnce")},
		{"for a surge as well", surge, mounted(claim("data", corev1.ReadWriteOnce)), alone("ReadWriteOnce")},
		{"ReadWriteOncePod is one pod's", restart, mounted(claim("data", corev1.ReadWriteOncePod)), alone("ReadWriteOncePod")},
		{"ReadWriteMany is everybody's", restart, mounted(claim("data", corev1.ReadWriteMany)), nil},
		{"ReadOnlyMany as well", restart, mounted(claim("data", corev1.ReadOnlyMany)), nil},
		{"of ReadWriteOnce and ReadOnlyMany the pod may use the first", restart,
			mounted(claim("data", corev1.ReadOnlyMany, corev1.ReadWriteOnce)), alone("ReadWriteOnce")},
		{"the volume's access modes count more than the claim's", restart, mounted(bound), nil},
		{"the second of two claims counts as much", restart,
			mounted(claim("shared", corev1.ReadWriteMany), claim("data", corev1.ReadWriteOnce)), alone("ReadWriteOnce")},
		{"a volume before a pause, which may end", restart, func(c *candidate) {
			c.Deployment.Spec.Paused = true
			mounted(claim("data", corev1.ReadWriteOnce))(c)
		}, alone("ReadWriteOnce")},
		{"missing claim", restart, func(c *candidate) {
			mounted(claim("data"))(c)
			c.Claims = []*corev1.PersistentVolumeClaim{nil}
		}, refusal(schemas.Rejected, reason, "there is no PersistentVolumeClaim data")},
		{"a claim that each pod has for itself is no obstacle", restart,
			volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), nil},
		{"an empty directory is no obstacle", restart, volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), nil},
		{"an EBS disk", restart, volume(corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}),
			disk},
		{"a persistent disk", restart, volume(corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}}),
			disk},
		{"an Azure disk", restart, volume(corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}}), disk},
		{"a Cinder volume", restart, volume(corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{}}), disk},
		{"an iSCSI disk", restart, volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}), disk},
		{"a Ceph block device", restart, volume(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{}}), disk},
		{"a fibre channel disk", restart, volume(corev1.VolumeSource{FC: &corev1.FCVolumeSource{}}), disk},
	})
}

func TestRoomForSecondPod(t *testing.T) {
	const reason = schemas.ReasonRestartNoRoom
	room := func(ok bool, why string) func(*candidate) {
		return func(c *candidate) { c.Elsewhere = func(*corev1.Pod) (bool, string) { return ok, why } }
	}
	hold(t, []rule{
		{"unknown: the scheduler decides", restart, func(c *candidate) { c.Elsewhere = nil }, nil},
		{"there is", restart, room(true, ""), nil},
		{"there is not", restart, room(false, "the host port 80 is taken on all of them"), refusal(schemas.Deferred, reason,
			"no other node would take a second pod: the host port 80 is taken on all of them")},
		{"devices that the pods share are where the pod is", restart, func(c *candidate) {
			c.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu-of-api")}}
		}, refusal(schemas.Deferred, reason, "the devices of the ResourceClaim gpu-of-api are allocated where the pod runs")},
		{"devices that each pod has for itself are the scheduler's to find", restart, func(c *candidate) {
			c.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
		}, nil},
	})
}

func TestSurgeBudget(t *testing.T) {
	// The budget of a Deployment with two healthy replicas.
	budget := func(spec policyv1.PodDisruptionBudgetSpec) func(*candidate) {
		return func(c *candidate) {
			c.Deployment = aDeployment(2)
			c.Budgets = []policyv1.PodDisruptionBudget{{ObjectMeta: metav1.ObjectMeta{Name: "api"}, Spec: spec,
				Status: policyv1.PodDisruptionBudgetStatus{ExpectedPods: 2, CurrentHealthy: 2}}}
		}
	}
	minimum := func(v any) func(*candidate) {
		return budget(policyv1.PodDisruptionBudgetSpec{MinAvailable: intOrString(v)})
	}
	maximum := func(v any) func(*candidate) {
		return budget(policyv1.PodDisruptionBudgetSpec{MaxUnavailable: intOrString(v)})
	}
	never := refusal(schemas.Deferred, schemas.ReasonDisruptionBudget,
		"one replica more does not make poddisruptionbudget api allow a disruption")
	hold(t, []rule{
		{"minAvailable that is all of them is met with one more", surge, minimum(2), nil},
		{"minAvailable that is more than all is not", surge, minimum(3), never},
		{"minAvailable of 100% never is", surge, minimum("100%"), never},
		{"minAvailable of 60% is two of three", surge, minimum("60%"), nil},
		{"minAvailable of 67% is three of three", surge, minimum("67%"), never},
		{"maxUnavailable of 0 never is met", surge, maximum(0), never},
		{"maxUnavailable of 0% as well", surge, maximum("0%"), never},
		{"maxUnavailable of 1% is rounded up to one", surge, maximum("1%"), nil},
		{"a share that is no number allows nothing", surge, maximum("many"), never},
		{"two budgets hold a pod for ever", surge, func(c *candidate) {
			minimum(1)(c)
			c.Budgets = append(c.Budgets, policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "again"}})
		}, refusal(schemas.Deferred, schemas.ReasonDisruptionBudget,
			"more than one poddisruptionbudget matches the pod: api and again")},
		{"a restart never has fewer pods and needs no budget", restart, maximum(0), nil},
	})
}

func TestRestartAnnotations(t *testing.T) {
	annotated := policy.Restart{Workloads: policy.RestartAnnotated}
	all := policy.Restart{Workloads: policy.RestartAll}
	surging := policy.Restart{Workloads: policy.RestartAll, Method: policy.Surge}
	for _, tt := range []struct {
		name                  string
		policy                policy.Restart
		deployment, namespace string
		method                schemas.Method
		takes                 bool
	}{
		{"no Deployment takes part when it is switched off", policy.Restart{}, "true", "true", restart, false},
		{"a Deployment that asks for a method does not either then", policy.Restart{}, "surge", "", surge, false},
		{"annotated: without a mark not", annotated, "", "", restart, false},
		{"annotated: true is the policy's method", annotated, "true", "", restart, true},
		{"annotated: by the namespace", annotated, "", "true", restart, true},
		{"annotated: surge by that method", annotated, "surge", "", surge, true},
		{"annotated: restart by that method, whatever the policy's is",
			policy.Restart{Workloads: policy.RestartAnnotated, Method: policy.Surge}, "restart", "", restart, true},
		{"annotated: the Deployment's own mark is first", annotated, "false", "true", "", false},
		{"annotated: also the other way round", annotated, "true", "false", restart, true},
		{"annotated: the Deployment's method is first", annotated, "restart", "surge", restart, true},
		{"annotated: an unknown value counts as absent", annotated, "yes", "", restart, false},
		{"annotated: then the namespace's counts", annotated, "yes", "surge", surge, true},
		{"all: without a mark", all, "", "", restart, true},
		{"all: not with false", all, "false", "", "", false},
		{"all: not with false on the namespace", all, "", "false", "", false},
		{"all: by the policy's method", surging, "", "", surge, true},
		{"all: an unknown value counts as absent", all, "False", "", restart, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			method, takes := takesPart(tt.policy, tt.deployment, tt.namespace)
			if takes != tt.takes || takes && method != tt.method {
				t.Errorf("got %q, %t, want %q, %t", method, takes, tt.method, tt.takes)
			}
		})
	}
}

func TestControllerAPIGroup(t *testing.T) {
	for _, tt := range []struct {
		name string
		refs []metav1.OwnerReference
		want bool
	}{
		{"the controller", owner("apps/v1", "ReplicaSet", "set", true), true},
		{"an owner that is not the controller", owner("apps/v1", "ReplicaSet", "set", false), false},
		{"the same kind of another group", owner("rollouts.example.com/v1", "ReplicaSet", "set", true), false},
		{"another kind", owner("apps/v1", "StatefulSet", "set", true), false},
		{"an older version of the group", owner("apps/v1beta2", "ReplicaSet", "set", true), true},
		{"none", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, got := ownedBy(&metav1.ObjectMeta{OwnerReferences: tt.refs}, "ReplicaSet")
			same(t, "owned", got, tt.want)
		})
	}
}
