package functions

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/functions/duplicates"
	"github.com/rehome-dev/rehome/functions/failedpods"
	"github.com/rehome-dev/rehome/functions/nodeaffinity"
	"github.com/rehome-dev/rehome/functions/podantiaffinity"
	"github.com/rehome-dev/rehome/functions/podlifetime"
	"github.com/rehome-dev/rehome/functions/toomanyrestarts"
	"github.com/rehome-dev/rehome/functions/topologyspread"
	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestDeschedulerArguments covers the strategies whose arguments all appear in one file.
// RemovePodsViolatingNodeTaints has its own test.
func TestDeschedulerArguments(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	no := false
	most, least, few := uint(86400), uint(300), uint(5)
	for _, c := range []struct {
		file, strategy string
		scope          schemas.ScopeKind
		args           policy.Args
	}{
		{"toomanyrestarts.yaml", "RemovePodsHavingTooManyRestarts", schemas.PodKind, &toomanyrestarts.Args{
			Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web", "db"}}, LabelSelector: web}, PodRestartThreshold: 100,
			IncludingInitContainers: true, States: []string{"Running", "CrashLoopBackOff"},
		}},
		{"podlifetime.yaml", "PodLifeTime", schemas.PodKind, &podlifetime.Args{
			Selection:             candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}, LabelSelector: web},
			OwnerKinds:            podlifetime.OwnerKinds{Exclude: []string{"StatefulSet"}},
			MaxPodLifeTimeSeconds: &most, States: []string{"Pending", "PodInitializing"},
			Conditions: []podlifetime.Condition{
				{Type: "Ready", Status: "False", Reason: "ContainersNotReady", MinTimeSinceLastTransitionSeconds: &least},
				{Type: "PodResizePending"},
			},
			ExitCodes: []int32{1, 137}, IncludingInitContainers: true, IncludingEphemeralContainers: true,
		}},
		{"failedpods.yaml", "RemoveFailedPods", schemas.PodKind, &failedpods.Args{
			Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}, LabelSelector: web}, ExcludeOwnerKinds: []string{"Job"},
			Reasons: []string{"OutOfcpu", "CreateContainerConfigError"}, ExitCodes: []int32{1}, IncludingInitContainers: true,
		}},
		{"duplicates.yaml", "RemoveDuplicates", schemas.WorkloadKind, &duplicates.Args{
			Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}, ExcludeOwnerKinds: []string{"StatefulSet", "Job"},
		}},
		{"podantiaffinity.yaml", "RemovePodsViolatingInterPodAntiAffinity", schemas.DomainKind, &podantiaffinity.Args{
			Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web", "db"}}, LabelSelector: web},
		}},
		{"nodeaffinity.yaml", "RemovePodsViolatingNodeAffinity", schemas.NodeKind, &nodeaffinity.Args{
			Selection:        candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}, LabelSelector: web},
			NodeAffinityType: []string{nodeaffinity.Required, nodeaffinity.Preferred},
		}},
		{"topologyspread.yaml", "RemovePodsViolatingTopologySpreadConstraint", schemas.SpreadKind, &topologyspread.Args{
			Selection:              candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}, LabelSelector: web},
			WhenUnsatisfiable:      []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway},
			TopologyBalanceNodeFit: &no,
		}},
		{"lownodeutilization.yaml", "LowNodeUtilization", schemas.UsageKind, &utilization.LowArgs{
			Thresholds: utilization.Thresholds{schemas.LoadMetric: 12.5}, TargetThresholds: utilization.Thresholds{schemas.LoadMetric: 10},
			UseDeviationThresholds: true, NumberOfNodes: 3, EvictableNamespaces: policy.Namespaces{Exclude: []string{"kube-system"}},
			EvictionLimits: utilization.EvictionLimits{Node: &few},
			MetricsUtilization: &utilization.MetricsUtilization{
				Source: policy.LoadPrometheus, Prometheus: &utilization.Prometheus{Query: "instance:node_cpu:rate:sum"},
			},
		}},
		{"highnodeutilization.yaml", "HighNodeUtilization", schemas.UsageKind, &utilization.HighArgs{
			Thresholds: utilization.Thresholds{"cpu": 20, "memory": 20, "nvidia.com/gpu": 0.5}, NumberOfNodes: 3,
			EvictionModes:       []utilization.EvictionMode{utilization.OnlyThresholdingResources},
			EvictableNamespaces: policy.Namespaces{Exclude: []string{"kube-system"}},
		}},
	} {
		data, err := os.ReadFile(filepath.Join("testdata", c.file))
		expect.Must(t, err)
		p, err := policy.Parse(c.file, data, strategies())
		if err != nil {
			t.Error(err)
			continue
		}
		if len(p.Profiles) != 1 || len(p.Profiles[0].Strategies) != 1 {
			t.Errorf("%s: got %+v, want one profile with one strategy", c.file, p)
			continue
		}
		enabled := p.Profiles[0].Strategies[0]
		if enabled.Name != c.strategy || enabled.Scope != c.scope {
			t.Errorf("%s: got %s on %s, want %s on %s", c.file, enabled.Name, enabled.Scope, c.strategy, c.scope)
		}
		got, err := enabled.Values()
		if err != nil || !reflect.DeepEqual(got, c.args) {
			t.Errorf("%s: error %v\ngot  %+v\nwant %+v", c.file, err, got, c.args)
		}
	}
}

