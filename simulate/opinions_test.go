package simulate_test

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
)

func TestEveryStrategyHasAnOpinionAboutAPodAndEveryProfileItsProtections(t *testing.T) {
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
			opinions, guards, err := simulate.Opinions(simulate.Config{
				Policy: p, Functions: functions.All(), Now: at,
			}, started(t, read(t, "taints.yaml")), c.pod)
			if err != nil || !reflect.DeepEqual(opinions, c.opinions) || !reflect.DeepEqual(guards, c.guards) {
				t.Errorf("error %v\ngot  %+v\n     %+v\nwant %+v\n     %+v", err, opinions, guards, c.opinions, c.guards)
			}
		})
	}
}

func TestAStrategyThatIsNotInTheProgramHasNoOpinion(t *testing.T) {
	p := parse(t, profile("all", "{}", "RemovePodsViolatingNodeTaints {}"))
	opinions, _, err := simulate.Opinions(simulate.Config{Policy: p, Now: at}, read(t, "taints.yaml"), "u-moves")
	want := []simulate.Opinion{{
		Profile: "all", Strategy: "RemovePodsViolatingNodeTaints", Unknown: "it is asked outside of this program",
	}}
	if err != nil || !reflect.DeepEqual(opinions, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, opinions, want)
	}
}

// started are the pods, all of which started now.
func started(t *testing.T, objects []metav1.Object) []metav1.Object {
	t.Helper()
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			p.CreationTimestamp, p.Status.StartTime = metav1.NewTime(at()), new(metav1.NewTime(at()))
		}
	}
	return objects
}

// dueAt is when a pod that started now is older than an hour.
func dueAt() time.Time { return at().Add(time.Hour + time.Second) }
