package chart

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
)

// TestTheKindFollowsFromTheValues has what a file for the peer's chart can leave out.
func TestTheKindFollowsFromTheValues(t *testing.T) {
	for rule, c := range map[string]struct{ set, want string }{
		"nothing":                               {"kind=", "Deployment"},
		"a schedule":                            {"schedule=0 3 * * *", "CronJob"},
		"a CronJob that is suspended":           {"suspend=true", "CronJob"},
		"one that is not":                       {"suspend=false", "CronJob"},
		"a history of none":                     {"successfulJobsHistoryLimit=0", "CronJob"},
		"labels of a CronJob":                   {"cronJobLabels.team=a", "CronJob"},
		"a schedule that is null":               {"schedule=null", "Deployment"},
		"a Deployment that also has a schedule": {"kind=Deployment,schedule=0 3 * * *", "Deployment"},
		"a Job":                                 {"kind=Job,schedule=0 3 * * *", "Job"},
		"what jobs of both kinds have":          {"activeDeadlineSeconds=60", "Deployment"},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, o := range rendered(t, "rehome", "--set", c.set, "--set", "service.enabled=false") {
				switch o.GetKind() {
				case "Deployment", "CronJob", "Job":
					got = append(got, o.GetKind())
				}
			}
			if len(got) != 1 || got[0] != c.want {
				t.Errorf("got %q, want %s", got, c.want)
			}
		})
	}
}

// TestACronJobWithoutAScheduleRunsEveryTwoMinutes as with the peer's chart, and without metrics, probes and bus.
func TestACronJobWithoutAScheduleRunsEveryTwoMinutes(t *testing.T) {
	c := into[batchv1.CronJob](t, rendered(t, "rehome", "--set", "kind=CronJob").one(t, "CronJob", "rehome"))
	pod := c.Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	if c.Spec.Schedule != "*/2 * * * *" || pod.LivenessProbe != nil || pod.ReadinessProbe != nil || len(pod.Ports) != 0 || len(pod.VolumeMounts) != 1 {
		t.Errorf("schedule %s, %+v", c.Spec.Schedule, pod)
	}
}

// TestTheFilesOfTheBusAreNeverSharedByTwoPods since the second would not start.
func TestTheFilesOfTheBusAreNeverSharedByTwoPods(t *testing.T) {
	d := into[appsv1.Deployment](t, rendered(t, "rehome", "--set", "persistence.enabled=true").one(t, "Deployment", "rehome"))
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || *d.Spec.Replicas != 1 {
		t.Errorf("strategy %v, replicas %d", d.Spec.Strategy, *d.Spec.Replicas)
	}
}

// TestAnotherPolicyMakesAnotherJob since a Job cannot be changed.
func TestAnotherPolicyMakesAnotherJob(t *testing.T) {
	name := func(args ...string) (names string) {
		for _, o := range rendered(t, "rehome", args...) {
			if o.GetKind() == "Job" && o.GetAnnotations()["helm.sh/hook"] == "" {
				names += o.GetName()
			}
		}
		return names
	}
	for _, kind := range []string{"kind=Job", "mode=distributed,nats.enabled=true"} {
		one, same := name("--set", kind), name("--set", kind)
		other := name("--set", kind, "--set-json", `{"policyAdditions":{"rate":{"burst":3}}}`)
		if one == "" || one != same || one == other {
			t.Errorf("%s: %q, %q and %q", kind, one, same, other)
		}
	}
}

// TestAVariableOfTheValuesCountsMoreThanThatOfTheChart so that there is never one twice, which the API server would refuse.
func TestAVariableOfTheValuesCountsMoreThanThatOfTheChart(t *testing.T) {
	d := into[appsv1.Deployment](t, rendered(t, "rehome", "--set-json",
		`{"extraEnv":[{"name":"REHOME_LOG_LEVEL","value":"WARN"},{"name":"REHOME_PARALLEL","value":"8"}]}`).one(t, "Deployment", "rehome"))
	var got []string
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		if e.Name == "REHOME_LOG_LEVEL" || e.Name == "REHOME_PARALLEL" {
			got = append(got, e.Name+"="+e.Value)
		}
	}
	if want := []string{"REHOME_LOG_LEVEL=WARN", "REHOME_PARALLEL=8"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