func TestArgumentCoverage(t *testing.T) {
	// Of two exclusive lists, the other one is in the file.
	other := map[string]bool{"include": true, "exclude": true, "includedTaints": true}
	files, err := filepath.Glob("testdata/*.yaml")
	expect.Must(t, err)
	text := map[string]string{}
	for _, file := range files {
		data := filetest.Read(t, file)
		for _, s := range strategies() {
			if strings.Contains(data, `name: "`+s.Name+`"`) {
				text[s.Name] += data
			}
		}
	}
	for _, s := range strategies() {
		for _, path := range argumentNames(reflect.TypeOf(s.NewArgs()).Elem()) {
			name := path[strings.LastIndex(path, ".")+1:]
			if !other[name] && !strings.Contains(text[s.Name], name+":") {
				t.Errorf("%s: argument %s is in no policy in testdata", s.Name, path)
			}
		}
	}
}

func TestArgumentDefaults(t *testing.T) {
	points := map[string]policy.Point{}
	for _, s := range strategies() {
		points[s.Name] = s.Point
	}
	for _, c := range []struct{ strategy, args, want string }{
		{"RemoveFailedPods", `{}`, `{"minPodLifetimeSeconds":3600}`},
		{"RemoveFailedPods", `{minPodLifetimeSeconds: }`, `{"minPodLifetimeSeconds":3600}`},
		{"RemoveFailedPods", `{minPodLifetimeSeconds: 0}`, `{"minPodLifetimeSeconds":0}`},
		{"RemovePodsViolatingTopologySpreadConstraint", `{}`, `{}`},
		{"RemovePodsViolatingTopologySpreadConstraint", `{constraints: [], topologyBalanceNodeFit: }`, `{"constraints":[]}`},
		{"RemovePodsViolatingTopologySpreadConstraint", `{topologyBalanceNodeFit: false}`, `{"topologyBalanceNodeFit":false}`},
		{"PodLifeTime", `{maxPodLifeTimeSeconds: 0}`, `{"maxPodLifeTimeSeconds":0}`},
		{"LowNodeUtilization", `{thresholds: {cpu: 1e1}, targetThresholds: {cpu: 50.5}, evictionLimits: {node: 0}, numberOfNodes: 0}`,
			`{"thresholds":{"cpu":10},"targetThresholds":{"cpu":50.5},"evictionLimits":{"node":0}}`},
		{"LowNodeUtilization", `{thresholds: {cpu: 0}, targetThresholds: {cpu: 0}, evictionLimits: {}, metricsUtilization: }`,
			`{"thresholds":{"cpu":0},"targetThresholds":{"cpu":0}}`},
		{"HighNodeUtilization", `{thresholds: {cpu: 20}, evictableNamespaces: {include: [], exclude: [a]}}`,
			`{"thresholds":{"cpu":20},"evictableNamespaces":{"include":[],"exclude":["a"]}}`},
		{"PodLifeTime", `{conditions: [{minTimeSinceLastTransitionSeconds: 0}]}`, `{"conditions":[{"minTimeSinceLastTransitionSeconds":0}]}`},
	} {
		p, err := policy.Parse("policy.yaml", []byte(`{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, profiles: [{
			pluginConfig: [{name: `+c.strategy+`, args: `+c.args+`}], plugins: {`+pointOf(c.strategy)+`: {enabled: [`+c.strategy+`]}}}]}`), strategies())
		if err != nil {
			t.Error(err)
			continue
		}
		if got := string(p.Profiles[0].Strategies[0].Args); got != c.want {
			t.Errorf("%s with %s: got %s, want %s", c.strategy, c.args, got, c.want)
		}
	}
}

