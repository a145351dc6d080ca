package watcher

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func TestRoomIsHeldForTheReplacementOfAPodThatWasMoved(t *testing.T) {
	controlled := func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: &yes}}
	}
	// Two pods of 3 CPUs on n1; n2 has 4, so one of them fits there.
	first, second := guest("first", "n1", asks("3"), controlled), guest("second", "n1", asks("3"), controlled)
	moved := schemas.Verdict{
		Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Profile: "p", Strategy: "nodes",
		Scope:  schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"},
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "first", UID: "first"}, Node: "n1"},
	}
	dry := moved
	dry.DryRun = true
	for _, c := range []struct {
		name    string
		args    policy.EvictorArgs
		verdict schemas.Verdict
		then    func(*driven)
		fits    bool
	}{
		{"nothing was moved", policy.EvictorArgs{NodeFit: true}, schemas.Verdict{}, func(*driven) {}, true},
		{"the gap is promised", policy.EvictorArgs{NodeFit: true}, moved, func(*driven) {}, false},
		{"it is in a dry run, which would have moved the pod", policy.EvictorArgs{NodeFit: true}, dry, func(*driven) {}, false},
		{"nobody asks where pods fit", policy.EvictorArgs{}, moved, func(*driven) {}, true},
		{"the replacement went elsewhere", policy.EvictorArgs{NodeFit: true}, moved, func(d *driven) {
			d.set(guest("replacement", "n1", controlled))
		}, true},
		{"another pod was placed", policy.EvictorArgs{NodeFit: true}, moved, func(d *driven) {
			d.set(guest("stranger", "n1"))
		}, false},
		{"the replacement does not come", policy.EvictorArgs{NodeFit: true}, moved, func(*driven) { time.Sleep(promiseLasts) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := []metav1.Object{roomy("n1", cpus("8")), roomy("n2"), first, second}
				leadingOver(t, protecting(t, c.args), objects, func(d *driven, bus *collected) {
					if c.verdict.Outcome != "" {
						e, err := schemas.NewEvent("/test", c.verdict, time.Now(), schemas.Event{})
						if err != nil {
							t.Fatal(err)
						}
						bus.tell(e)
					}
					c.then(d)
					synctest.Wait()
					if fits, why := d.cluster.Elsewhere(second, nil); fits != c.fits {
						t.Errorf("fits: %v %s, want %v", fits, why, c.fits)
					}
				})
			})
		})
	}
}
