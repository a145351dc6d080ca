package policy

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestOlderStrategyParams(t *testing.T) {
	for _, c := range []struct{ name, strategy, params, want string }{
		{"thresholds of a block", "LowNodeUtilization",
			`{nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, numberOfNodes: 3,
			  useDeviationThresholds: true}}`,
			`{"thresholds":{"cpu":20},"targetThresholds":{"cpu":50},"useDeviationThresholds":true,"numberOfNodes":3}`},
		{"namespaces that a busy node may be relieved of", "LowNodeUtilization",
			`{namespaces: {exclude: [a]}, nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}}`,
			`{"thresholds":{"cpu":20},"targetThresholds":{"cpu":50},"evictableNamespaces":{"exclude":["a"]}}`},
		{"namespaces that an idle node may be emptied of", "HighNodeUtilization",
			`{namespaces: {exclude: [a]}, nodeResourceUtilizationThresholds: {thresholds: {pods: 5}, numberOfNodes: 1}}`,
			`{"thresholds":{"pods":5},"numberOfNodes":1,"evictableNamespaces":{"exclude":["a"]}}`},
		{"soft constraints", "RemovePodsViolatingTopologySpreadConstraint",
			`{includeSoftConstraints: true, namespaces: {include: [a]}, labelSelector: {matchLabels: {a: b}}}`,
			`{"namespaces":{"include":["a"]},"labelSelector":{"matchLabels":{"a":"b"}},"constraints":["DoNotSchedule","ScheduleAnyway"]}`},
		{"no soft constraints, which is the default", "RemovePodsViolatingTopologySpreadConstraint",
			`{includeSoftConstraints: false}`, `{}`},
		{"kinds of a block", "RemoveDuplicates", `{removeDuplicates: {excludeOwnerKinds: [ReplicaSet]}, namespaces: {include: [a]}}`,
			`{"namespaces":{"include":["a"]},"excludeOwnerKinds":["ReplicaSet"]}`},
		{"types of affinity", "RemovePodsViolatingNodeAffinity", `{nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}`,
			`{"nodeAffinityType":["requiredDuringSchedulingIgnoredDuringExecution"]}`},
		{"none", "RemovePodsViolatingInterPodAntiAffinity", `null`, `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\nstrategies:\n  " + c.strategy +
				":\n    enabled: true\n    params: " + c.params + "\n"
			p, err := Parse("policy.yaml", []byte(text), ten())
			expect.Must(t, err)
			if got := string(p.Profiles[0].Strategies[0].Args); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestOlderFileStrategyOrder(t *testing.T) {
	const text = `apiVersion: descheduler/v1alpha1
kind: DeschedulerPolicy
strategies:
  RemoveDuplicates: {enabled: true}
  RemovePodsViolatingNodeTaints: {enabled: true}
  RemovePodsViolatingTopologySpreadConstraint: {enabled: true}
  PodLifeTime: {enabled: true, params: {podLifeTime: {maxPodLifeTimeSeconds: 1}}}
`
	p, err := Parse("policy.yaml", []byte(text), ten())
	expect.Must(t, err)
	var got []string
	for _, s := range p.Profiles[0].Strategies {
		got = append(got, s.Name)
	}
	want := []string{
		"RemovePodsViolatingNodeTaints", "PodLifeTime", "RemoveDuplicates", "RemovePodsViolatingTopologySpreadConstraint",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestOlderStrategyProblems(t *testing.T) {
	const text = `apiVersion: descheduler/v1alpha1
kind: DeschedulerPolicy
maxNoOfPodsToEvictTotal: -1
strategies:
  LowNodeUtilization:
    enabled: true
    params:
      namespaces:
        include: [a]
        exclude:
        - kube-*
      nodeResourceUtilizationThresholds:
        thresholds: {cpu: 101}
        useDeviation: true
  HighNodeUtilization:
    enabled: true
    params:
      nodeResourceUtilizationThresholds:
        targetThresholds: {cpu: 1}
  RemovePodsViolatingTopologySpreadConstraint:
    enabled: true
    params:
      includeSoftConstraints: sometimes
  Newer:
    enabled: true
`
	newer := Strategy{Name: "Newer", Point: Deschedule, NewArgs: func() Args { return &taintArgs{} }}
	_, err := Parse("p", []byte(text), append(ten(), newer))
	const low, high = "strategies[LowNodeUtilization].params", "strategies[HighNodeUtilization].params"
	want := []string{
		`p:3: maxNoOfPodsToEvictTotal: must not be negative, got -1`,
		`p:8: ` + low + `.namespaces: has both include and exclude; keep one`,
		`p:9: ` + low + `.namespaces.include: cannot be used by this strategy; list the other namespaces in exclude`,
		`p:11: ` + low + `.namespaces.exclude[0]: is a pattern, which only rehome.dev/v1alpha1 has, got "kube-*"; ` +
			`write exact names, or apiVersion: rehome.dev/v1alpha1`,
		`p:12: ` + low + `.nodeResourceUtilizationThresholds.targetThresholds: names no resource; want at least one, such as cpu: 20`,
		`p:13: ` + low + `.nodeResourceUtilizationThresholds.thresholds[cpu]: is not a percentage, got 101; want a percentage from 0 to 100`,
		`p:14: ` + low + `.nodeResourceUtilizationThresholds.useDeviation: unknown field; ` +
			`known here: numberOfNodes, targetThresholds, thresholds, useDeviationThresholds`,
		`p:18: ` + high + `.nodeResourceUtilizationThresholds.thresholds: names no resource; want at least one, such as cpu: 20`,
		`p:19: ` + high + `.nodeResourceUtilizationThresholds.targetThresholds: unknown field; did you mean thresholds?`,
		`p:23: strategies[RemovePodsViolatingTopologySpreadConstraint].params.includeSoftConstraints: ` +
			`want true or false, got the text "sometimes"`,
		`p:24: strategies[Newer]: is no strategy of descheduler/v1alpha1, got "Newer"; write apiVersion: descheduler/v1alpha2, with a profile`,
	}
	if err == nil || !reflect.DeepEqual(strings.Split(err.Error(), "\n"), want) {
		t.Errorf("got:\n%v\nwant:\n%s", err, strings.Join(want, "\n"))
	}
}
