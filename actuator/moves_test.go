package actuator

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// onTheWay returns a move in flight of the pod with that UID, begun that many seconds after noon.
func onTheWay(uid types.UID, at limitKeys, seconds int) *inFlight {
	o := wish()
	o.ID, o.Pod.UID = string(uid), uid
	began := noon.Add(time.Duration(seconds) * time.Second)
	return &inFlight{record: record{Intent: o, Begun: began, Moved: began}, at: at}
}

func TestMovesCountAgainstLimits(t *testing.T) {
	one := onTheWay("1", limitKeys{"worker-1", "web", "uid-api"}, 0)
	two := onTheWay("2", limitKeys{"worker-1", "shop", ""}, 1)
	m := newMoves()
	m.add(one, noView{})
	m.add(two, noView{})
	want := newMoves()
	want.all = map[types.UID]*inFlight{"1": one, "2": two}
	want.workloads = map[types.UID]*workloadMoves{"uid-api": {
		moves: map[types.UID]*inFlight{"1": one}, going: map[types.UID]bool{}, replacements: map[types.UID]*inFlight{},
	}}
	want.nodes = map[string]int{"worker-1": 2}
	want.namespaces = map[string]int{"web": 1, "shop": 1}
	expect.Equal(t, "in flight", m, want)

	m.remove(onTheWay("2", two.at, 1)) // another move of that pod
	expect.Equal(t, "in flight after one was removed that is not", m, want)
	m.remove(one)
	m.remove(one)
	m.remove(two)
	expect.Equal(t, "in flight at the end", m, newMoves())
}

func TestMoveRecord(t *testing.T) {
	v := given{pods: map[types.UID]cluster.Pod{"uid-0": replica("0", "worker-9", 0)}}
	expect.Equal(t, "mark", keysOf(wish(), v), limitKeys{"worker-1", "web", "uid-api"})
	expect.Equal(t, "workload", workloadOf(v, "uid-0"), &api)
	expect.Equal(t, "mark of an unknown pod", keysOf(wish(), noView{}), limitKeys{"worker-1", "web", ""})
	expect.Equal(t, "workload of an unknown pod", workloadOf(noView{}, "uid-0"), nil)
	alone := v.pods["uid-0"]
	alone.Workload = schemas.ObjectRef{}
	expect.Equal(t, "workload of a pod that has none", workloadOf(given{pods: map[types.UID]cluster.Pod{"uid-0": alone}}, "uid-0"), nil)
}
