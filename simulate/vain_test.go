package simulate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/simulate/objects"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// node returns a node with that many CPUs.
func node(name string, cpu int, more ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %[1]s, labels: {kubernetes.io/hostname: %[1]s}}
spec: {%[3]s}
status: {allocatable: {cpu: "%[2]d", memory: 64Gi, pods: "20"}}
---`, name, cpu, strings.Join(more, ", "))
}

// pod returns a pod of the ReplicaSet r that requests that many CPUs. more are fields of its spec.
func pod(name, node, cpu string, more ...string) string {
	spec := append([]string{
		"nodeName: " + node, fmt.Sprintf("containers: [{name: c, image: i, resources: {requests: {cpu: %q}}}]", cpu),
	}, more...)
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: a, uid: u-%[1]s, labels: {app: r}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: r}]}
spec: {%[2]s}
status: {phase: Running}
---`, name, strings.Join(spec, ", "))
}

func cluster(t *testing.T, parts ...string) []metav1.Object {
	t.Helper()
	found, err := objects.Read([]objects.Source{{Name: "cluster", Data: []byte(strings.Join(parts, ""))}}, kinds())
	expect.Must(t, err)
	return found.Objects
}

// moved returns the names of the pods that a round of one strategy moves, without nodeFit.
func moved(t *testing.T, strategy string, objects []metav1.Object) []string {
	t.Helper()
	var names []string
	enabled := profile("p", "{}", strategy)
	if name, _, _ := strings.Cut(strategy, " "); slices.ContainsFunc(settings.Strategies(), func(s policy.Strategy) bool {
		return s.Name == name && s.Point == policy.Balance
	}) {
		enabled = strings.Replace(enabled, "deschedule", "balance", 1)
	}
	for _, line := range round(t, simulate.Config{Policy: parse(t, enabled)}, objects) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == "evicted" {
			names = append(names, fields[1])
		}
	}
	return names
}