// pointOf returns the extension point of a strategy.
func pointOf(name string) string {
	for _, s := range strategies() {
		if s.Name == name {
			return string(s.Point)
		}
	}
	return ""
}

func TestInvalidValueLines(t *testing.T) {
	const measured = "want cpu, memory, pods, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME, such as nvidia.com/gpu"
	_, err := policy.Parse("policy.yaml", []byte(`apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- pluginConfig:
  - name: PodLifeTime
    args:
      maxPodLifeTimeSeconds: -1
      conditions:
      - status: True
      - type: Ready
        status: "No"
  - name: RemovePodsHavingTooManyRestarts
  - name: RemoveFailedPods
    args:
      minPodLifetimeSeconds: 1h
      exitCodes: [3000000000]
  - name: RemovePodsViolatingNodeAffinity
    args:
      nodeAffinityType:
      - requiredDuringSchedulingIgnoredDuringExecution
      - requiredDuringSchedulingRequiredDuringExecution
  - name: RemoveDuplicates
    args:
      labelSelector: {}
  - name: RemovePodsViolatingTopologySpreadConstraint
    args:
      constraints: [DoNotSchedule, Never]
      topologyBalanceNodeFit: "no"
  - name: LowNodeUtilization
    args:
      thresholds:
        cpu: "20"
        CPU: 20
        memory: 101
        pods: 60
      targetThresholds: {cpu: 50, CPU: 30, memory: 101, pods: 50}
      numberOfNodes: -1
      evictionLimits:
        node: -1
      evictableNamespaces: {include: [web]}
      metricsUtilization: {}
  - name: HighNodeUtilization
    args:
      thresholds: [cpu]
      evictionModes: [OnlyThresholdingResources, All]
`), strategies())
	want := `policy.yaml:7: profiles[0].pluginConfig[0].args.maxPodLifeTimeSeconds: must not be negative, got -1
policy.yaml:9: profiles[0].pluginConfig[0].args.conditions[0].status: want text, got True; write it in quotes: "True"
policy.yaml:11: profiles[0].pluginConfig[0].args.conditions[1].status: is not the status of a condition, got "No"; want True, False or Unknown
policy.yaml:12: profiles[0].pluginConfig[1].args.podRestartThreshold: must be at least 1, got 0; 100 is usual
policy.yaml:15: profiles[0].pluginConfig[2].args.minPodLifetimeSeconds: want a whole number, got the text "1h"
policy.yaml:16: profiles[0].pluginConfig[2].args.exitCodes[0]: is out of range, got 3000000000
policy.yaml:21: profiles[0].pluginConfig[3].args.nodeAffinityType[1]: is not known, got "requiredDuringSchedulingRequiredDuringExecution"; want requiredDuringSchedulingIgnoredDuringExecution or preferredDuringSchedulingIgnoredDuringExecution
policy.yaml:24: profiles[0].pluginConfig[4].args.labelSelector: unknown field; known here: excludeOwnerKinds, namespaces
policy.yaml:27: profiles[0].pluginConfig[5].args.constraints[1]: is not an action of a constraint, got "Never"; want DoNotSchedule or ScheduleAnyway
policy.yaml:28: profiles[0].pluginConfig[5].args.topologyBalanceNodeFit: want true or false, got the text "no"
policy.yaml:32: profiles[0].pluginConfig[6].args.thresholds[cpu]: want a number, got the text "20"
policy.yaml:33: profiles[0].pluginConfig[6].args.thresholds[CPU]: is not a measured resource; ` + measured + `
policy.yaml:34: profiles[0].pluginConfig[6].args.thresholds[memory]: is not a percentage, got 101; want a percentage from 0 to 100
policy.yaml:35: profiles[0].pluginConfig[6].args.thresholds[pods]: is more than targetThresholds[pods], got 60; want at most 50
policy.yaml:36: profiles[0].pluginConfig[6].args.targetThresholds[CPU]: is not a measured resource; ` + measured + `
policy.yaml:36: profiles[0].pluginConfig[6].args.targetThresholds[memory]: is not a percentage, got 101; want a percentage from 0 to 100
policy.yaml:37: profiles[0].pluginConfig[6].args.numberOfNodes: must not be negative, got -1; 0 is any number
policy.yaml:39: profiles[0].pluginConfig[6].args.evictionLimits.node: must not be negative, got -1
policy.yaml:40: profiles[0].pluginConfig[6].args.evictableNamespaces.include: cannot be used by this strategy; list the other namespaces in exclude
policy.yaml:41: profiles[0].pluginConfig[6].args.metricsUtilization.source: is missing; want KubernetesMetrics or Prometheus
policy.yaml:44: profiles[0].pluginConfig[7].args.thresholds: want a map, got a list
policy.yaml:45: profiles[0].pluginConfig[7].args.evictionModes[1]: is not known, got "All"; want OnlyThresholdingResources`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// argumentNames returns the paths of the JSON tags of a struct and of its structs from this repository: ownerKinds,
// ownerKinds.include.
func argumentNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if f.Anonymous {
			names = append(names, argumentNames(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
		inner := f.Type
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && strings.HasPrefix(inner.PkgPath(), "github.com/rehome-dev/rehome/") {
			for _, below := range argumentNames(inner) {
				names = append(names, name+"."+below)
			}
		}
	}
	return names
}

func TestDefaultsShareNoMemory(t *testing.T) {
	for _, s := range strategies() {
		v := reflect.ValueOf(s.NewArgs()).Elem()
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Pointer, reflect.Slice, reflect.Map:
				if !f.IsNil() {
					t.Errorf("%s: its defaults point to a value of %s, which decoding would change", s.Name, v.Type().Field(i).Name)
				}
			}
		}
	}
}

