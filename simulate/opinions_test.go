package simulate_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
)

func TestOpinions(t *testing.T) {
	p := parse(t,
		profile("all", "{}", "RemovePodsViolatingNodeTaints {}", "PodLifeTime {maxPodLifeTimeSeconds: 3600}"),
		profile("daemons", "{evictDaemonSetPods: true, evictSystemCriticalPods: true}", "RemovePodsViolatingNodeTaints {}"),
	)
	const taints = "RemovePodsViolatingNodeTaints"
	const reason = "does not tolerate gone:NoSchedule"
	wants := func(profile string) simulate.Opinion {
		return simulate.Opinion{Profile: profile, Strategy: taints, Wants: true, Scope: "node/n1", Reason: reason}
	}
	none := []schemas.Protection{}
	for _, c := range []struct {
		pod      types.UID
		opinions []simulate.Opinion
		guards   []simulate.Guard
	}{
		{"u-moves", []simulate.Opinion{wants("all"), {Profile: "all", Strategy: "PodLifeTime", Due: dueAt()}, wants("daemons")},
			[]simulate.Guard{{Profile: "all", Rules: none}, {Profile: "daemons", Rules: none}}},
		{"u-tolerates", []simulate.Opinion{
			{Profile: "all", Strategy: taints}, {Profile: "all", Strategy: "PodLifeTime", Due: dueAt()},
			{Profile: "daemons", Strategy: taints},
		}, []simulate.Guard{{Profile: "all", Rules: none}, {Profile: "daemons", Rules: none}}},
		{"u-critical-agent", []simulate.Opinion{
			{Profile: "all", Strategy: taints, Protected: true, Scope: "node/n1", Reason: reason},
			{Profile: "all", Strategy: "PodLifeTime", Due: dueAt()}, wants("daemons"),
		}, []simulate.Guard{
			{Profile: "all", Rules: []schemas.Protection{
				{Rule: "SystemCriticalPods", Detail: "its priority 2000000000 is system-critical: at least 2000000000"},
				{Rule: "DaemonSetPods", Detail: "it belongs to the DaemonSet agent"},
			}},
			{Profile: "daemons", Rules: none},
		}},
		{"u-silent", []simulate.Opinion{
			{Profile: "all", Strategy: taints}, {Profile: "all", Strategy: "PodLifeTime", Due: dueAt()},
			{Profile: "daemons", Strategy: taints},
		}, []simulate.Guard{
			{Profile: "all", Rules: []schemas.Protection{{Rule: "NodeNotUsable", Detail: "node n3 is not ready"}}},
			{Profile: "daemons", Rules: []schemas.Protection{{Rule: "NodeNotUsable", Detail: "node n3 is not ready"}}},
		}},
		{"u-unplaced", []simulate.Opinion{
			{Profile: "all", Strategy: taints}, {Profile: "all", Strategy: "PodLifeTime", Due: dueAt()},
			{Profile: "daemons", Strategy: taints},
		}, []simulate.Guard{{Profile: "all", Rules: none}, {Profile: "daemons", Rules: none}}},
		{"u-nobody", nil, nil},
	} {
		t.Run(string(c.pod), func(t *testing.T) {
			got, err := simulate.Opinions(simulate.Config{
				Policy: p, Functions: functions.All(), Now: at,
			}, started(t, read(t, "taints.yaml")), c.pod)
			if err != nil || !reflect.DeepEqual(got.Opinions, c.opinions) || !reflect.DeepEqual(got.Guards, c.guards) {
				t.Errorf("error %v\ngot  %+v\n     %+v\nwant %+v\n     %+v", err, got.Opinions, got.Guards, c.opinions, c.guards)
			}
		})
	}
}

