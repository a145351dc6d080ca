package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// meaning summarizes a policy line by line: its limits, and the protections and strategies of each profile.
func meaning(p Policy) []string {
	var lines []string
	limit := func(name string, most *uint) {
		if most != nil {
			lines = append(lines, fmt.Sprintf("at most %d %s", *most, name))
		}
	}
	limit("off a node", p.Limits.PerNode)
	limit("in total", p.Limits.Total)
	for _, profile := range p.Profiles {
		evictor, _ := json.Marshal(profile.Evictor.args)
		lines = append(lines, profile.Name+": "+string(evictor))
		for _, s := range profile.Strategies {
			lines = append(lines, s.Name+" "+string(s.Args))
		}
	}
	return lines
}

const (
	usually    = `{"podProtections":{"extraEnabled":["PodsWithPVC"]}}`
	others     = `{"exclude":["kube-system","hypershift","openshift-*"]}`
	prometheus = "metricsProviders: [{source: Prometheus, prometheus: {url: http://p}}]\n"
)

func TestPresetStrategiesAndProtections(t *testing.T) {
	restarts := `RemovePodsHavingTooManyRestarts {"namespaces":` + others + `,"podRestartThreshold":100,"includingInitContainers":true}`
	busy := func(low, high int) string {
		return fmt.Sprintf(`LowNodeUtilization {"thresholds":{"cpu":%d,"memory":%[1]d,"pods":%[1]d},"targetThresholds":`+
			`{"cpu":%d,"memory":%[2]d,"pods":%[2]d},"evictableNamespaces":%s}`, low, high, others)
	}
	idle := func(low int) string {
		return fmt.Sprintf(`HighNodeUtilization {"thresholds":{"cpu":%d,"memory":%[1]d,"pods":%[1]d},"evictableNamespaces":%s}`, low, others)
	}
	measured := func(low, high int, deviation, query string) string {
		text, _ := json.Marshal(query)
		return fmt.Sprintf(`LowNodeUtilization {"thresholds":{"MetricResource":%d},"targetThresholds":{"MetricResource":%d}%s,`+
			`"evictableNamespaces":%s,"metricsUtilization":{"source":"Prometheus","prometheus":{"query":%s}}}`,
			low, high, deviation, others, text)
	}
	o := newOpenShift()
	combined := o.query("PrometheusCPUCombined")
	pressure := o.query("PrometheusCPUPSIPressure")
	const deviating = `,"useDeviationThresholds":true`
	spread := func(constraints string) string {
		return `RemovePodsViolatingTopologySpreadConstraint {"namespaces":` + others + `,"constraints":` + constraints + `}`
	}
	age := func(seconds int) string {
		return fmt.Sprintf(`PodLifeTime {"namespaces":%s,"maxPodLifeTimeSeconds":%d}`, others, seconds)
	}
	duplicates := `RemoveDuplicates {"namespaces":` + others + `}`
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"affinity and taints", "presets: [AffinityAndTaints]", []string{
			"AffinityAndTaints: " + usually,
			`RemovePodsViolatingInterPodAntiAffinity {"namespaces":` + others + `}`,
			`RemovePodsViolatingNodeTaints {"namespaces":` + others + `}`,
			`RemovePodsViolatingNodeAffinity {"namespaces":` + others + `,"nodeAffinityType":["requiredDuringSchedulingIgnoredDuringExecution"]}`,
		}},
		{"topology and duplicates", "presets: [TopologyAndDuplicates]",
			[]string{"TopologyAndDuplicates: " + usually, spread(`["DoNotSchedule"]`), duplicates}},
		{"soft topology and duplicates", "presets: [SoftTopologyAndDuplicates]",
			[]string{"SoftTopologyAndDuplicates: " + usually, spread(`["DoNotSchedule","ScheduleAnyway"]`), duplicates}},
		{"lifecycle and utilization", "presets: [LifecycleAndUtilization]",
			[]string{"LifecycleAndUtilization: " + usually, age(86400), restarts, busy(20, 50)}},
		{"long lifecycle", "presets: [LongLifecycle]", []string{"LongLifecycle: " + usually, restarts, busy(20, 50)}},
		{"long lifecycle, by its older name", "presets: [DevPreviewLongLifecycle]",
			[]string{"LongLifecycle: " + usually, restarts, busy(20, 50)}},
		{"compact and scale", "presets: [CompactAndScale]", []string{"CompactAndScale: " + usually, idle(20)}},
		{"virtual machines", prometheus + "presets: [KubeVirtRelieveAndMigrate]", []string{
			"at most 2 off a node", "at most 5 in total",
			`KubeVirtRelieveAndMigrate: {"noEvictionPolicy":"Mandatory","podProtections":{"defaultDisabled":["PodsWithLocalStorage"]}}`,
			measured(0, 10, deviating, combined),
		}},
		{"virtual machines, by its older name, with limits of the file",
			prometheus + "presets: [DevKubeVirtRelieveAndMigrate]\nmaxNoOfPodsToEvictTotal: 0", []string{
				"at most 2 off a node", "at most 0 in total",
				`KubeVirtRelieveAndMigrate: {"noEvictionPolicy":"Mandatory","podProtections":{"defaultDisabled":["PodsWithLocalStorage"]}}`,
				measured(0, 10, deviating, combined),
			}},
		{"others change every preset, and no profile", `
presets: [EvictPodsWithPVC, CompactAndScale, EvictPodsWithLocalStorage]
profiles: [{name: own}]`, []string{
			`CompactAndScale: {"podProtections":{"defaultDisabled":["PodsWithLocalStorage"]}}`, idle(20), "own: {}",
		}},
		{"with all protections lifted", "presets: [EvictPodsWithPVC, CompactAndScale]", []string{"CompactAndScale: {}", idle(20)}},
		{"a life time of pods", "presets: [LifecycleAndUtilization]\npresetCustomizations: {podLifetime: 1h30m}",
			[]string{"LifecycleAndUtilization: " + usually, age(5400), restarts, busy(20, 50)}},
		{"levels of busy nodes", "presets: [LongLifecycle]\npresetCustomizations: {devLowNodeUtilizationThresholds: High}",
			[]string{"LongLifecycle: " + usually, restarts, busy(40, 70)}},
		{"levels of idle nodes", "presets: [CompactAndScale]\npresetCustomizations: {devHighNodeUtilizationThresholds: Minimal}",
			[]string{"CompactAndScale: " + usually, idle(10)}},
		{"deviations", "presets: [LongLifecycle]\npresetCustomizations: {devDeviationThresholds: Low}", []string{
			"LongLifecycle: " + usually, restarts, strings.Replace(busy(10, 10), `,"evictable`, deviating+`,"evictable`, 1),
		}},
		{"real usage", prometheus + "presets: [LongLifecycle]\npresetCustomizations: {devActualUtilizationProfile: PrometheusCPUPSIPressure}",
			[]string{"LongLifecycle: " + usually, restarts, measured(20, 50, "", pressure)}},
		{"real usage by a query, and deviations", prometheus + `
presets: [KubeVirtRelieveAndMigrate]
maxNoOfPodsToEvictPerNode: 1
presetCustomizations: {devActualUtilizationProfile: "query:up == 1", devDeviationThresholds: AsymmetricHigh}`, []string{
			"at most 1 off a node", "at most 5 in total",
			`KubeVirtRelieveAndMigrate: {"noEvictionPolicy":"Mandatory","podProtections":{"defaultDisabled":["PodsWithLocalStorage"]}}`,
			measured(0, 30, deviating, "up == 1"),
		}},
		{"a priority", "presets: [CompactAndScale]\npresetCustomizations: {thresholdPriority: 7}",
			[]string{`CompactAndScale: {"priorityThreshold":{"value":7},"podProtections":{"extraEnabled":["PodsWithPVC"]}}`, idle(20)}},
		{"namespaces to look at", "presets: [TopologyAndDuplicates]\npresetCustomizations: {namespaces: {included: [a, b-*]}}", []string{
			"TopologyAndDuplicates: " + usually,
			`RemovePodsViolatingTopologySpreadConstraint {"namespaces":{"include":["a","b-*"]},"constraints":["DoNotSchedule"]}`,
			`RemoveDuplicates {"namespaces":{"include":["a","b-*"]}}`,
		}},
		{"namespaces not to look at", "presets: [CompactAndScale]\npresetCustomizations: {namespaces: {excluded: [a, kube-system]}}", []string{
			"CompactAndScale: " + usually, strings.Replace(idle(20), `"]`, `","a"]`, 1),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse("policy.yaml", []byte(start+c.text), ten())
			expect.Must(t, err)
			if got := meaning(p); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			written, err := p.Format(Version)
			expect.Must(t, err)
			again, err := Parse("written.yaml", written, ten())
			if err != nil {
				t.Fatalf("%v in\n%s", err, written)
			}
			if got, want := withoutFunctions(again), withoutFunctions(p); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestPresetsInRehomeFormat(t *testing.T) {
	p, err := Parse("policy.yaml", []byte(start+prometheus+`
presets: [DevKubeVirtRelieveAndMigrate, EvictPodsWithPVC, AffinityAndTaints]
presetCustomizations: {devEnableEvictionsInBackground: true, devMigrationCooldown: 5m}
`), ten())
	expect.Must(t, err)
	o := newOpenShift().Presets
	kubevirt := o[slices.IndexFunc(o, func(p presetRow) bool { return p.Name == "KubeVirtRelieveAndMigrate" })]
	idle := []string{
		"The customization devEnableEvictionsInBackground has no effect: Rehome always follows an eviction that a webhook takes over.",
		"The customization devMigrationCooldown has no effect: Rehome does not know live migrations.",
	}
	want := []Preset{
		{Name: "DevKubeVirtRelieveAndMigrate", Profile: "KubeVirtRelieveAndMigrate", Lacks: append(kubevirt.Lacks, idle...)},
		{Name: "EvictPodsWithPVC"},
		{Name: "AffinityAndTaints", Profile: "AffinityAndTaints", Lacks: idle},
	}
	if !reflect.DeepEqual(p.Presets, want) {
		t.Errorf("got  %q\nwant %q", p.Presets, want)
	}
}

func TestPresetsAsProfiles(t *testing.T) {
	data, err := os.ReadFile("testdata/presets/convert.yaml")
	expect.Must(t, err)
	p, err := Parse("policy.yaml", data, ten())
	expect.Must(t, err)
	written, err := p.Format(Version)
	expect.Must(t, err)
	golden(t, "testdata/presets/convert.txt", string(written))
}

func TestPatternsInDeschedulerFormat(t *testing.T) {
	p, err := Parse("policy.yaml", []byte(start+"presets: [CompactAndScale]"), ten())
	expect.Must(t, err)
	const want = "profiles[CompactAndScale].pluginConfig[HighNodeUtilization].args.evictableNamespaces.exclude[2]: " +
		`is a pattern, which is not part of descheduler/v1alpha2, got "openshift-*"; convert to rehome.dev/v1alpha1`
	if data, err := p.Format(DeschedulerVersion); err == nil || err.Error() != want || data != nil {
		t.Errorf("got %s and %v, want %s", data, err, want)
	}
}

// TestPresetTableConsistency finds errors in the data.
func TestPresetTableConsistency(t *testing.T) {
	o := newOpenShift()
	seen := map[string]bool{}
	for _, p := range o.Presets {
		for _, name := range append([]string{p.Name}, p.Older...) {
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
		}
	}
	for _, p := range o.Presets {
		for name := range p.Conflicts {
			if !seen[name] {
				t.Errorf("%s conflicts and is no preset", name)
			}
		}
	}
	for name, query := range o.UsageProfiles {
		if strings.Count(query, "(") != strings.Count(query, ")") || !strings.Contains(query, "by (instance)") {
			t.Errorf("%s: %s", name, query)
		}
	}
	fields := strict.FieldsOf(reflect.ValueOf(Customizations{}))
	for _, name := range slices.Concat(strict.Names(o.Strategies), strict.Names(o.Idle), strict.Names(o.Levels)) {
		if _, known := fields[name]; !known {
			t.Errorf("%s is no customization", name)
		}
	}
}

func TestNamespaceEntryOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a*", "ab", true}, {"ab", "a*", true}, {"a*", "b", false},
		{"ab*", "a*", true}, {"a*", "ab*", true}, {"a*", "b*", false}, {"openshift", "openshift-*", false},
	} {
		if got := overlap(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: got %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestPresetsPage(t *testing.T) {
	page := filetest.Read(t, "../docs/presets.md")
	o := newOpenShift()
	var want []string
	for _, p := range o.Presets {
		want = append(append(want, "`"+p.Name+"`"), p.Older...)
		want = append(want, regexp.MustCompile(`name: ((?:Remove|Pod|Low|High)\w+)`).FindAllString(p.Profile, -1)...)
	}
	for i, name := range want {
		want[i] = strings.TrimPrefix(name, "name: ")
	}
	for _, levels := range o.Levels {
		for name, l := range levels {
			text := fmt.Sprintf("%s %d", name, l.Low)
			if l.High > 0 {
				text += fmt.Sprintf("/%d", l.High)
			}
			want = append(want, text)
		}
	}
	want = append(want, strict.Names(o.UsageProfiles)...)
	for _, name := range strict.Names(strict.FieldsOf(reflect.ValueOf(&Customizations{}).Elem())) {
		if name == "namespaces" {
			want = append(want, "namespaces.included", "namespaces.excluded")
			continue
		}
		want = append(want, "`"+name+"`")
	}
	for _, namespace := range o.ProtectedNamespaces {
		want = append(want, "`"+namespace+"`")
	}
	for _, words := range want {
		if !strings.Contains(page, words) {
			t.Errorf("docs/presets.md does not say %s", words)
		}
	}
}