func TestScopeArgumentsRoundTrip(t *testing.T) {
	// A value with a default must be encoded even if it is zero. Otherwise decoding over the defaults would restore the
	// default.
	for _, s := range strategies() {
		zero := reflect.New(reflect.TypeOf(s.NewArgs()).Elem()).Interface()
		data := expect.ToJSON(t, zero)
		got := s.NewArgs()
		if err := json.Unmarshal(data, got); err != nil || !reflect.DeepEqual(any(got), zero) {
			t.Errorf("%s: got %+v, %v from %s, want %+v", s.Name, got, err, data, zero)
		}
	}
}

func TestStrategyDescriptions(t *testing.T) {
	data := filetest.Read(t, "../docs/strategies.md")
	sections := map[string]string{}
	for _, section := range strings.Split(data, "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	for _, s := range strategies() {
		section, described := sections[s.Name]
		if !described {
			t.Errorf("%s: docs/strategies.md has no section of that name", s.Name)
			continue
		}
		var got []string
		for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
			got = append(got, row[1])
		}
		want := argumentNames(reflect.TypeOf(s.NewArgs()).Elem())
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: its arguments in docs/strategies.md:\ngot  %q\nwant %q", s.Name, got, want)
		}
		for _, kind := range s.Wakes {
			if !strings.Contains(section, "`"+string(kind)+"`") {
				t.Errorf("%s: docs/strategies.md does not say that %s wakes it", s.Name, kind)
			}
		}
		policies := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(section, -1)
		if len(policies) == 0 {
			t.Errorf("%s: docs/strategies.md has no example of it", s.Name)
		}
		for _, text := range policies {
			p, err := policy.Parse("docs/strategies.md", []byte(text[1]), strategies())
			if err != nil {
				t.Errorf("%s: its example: %v", s.Name, err)
				continue
			}
			if got := p.Profiles[0].Strategies; len(got) != 1 || got[0].Name != s.Name {
				t.Errorf("%s: its example enables %+v", s.Name, got)
			}
		}
	}
	if len(sections) != len(strategies()) {
		t.Errorf("docs/strategies.md has %d sections, want one for each of %d strategies", len(sections), len(strategies()))
	}
}
