package actuator

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
)

// given is a [View] with the content that a test sets.
type given struct {
	pods    map[types.UID]cluster.Pod
	tallies map[types.UID]cluster.Tally
	nodes   []cluster.Node
	// order are the pods in the order in which they became known; the first has the number 1.
	order []types.UID
}

func (g given) Pod(uid types.UID) (cluster.Pod, bool) {
	p, ok := g.pods[uid]
	return p, ok
}

func (g given) Pods(w types.UID) []cluster.Pod {
	var out []cluster.Pod
	for _, uid := range g.order {
		if p, ok := g.pods[uid]; ok && p.Workload.UID == w {
			out = append(out, p)
		}
	}
	return out
}

func (g given) Tally(w types.UID) cluster.Tally { return g.tallies[w] }
func (g given) Nodes() []cluster.Node           { return g.nodes }

func (g given) Seen(pod types.UID) uint64 {
	for i, uid := range g.order {
		if uid == pod {
			return uint64(i + 1)
		}
	}
	return 0
}

// Object implements View. No pod is known completely.
func (given) Object(types.UID) *corev1.Pod { return nil }

func (g given) Latest() uint64 { return uint64(len(g.order)) }

// api is the workload of the pods of these tests.
var api = schemas.ObjectRef{Kind: "Deployment", Namespace: "web", Name: "api", UID: "uid-api"}

// replica returns a ready pod of api on a node, created that many seconds after noon.
func replica(name, node string, seconds int) cluster.Pod {
	return cluster.Pod{
		Ref:      schemas.PodRef{Namespace: "web", Name: name, UID: types.UID("uid-" + name)},
		Workload: api, Node: node, Created: noon.Add(time.Duration(seconds) * time.Second), Ready: true,
	}
}

// noView is an empty view.
type noView struct{}

func (noView) Pod(types.UID) (cluster.Pod, bool) { return cluster.Pod{}, false }
func (noView) Pods(types.UID) []cluster.Pod      { return nil }
func (noView) Tally(types.UID) cluster.Tally     { return cluster.Tally{} }
func (noView) Nodes() []cluster.Node             { return nil }
func (noView) Object(types.UID) *corev1.Pod      { return nil }
func (noView) Seen(types.UID) uint64             { return 0 }
func (noView) Latest() uint64                    { return 0 }