func TestOpinionOfUnknownStrategy(t *testing.T) {
	p := parse(t, profile("all", "{}", "RemovePodsViolatingNodeTaints {}"))
	got, err := simulate.Opinions(simulate.Config{Policy: p, Now: at}, read(t, "taints.yaml"), "u-moves")
	want := []simulate.Opinion{{
		Profile: "all", Strategy: "RemovePodsViolatingNodeTaints", Unknown: "it runs outside of this program",
	}}
	if err != nil || !reflect.DeepEqual(got.Opinions, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, got.Opinions, want)
	}
}

// started returns the pods, which all started now.
func started(t *testing.T, objects []metav1.Object) []metav1.Object {
	t.Helper()
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			p.CreationTimestamp, p.Status.StartTime = metav1.NewTime(at()), new(metav1.NewTime(at()))
		}
	}
	return objects
}

// dueAt returns the time when a pod that started now is older than an hour.
func dueAt() time.Time { return at().Add(time.Hour + time.Second) }

// A strategy must keep a pod whose replacement has no better place.
func TestOpinionsInVain(t *testing.T) {
	const spreads, duplicates = "RemovePodsViolatingTopologySpreadConstraint", "RemoveDuplicates"
	const affine = "RemovePodsViolatingNodeAffinity"
	balance := func(strategy string) string {
		return strings.Replace(profile("p", "{}", strategy+" {}"), "deschedule", "balance", 1)
	}
	const elsewhere = `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: ` +
		`[{key: kubernetes.io/hostname, operator: In, values: [n2]}]}]}}}`
	for _, c := range []struct {
		name, profile string
		objects       []string
		want          simulate.Opinion
		replacement   string
	}{
		{"full_domain", balance(spreads), []string{
			node("n1", 8), node("n2", 1), pod("one", "n1", "2", evenly), pod("two", "n1", "2", evenly),
		}, simulate.Opinion{Strategy: spreads, Vain: true}, "would be Pending: it does not fit on the only other node: resource"},
		{"free_domain", balance(spreads), []string{
			node("n1", 8), node("n2", 2), pod("one", "n1", "2", evenly), pod("two", "n1", "2", evenly),
		}, simulate.Opinion{Strategy: spreads, Wants: true, Reason: "hostname n1 has 2 pods, n2 has 0: more than 1 apart (kubernetes.io/hostname)"}, "would run on n2"},
		{"duplicate_beside_a_full_node", balance(duplicates), []string{
			node("n1", 4), node("n2", 1), pod("one", "n1", "2"), pod("two", "n1", "2"),
		}, simulate.Opinion{Strategy: duplicates}, "would run on n1 again: it does not fit on the only other node: resource"},
		{"node_affinity_to_a_full_node", profile("p", "{}", affine+" {nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}"), []string{
			node("n1", 4), node("n2", 1), pod("one", "n1", "2", elsewhere),
		}, simulate.Opinion{Strategy: affine, Vain: true}, "would be Pending: it does not fit on the only other node: resource"},
		{"anti_affinity_into_pending", profile("p", "{}", "RemovePodsViolatingInterPodAntiAffinity {}"), []string{
			node("n1", 4), node("n2", 1), pod("one", "n1", "2", apart), pod("two", "n1", "2", apart),
		}, simulate.Opinion{Strategy: "RemovePodsViolatingInterPodAntiAffinity", Vain: true, Reason: "its anti-affinity forbids it beside a/two (topology kubernetes.io/hostname)"},
			"would be Pending: it does not fit on the only other node: resource"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := simulate.Opinions(simulate.Config{Policy: parse(t, c.profile), Functions: functions.All(), Now: at},
				cluster(t, c.objects...), "u-one")
			if err != nil || len(got.Opinions) != 1 {
				t.Fatalf("error %v, got %+v", err, got)
			}
			got.Opinions[0].Scope = ""
			if c.want.Profile = "p"; c.want != got.Opinions[0] || got.Replacement != c.replacement {
				t.Errorf("got  %+v, %q\nwant %+v, %q", got.Opinions[0], got.Replacement, c.want, c.replacement)
			}
		})
	}
}
