package actuator

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/workload"
	"github.com/rehome-dev/rehome/schemas"
)

// onTheWay is a move in flight of the pod of that UID, begun so many seconds after noon.
func onTheWay(uid types.UID, at mark, seconds int) *moving {
	o := wish()
	o.Intent.ID, o.Intent.Pod.UID = string(uid), uid
	began := noon.Add(time.Duration(seconds) * time.Second)
	return &moving{record: record{Open: o, Begun: began, Moved: began}, at: at}
}

func TestMovesCountAgainstTheirNodeNamespaceAndWorkload(t *testing.T) {
	one := onTheWay("1", mark{"worker-1", "web", "uid-api"}, 0)
	two := onTheWay("2", mark{"worker-1", "shop", ""}, 1)
	m := newMoves()
	m.add(one)
	m.add(two)
	want := newMoves()
	want.all = map[types.UID]*moving{"1": one, "2": two}
	want.workloads = map[types.UID]map[types.UID]*moving{"uid-api": {"1": one}}
	want.nodes = map[string]int{"worker-1": 2}
	want.namespaces = map[string]int{"web": 1, "shop": 1}
	check(t, "in flight", m, want)

	m.remove(onTheWay("2", two.at, 1)) // another move of that pod
	check(t, "in flight after one was removed that is not", m, want)
	m.remove(one)
	m.remove(one)
	m.remove(two)
	check(t, "in flight at the end", m, newMoves())
}

func TestTheMovesOfAWorkloadComeOldestFirst(t *testing.T) {
	m := newMoves()
	at := mark{"worker-1", "web", "uid-api"}
	for uid, second := range map[types.UID]int{"3": 2, "2": 0, "1": 0, "4": 1} {
		m.add(onTheWay(uid, at, second))
	}
	var got []types.UID
	for _, x := range m.of("uid-api") {
		got = append(got, x.Open.Intent.Pod.UID)
	}
	check(t, "moves", got, []types.UID{"1", "2", "4", "3"})
	check(t, "moves of another workload", m.of("uid-db"), []*moving{})
}

func TestAMoveIsMarkedByWhatTheIntentAndTheViewSay(t *testing.T) {
	v := given{pods: map[types.UID]workload.Pod{"uid-0": replica("0", "worker-9", 0)}}
	check(t, "mark", marked(wish(), v), mark{"worker-1", "web", "uid-api"})
	check(t, "workload", workloadOf(v, "uid-0"), &api)
	check(t, "mark of a pod that is not known", marked(wish(), blank{}), mark{"worker-1", "web", ""})
	check(t, "workload of a pod that is not known", workloadOf(blank{}, "uid-0"), nil)
	alone := v.pods["uid-0"]
	alone.Workload = schemas.ObjectRef{}
	check(t, "workload of a pod that has none", workloadOf(given{pods: map[types.UID]workload.Pod{"uid-0": alone}}, "uid-0"), nil)
}