const (
	apart   = `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: r}}}]}}`
	onlyN1  = `nodeSelector: {kubernetes.io/hostname: n1}`
	evenly  = `topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: r}}}]`
	claims  = `volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]`
	storage = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: a, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec: {volumeName: disk, storageClassName: "", accessModes: [ReadWriteOnce]}
status: {phase: Bound}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  accessModes: [ReadWriteOnce]
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
---`
)

// moveCase is a cluster with the pods that a strategy moves.
type moveCase struct {
	name, strategy string
	objects        []string
	want           []string
}

func checkMoves(t *testing.T, cases []moveCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, "moved pods", moved(t, c.strategy, cluster(t, c.objects...)), c.want)
		})
	}
}

// Even without nodeFit, pods must stay if their replacements would return or stay Pending.
func TestMovesInVain(t *testing.T) {
	const high = "HighNodeUtilization {thresholds: {cpu: 30}}"
	const low = "LowNodeUtilization {thresholds: {cpu: 30}, targetThresholds: {cpu: 50}}"
	checkMoves(t, []moveCase{
		{"anti_affinity_into_pending", "RemovePodsViolatingInterPodAntiAffinity {}", []string{
			node("n1", 4), node("n2", 1), pod("one", "n1", "2", apart), pod("two", "n1", "2", apart),
		}, nil},
		{"anti_affinity_with_capacity", "RemovePodsViolatingInterPodAntiAffinity {}", []string{
			node("n1", 4), node("n2", 2), pod("one", "n1", "2", apart), pod("two", "n1", "2", apart),
		}, []string{"one"}},
		{"anti_affinity_with_one_slot_for_two", "RemovePodsViolatingInterPodAntiAffinity {}", []string{
			node("n1", 8), node("n2", 2), pod("one", "n1", "2", apart), pod("two", "n1", "2", apart), pod("three", "n1", "2", apart),
		}, []string{"one"}},
		{"duplicates_beside_full_nodes", "RemoveDuplicates {}", []string{
			node("n1", 4), node("n2", 1), node("n3", 1), pod("one", "n1", "2"), pod("two", "n1", "2"),
		}, nil},
		{"duplicates_count_only_nodes_with_capacity", "RemoveDuplicates {}", []string{
			node("n1", 8), node("n2", 4), node("n3", 1), node("n4", 1),
			pod("one", "n1", "2"), pod("two", "n1", "2"), pod("three", "n2", "2"), pod("four", "n2", "2"),
		}, nil},
		{"duplicates_bound_by_a_volume", "RemoveDuplicates {}", []string{
			storage, node("n1", 4), node("n2", 4), pod("one", "n1", "2", claims), pod("two", "n1", "2", claims),
		}, nil},
		{"spread_without_capacity", "RemovePodsViolatingTopologySpreadConstraint {}", []string{
			node("n1", 8), node("n2", 1), pod("one", "n1", "2", evenly), pod("two", "n1", "2", evenly),
		}, nil},
		{"low_pod_pinned_by_a_selector", low, []string{
			node("n1", 4), node("n2", 4), pod("pinned", "n1", "3", onlyN1),
		}, nil},
		{"high_pod_bound_by_a_volume", high, []string{
			storage, node("n1", 4), node("n2", 4), pod("bound", "n1", "1", claims), pod("stays", "n2", "2"),
		}, nil},
	})
}

const (
	others = `schedulerName: mine`
	claim  = `resourceClaims: [{name: gpu}]`
	onlyN2 = `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n2]}]}]}}}`
	wantN2 = `affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n2]}]}}]}}`
	cordon = `unschedulable: true`
	taint  = `taints: [{key: k, effect: NoSchedule}]`
)

// A pod that Rehome cannot judge must move to any node whose taints and labels accept it.
func TestUnjudgedPodsMove(t *testing.T) {
	const required = "RemovePodsViolatingNodeAffinity {nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}"
	const preferred = "RemovePodsViolatingNodeAffinity {nodeAffinityType: [preferredDuringSchedulingIgnoredDuringExecution]}"
	const spread = "RemovePodsViolatingTopologySpreadConstraint {}"
	checkMoves(t, []moveCase{
		{"required_node", required, []string{node("n1", 4), node("n2", 4), pod("one", "n1", "1", others, onlyN2)}, []string{"one"}},
		{"required_node_with_a_claim", required, []string{node("n1", 4), node("n2", 4), pod("one", "n1", "1", claim, onlyN2)}, []string{"one"}},
		{"preferred_node", preferred, []string{node("n1", 4), node("n2", 4), pod("one", "n1", "1", others, wantN2)}, []string{"one"}},
		{"not_to_a_cordoned_node", required, []string{
			node("n1", 4), node("n2", 4, cordon), node("n3", 4), pod("one", "n1", "1", others, onlyN2),
		}, nil},
		{"spread", spread, []string{
			node("n1", 8), node("n2", 4), pod("one", "n1", "2", others, evenly), pod("two", "n1", "2", others, evenly),
		}, []string{"one"}},
		{"spread_not_to_a_tainted_node", spread, []string{
			node("n1", 8), node("n2", 4, taint), node("n3", 4, cordon), pod("one", "n1", "2", others, evenly), pod("two", "n1", "2", others, evenly),
		}, nil},
	})
}

// A node that another program empties must not count as a node that can take a pod.
func TestExcludedNodesTakeNone(t *testing.T) {
	const taints = "RemovePodsViolatingNodeTaints {}"
	const required = "RemovePodsViolatingNodeAffinity {nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}"
	excluded := func(node string) string {
		return strings.Replace(node, "metadata: {", `metadata: {annotations: {weave.works/kured-reboot-in-progress: "1"}, `, 1)
	}
	checkMoves(t, []moveCase{
		{"the_only_fitting_node", required, []string{
			node("n1", 4), excluded(node("n2", 4)), node("n3", 4), pod("one", "n1", "1", onlyN2),
		}, nil},
		{"for_a_pod_that_is_not_judged", required, []string{
			node("n1", 4), excluded(node("n2", 4)), node("n3", 4), pod("one", "n1", "1", others, onlyN2),
		}, nil},
		{"the_predicted_node", taints, []string{
			node("n1", 4, taint), excluded(node("n2", 64)), node("n3", 2), pod("one", "n1", "1"),
		}, nil},
		{"the_predicted_node_without_others", taints, []string{
			node("n1", 4, taint), excluded(node("n2", 64)), node("n3", 0), pod("one", "n1", "1"),
		}, nil},
		{"a_node_that_the_scheduler_only_avoids", taints, []string{
			node("n1", 4, taint), node("n2", 4, `taints: [{key: DeletionCandidateOfClusterAutoscaler, effect: PreferNoSchedule}]`),
			node("n3", 0), pod("one", "n1", "1"),
		}, []string{"one"}},
		{"another_node_is_predicted", taints, []string{
			node("n1", 4, taint), excluded(node("n2", 2)), node("n3", 64), pod("one", "n1", "1"),
		}, []string{"one"}},
	})
}
