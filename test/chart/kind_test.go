package chart

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// TestKind has the keys that a file for the chart of the descheduler can omit.
func TestKind(t *testing.T) {
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

// TestDefaultSchedule compares the CronJob with the chart of the descheduler. It has no metrics, probes, or bus.
func TestDefaultSchedule(t *testing.T) {
	c := manifesttest.Typed[batchv1.CronJob](t, rendered(t, "rehome", "--set", "kind=CronJob").one(t, "CronJob", "rehome"))
	pod := c.Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	if c.Spec.Schedule != "*/2 * * * *" || pod.LivenessProbe != nil || pod.ReadinessProbe != nil || len(pod.Ports) != 0 || len(pod.VolumeMounts) != 1 {
		t.Errorf("schedule %s, %+v", c.Spec.Schedule, pod)
	}
}

// TestBusFilesHaveOneWriter: a second process would not start with the files of the first.
func TestBusFilesHaveOneWriter(t *testing.T) {
	d := manifesttest.Typed[appsv1.Deployment](t, rendered(t, "rehome", "--set", "persistence.enabled=true").one(t, "Deployment", "rehome"))
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || *d.Spec.Replicas != 1 {
		t.Errorf("strategy %v, replicas %d", d.Spec.Strategy, *d.Spec.Replicas)
	}
}

func TestStoreReserve(t *testing.T) {
	for value, want := range map[string]string{"": "67108864", "1Gi": "1073741824", "200M": "200000000"} {
		var set []string
		if value != "" {
			set = []string{"--set", "storeReserve=" + value}
		}
		got := rendered(t, "rehome", set...).valuesOf(t, "REHOME_STORE_RESERVE")
		if !maps.Equal(got, map[string]any{"Deployment/rehome": want}) {
			t.Errorf("storeReserve %q: got %v, want %s", value, got, want)
		}
	}
}

// A complete rolling update strategy is rendered, because helm does not remove defaults of the API server, which would be invalid
// after a change to Recreate.
func TestDeploymentStrategies(t *testing.T) {
	want := map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(0)}}
	for _, name := range []string{"default", "distributed"} {
		for _, o := range rendered(t, "rehome", "--values", combinations(t)[name]) {
			if o.GetKind() != "Deployment" {
				continue
			}
			got, _, err := unstructured.NestedMap(o.Object, "spec", "strategy")
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: got %v, error %v, want %v", name, o.GetName(), got, err, want)
			}
		}
	}
}

// TestDryRunHasNoStandby: a dry run takes no lease, so two processes would both lead, and report everything twice.
func TestDryRunHasNoStandby(t *testing.T) {
	replicas := func(args ...string) map[string]int32 {
		of := map[string]int32{}
		for _, o := range rendered(t, "rehome", args...) {
			if o.GetKind() == "Deployment" {
				of[o.GetName()] = *manifesttest.Typed[appsv1.Deployment](t, o).Spec.Replicas
			}
		}
		return of
	}
	const distributed = "mode=distributed,nats.enabled=true,dispatcher.enabled=true,dispatcher.replicas=2,watcher.replicas=3"
	for values, want := range map[string]map[string]int32{
		"replicas=2":                         {"rehome": 2},
		"replicas=2,dryRun=true":             {"rehome": 1},
		"replicas=2,cmdOptions.dry-run=true": {"rehome": 1},
		"replicas=0,dryRun=true":             {"rehome": 0},
		distributed: {
			"rehome-watcher": 3, "rehome-actuator": 2, "rehome-maintenance": 2, "rehome-functions": 2, "rehome-dispatcher": 2,
		},
		distributed + ",maintenance.replicas=3": {
			"rehome-watcher": 3, "rehome-actuator": 2, "rehome-maintenance": 3, "rehome-functions": 2, "rehome-dispatcher": 2,
		},
		distributed + ",dryRun=true": {
			"rehome-watcher": 1, "rehome-actuator": 1, "rehome-maintenance": 1, "rehome-functions": 2, "rehome-dispatcher": 2,
		},
		distributed + ",cmdOptions.dry-run=true": {
			"rehome-watcher": 1, "rehome-actuator": 1, "rehome-maintenance": 1, "rehome-functions": 2, "rehome-dispatcher": 2,
		},
	} {
		if got := replicas("--set", values); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", values, got, want)
		}
	}
}

// TestJobNameFollowsItsContent: a Job cannot be changed, so a changed Job needs another name.
func TestJobNameFollowsItsContent(t *testing.T) {
	job := func(t *testing.T, from string, args ...string) batchv1.Job {
		var found objects
		for _, o := range parse(t, must(t, helm(t, append([]string{"template", "rehome", from, "--namespace", "rehome"}, args...)...))) {
			if o.GetKind() == "Job" && o.GetAnnotations()["helm.sh/hook"] == "" {
				found = append(found, o)
			}
		}
		if len(found) != 1 {
			t.Fatalf("there are %d Jobs, want one: %q", len(found), found.names())
		}
		return manifesttest.Typed[batchv1.Job](t, found[0])
	}
	for _, kind := range []string{"kind=Job", "mode=distributed,nats.enabled=true"} {
		one, same := job(t, chart, "--set", kind), job(t, chart, "--set", kind)
		if !reflect.DeepEqual(one, same) {
			t.Errorf("%s: the same values make\n%+v and\n%+v", kind, one, same)
		}
		for change, values := range map[string]string{
			"another policy":      `{"policyAdditions":{"rate":{"burst":3}}}`,
			"another level":       `{"logging":{"level":"DEBUG"}}`,
			"a common label":      `{"commonLabels":{"team":"a"}}`,
			"a label of pods":     `{"podLabels":{"team":"a"}}`,
			"an annotation":       `{"podAnnotations":{"team":"a"}}`,
			"another chart":       "version: ",
			"another application": "appVersion: ",
		} {
			t.Run(kind+" and "+change, func(t *testing.T) {
				t.Parallel()
				from, set := chart, values
				if !strings.HasPrefix(values, "{") {
					from, set = chartWith(t, "\n"+values+"0.1.0\n", "\n"+values+"0.1.1\n"), "{}"
				}
				other := job(t, from, "--set", kind, "--set-json", set)
				if other.Name == one.Name {
					t.Errorf("it is still %s, with pods of %+v and %+v", one.Name, one.Spec.Template.ObjectMeta, other.Spec.Template.ObjectMeta)
				}
				if same := reflect.DeepEqual(one.Spec.Template, other.Spec.Template); same != (change == "another policy") {
					t.Errorf("pods unchanged: got %t", same)
				}
			})
		}
	}
}

// chartWith is a copy of the chart in whose Chart.yaml one text stands for another.
func chartWith(t *testing.T, old, with string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "rehome")
	if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	text := filetest.Read(t, root, "deploy/helm/rehome/Chart.yaml")
	if !strings.Contains(text, old) {
		t.Fatalf("Chart.yaml has no %q", old)
	}
	filetest.Write(t, filepath.Join(dir, "Chart.yaml"), strings.ReplaceAll(text, old, with))
	return dir
}

// TestEnvOverridesChart: extraEnv replaces a variable of the chart, because the API server warns about duplicates.
func TestEnvOverridesChart(t *testing.T) {
	d := manifesttest.Typed[appsv1.Deployment](t, rendered(t, "rehome", "--set-json",
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
