package simulate_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// kubelet sets the version of the kubelet of a node from [node].
func kubelet(node, version string) string {
	return strings.ReplaceAll(node, "status: {", "status: {nodeInfo: {kubeletVersion: "+version+"}, ")
}

// The scheduler of 1.35 prefers n2, where the resources are used evenly with the pod. The scheduler of 1.36 prefers n3, where the
// pod improves the balance.
func TestSchedulerVersion(t *testing.T) {
	other := func(p string) string { return strings.ReplaceAll(p, "name: r", "name: s") }
	memory := func(p, amount string) string {
		return strings.ReplaceAll(p, "requests: {", "requests: {memory: "+amount+", ")
	}
	for _, c := range []struct {
		name     string
		minor    int
		kubelets [3]string
		want     string
	}{
		{"kubelets_of_1.35", 0, [3]string{"v1.35.4", "v1.35.4", "v1.35.4"}, "one n1>n2"},
		{"kubelets_of_1.36", 0, [3]string{"v1.36.3", "v1.36.3", "v1.36.3"}, "one n1>n3"},
		{"newest_kubelet", 0, [3]string{"v1.34.1", "v1.36.3-gke.1", "v1.35.4"}, "one n1>n3"},
		{"other_kubelets", 0, [3]string{"kwok-v0.8.0", "v0.7.0", `""`}, "one n1>n3"},
		{"given_version", 35, [3]string{"v1.36.3", "v1.36.3", "v1.36.3"}, "one n1>n2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := settle(t, simulate.Config{Policy: parse(t, profile("p", "{}", taints)), MinorVersion: c.minor}, cluster(t,
				kubelet(node("n1", 4, avoided), c.kubelets[0]), kubelet(node("n2", 4), c.kubelets[1]), kubelet(node("n3", 4), c.kubelets[2]),
				memory(pod("one", "n1", "1"), "4Gi"), memory(other(pod("two", "n2", "2")), "48Gi"), other(pod("three", "n3", "3"))), 10)
			if want := [][]string{{c.want}, nil}; !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// Up to 1.36, the replacement fits on n2, because its affinity selects every namespace.
func TestVersionOfDecisions(t *testing.T) {
	const namespace = `
apiVersion: v1
kind: Namespace
metadata: {name: a, labels: {team: red}}
---`
	const near = `affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, ` +
		`labelSelector: {matchLabels: {app: s}}, namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}]}}`
	for version, want := range map[string][]string{
		"v1.36.3": {
			header, "a one n1 RemovePodsViolatingNodeTaints evicted does not tolerate gone:NoSchedule",
			"counts: 1 evicted, 0 deferred, 0 rejected",
		},
		"v1.37.2": {
			header, "a one n1 RemovePodsViolatingNodeTaints rejected Protected: NodeFit: does not fit on the only other node: pod-affinity",
			"counts: 0 evicted, 0 deferred, 1 rejected",
		},
	} {
		t.Run(version, func(t *testing.T) {
			c := simulate.Config{Policy: parse(t, profile("p", "{nodeFit: true}", taints)), Functions: functions.All(), Now: at}
			objects := func() []metav1.Object {
				return cluster(t, namespace, kubelet(node("n1", 4, avoided), version), kubelet(node("n2", 4), version),
					pod("one", "n1", "1", near), strings.ReplaceAll(pod("two", "n2", "1"), "app: r", "app: s"))
			}
			expect.Equal(t, "decisions", round(t, c, objects()), want)
			about, err := simulate.Opinions(c, objects(), "u-one")
			expect.Must(t, err)
			expect.Equal(t, "the strategy wants the pod to move", about.Opinions[0].Wants, strings.Contains(want[1], "evicted"))
		})
	}
}
