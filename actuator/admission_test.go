package actuator

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// free returns the admission of a ready pod, one of four of Deployment web/api. Two other pods of the Deployment are
// being moved off worker-1, and no rule parks it.
func free() admission {
	v := given{pods: map[types.UID]cluster.Pod{}, tallies: map[types.UID]cluster.Tally{"uid-api": {Wanted: 4, Ready: 4}}}
	for _, name := range []string{"0", "1", "2", "3"} {
		p := replica(name, "worker-1", 0)
		v.pods[p.Ref.UID] = p
		v.order = append(v.order, p.Ref.UID)
	}
	c := admission{intent: wish(), moves: newMoves(), view: v, now: noon, limits: policy.Limits{Unavailable: most("100%")}}
	c.at = keysOf(c.intent, v)
	c.moves.add(onTheWay("uid-1", c.at, -20), v)
	c.moves.add(onTheWay("uid-2", c.at, -10), v)
	c.moves.last["uid-api"] = noon.Add(-10 * time.Second)
	return c
}

// most returns a share of the policy.
func most(share string) *intstr.IntOrString {
	s := intstr.Parse(share)
	return &s
}

// heldForNow returns the expected parking.
func heldForNow(by blocker, ref schemas.ObjectRef, reason schemas.ReasonCode, message string) parked {
	return parked{by: by, why: deferredBy([]schemas.ObjectRef{ref}, reason, message)}
}

func TestFirstMatchingRule(t *testing.T) {
	number := func(n uint) *uint { return &n }
	byNode := heldForNow(blocker{"node", "worker-1"}, schemas.ObjectRef{Kind: "Node", Name: "worker-1"},
		schemas.ReasonMovingNode, "2 pods of node worker-1 are being moved, which is the limit")
	byNamespace := heldForNow(blocker{"namespace", "web"}, schemas.ObjectRef{Kind: "Namespace", Name: "web"},
		schemas.ReasonMovingNamespace, "2 pods of namespace web are being moved, which is the limit")
	byWorkload := func(reason schemas.ReasonCode, message string) parked {
		return heldForNow(blocker{"workload", "uid-api"}, api, reason, message)
	}
	moving := byWorkload(schemas.ReasonMovingWorkload, "2 pods of deployment/web/api are being moved, which is the limit")
	pause := byWorkload(schemas.ReasonWorkloadPause, "another pod of deployment/web/api was moved less than 15s ago")
	pause.until = noon.Add(5 * time.Second)
	share := byWorkload(schemas.ReasonWorkloadUnavailable,
		"2 of 4 pods of deployment/web/api are available, and without a poddisruptionbudget 2 may be unavailable at once")

	nodeFull := func(c *admission) { c.limits.InFlight.PerNode = number(2) }
	namespaceFull := func(c *admission) { c.limits.InFlight.PerNamespace = number(2) }
	workloadFull := func(c *admission) { c.limits.InFlight.PerWorkload = number(2) }
	tooSoon := func(c *admission) { c.limits.Pause = 15 * time.Second }
	shareUsedUp := func(c *admission) { c.limits.Unavailable = most("50%") }
	alone := func(c *admission) { c.at.workload = "" }
	pod := func(change func(*cluster.Pod)) func(*admission) {
		return func(c *admission) {
			p := c.view.(given).pods["uid-0"]
			change(&p)
			c.view.(given).pods["uid-0"] = p
		}
	}

	for _, c := range []struct {
		name string
		but  []func(*admission)
		want parked // the zero value parks nothing
	}{
		{"as many pods on the move as may be at all", []func(*admission){func(c *admission) { c.limits.InFlight.Total = number(2) }},
			parked{by: blocker{kind: "everything"}, why: &move.Refusal{
				Outcome: schemas.Deferred, Reason: schemas.ReasonMovingTotal, Message: "2 pods are being moved, which is the limit",
			}}},
		{"fewer than that", []func(*admission){func(c *admission) { c.limits.InFlight.Total = number(3) }}, parked{}},
		{"without limits in flight nothing holds", nil, parked{}},
		{"a node at its limit of moves", []func(*admission){nodeFull}, byNode},
		{"a node below its limit", []func(*admission){func(c *admission) { c.limits.InFlight.PerNode = number(3) }}, parked{}},
		{"another node", []func(*admission){nodeFull, func(c *admission) { c.at.node = "worker-2" }}, parked{}},
		{"a limit of one in the singular", []func(*admission){func(c *admission) { c.limits.InFlight.PerNode = number(1) }},
			heldForNow(byNode.by, byNode.why.Blockers[0], schemas.ReasonMovingNode, "1 pod of node worker-1 is being moved, which is the limit")},
		{"a namespace at its limit of moves", []func(*admission){namespaceFull}, byNamespace},
		{"a namespace below its limit", []func(*admission){func(c *admission) { c.limits.InFlight.PerNamespace = number(3) }}, parked{}},
		{"a workload at its limit of moves", []func(*admission){workloadFull}, moving},
		{"a workload below its limit", []func(*admission){func(c *admission) { c.limits.InFlight.PerWorkload = number(3) }}, parked{}},
		{"a pod without a workload counts against none", []func(*admission){
			alone, tooSoon, shareUsedUp, func(c *admission) { c.limits.InFlight.PerWorkload = number(0) },
		}, parked{}},
		{"a workload in its pause, until that is over", []func(*admission){tooSoon}, pause},
		{"the pause of the workload ends now", []func(*admission){func(c *admission) { c.limits.Pause = 10 * time.Second }}, parked{}},
		{"a workload without moves has no cooldown", []func(*admission){
			tooSoon, func(c *admission) { delete(c.moves.last, "uid-api") },
		}, parked{}},
		{"a workload at its limit of unavailable pods, including terminating ones", []func(*admission){shareUsedUp}, share},
		{"a workload with one fewer", []func(*admission){func(c *admission) { c.limits.Unavailable = most("75%") }}, parked{}},
		{"a pod that is on the move and not ready any more counts once", []func(*admission){
			func(c *admission) {
				c.limits.Unavailable = most("75%")
				gone := c.view.(given).pods["uid-1"]
				gone.Ready = false
				c.view.(given).pods["uid-1"] = gone
				delete(c.moves.workloads["uid-api"].going, "uid-1") // as learn does
				c.view.(given).tallies["uid-api"] = cluster.Tally{Wanted: 4, Ready: 3}
			},
		}, parked{}},
		{"pods that are not ready for other reasons count", []func(*admission){
			func(c *admission) {
				c.limits.Unavailable = most("75%")
				c.view.(given).tallies["uid-api"] = cluster.Tally{Wanted: 4, Ready: 3}
			},
		}, byWorkload(schemas.ReasonWorkloadUnavailable,
			"1 of 4 pods of deployment/web/api are available, and without a poddisruptionbudget 3 may be unavailable at once")},
		{"pods that are not wanted any more do not", []func(*admission){
			shareUsedUp, func(c *admission) { c.view.(given).tallies["uid-api"] = cluster.Tally{Wanted: 3, Ready: 5} },
		}, parked{}},
		{"a pod with a budget, which the API server keeps", []func(*admission){shareUsedUp, pod(func(p *cluster.Pod) { p.Budgeted = true })}, parked{}},
		{"a pod that is not ready makes nothing worse", []func(*admission){shareUsedUp, pod(func(p *cluster.Pod) { p.Ready = false })}, parked{}},
		{"an unknown pod", []func(*admission){
			shareUsedUp, func(c *admission) { delete(c.view.(given).pods, "uid-0") },
		}, parked{}},
		{"the node comes before the namespace", []func(*admission){shareUsedUp, tooSoon, workloadFull, namespaceFull, nodeFull}, byNode},
		{"the namespace comes before the workload", []func(*admission){shareUsedUp, tooSoon, workloadFull, namespaceFull}, byNamespace},
		{"the workload comes before the pause", []func(*admission){shareUsedUp, tooSoon, workloadFull}, moving},
		{"the pause comes before the share", []func(*admission){shareUsedUp, tooSoon}, pause},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := free()
			for _, change := range c.but {
				change(&x)
			}
			got, holds := blocked(x)
			expect.Equal(t, "hold", got, c.want)
			expect.Equal(t, "reason", got.why, c.want.why)
			expect.Equal(t, "holds", holds, c.want.by != blocker{})
		})
	}
}
