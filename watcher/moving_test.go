package watcher

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// toldOf delivers a verdict on the pod a of n1 by the strategy nodes.
func toldOf(t *testing.T, bus *collected, outcome schemas.Outcome, reason schemas.ReasonCode, dryRun bool, intent ...string) {
	t.Helper()
	v := schemas.Verdict{
		Outcome: outcome, Reason: reason, Profile: "p", Strategy: "nodes", DryRun: dryRun,
		Scope:  schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"},
		Intent: schemas.Intent{ID: strings.Join(intent, ""), Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: "a"}, Node: "n1"},
	}
	bus.tell(schematest.Event(t, "/test", v, time.Now(), schemas.Event{}))
}

// A move that creates the replacement first must not end because the replacement has taken the last room.
func TestPodInFlight(t *testing.T) {
	const outcome, reason = schemas.Restarted, schemas.ReasonSurgeAccepted
	moving := guest("a", "n1", asks("3"), ofOwners("rs"))
	noRoom := []schemas.Protection{{Rule: policy.NodeFitRule, Detail: "does not fit on the only other node: resource"}}
	evictor, p := policy.EvictorArgs{NodeFit: true}, protecting(t, policy.EvictorArgs{NodeFit: true})
	restarted := func(t *testing.T, _ *Watcher, bus *collected) { toldOf(t, bus, outcome, reason, false) }
	for _, c := range []struct {
		name string
		tell func(*testing.T, *Watcher, *collected)
		want []schemas.Protection
	}{
		{"no_move", func(*testing.T, *Watcher, *collected) {}, noRoom},
		{"surge", restarted, nil},
		{"eviction_request", func(t *testing.T, _ *Watcher, bus *collected) {
			toldOf(t, bus, schemas.Requested, schemas.ReasonEvictionRequestAccepted, false)
		}, nil},
		{"dry_run", func(t *testing.T, _ *Watcher, bus *collected) { toldOf(t, bus, outcome, reason, true) }, noRoom},
		{"undone_move", func(t *testing.T, w *Watcher, bus *collected) {
			restarted(t, w, bus)
			toldOf(t, bus, schemas.Settled, schemas.ReasonTakenBack, false)
		}, noRoom},
		{"late_end_of_an_older_move", func(t *testing.T, _ *Watcher, bus *collected) {
			toldOf(t, bus, outcome, reason, false, "first")
			toldOf(t, bus, outcome, reason, false, "second")
			toldOf(t, bus, schemas.Settled, schemas.ReasonTakenBack, false, "first")
		}, nil},
		{"pod_is_gone", func(t *testing.T, w *Watcher, bus *collected) {
			restarted(t, w, bus)
			w.podChanged(moving, nil, false)
		}, noRoom},
		{"new_policy", func(t *testing.T, w *Watcher, bus *collected) {
			restarted(t, w, bus)
			time.Sleep(time.Minute)
			expect.Must(t, w.SetPolicy(protecting(t, evictor)))
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, compiled(t, p), roomy("n1", cpus("8")), roomy("n2"), moving)
				leading(t, f, func(w *Watcher, bus *collected) {
					c.tell(t, w, bus)
					put(t, f.cluster, guest("replacement", "n2", asks("3"), ofOwners("rs")))
					time.Sleep(10 * time.Millisecond)
					checkProtections(t, w, moving, c.want)
				})
			})
		})
	}
	t.Run("new_leader", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, compiled(t, p), roomy("n1", cpus("8")), roomy("n2"), moving,
				guest("replacement", "n2", asks("3"), ofOwners("rs")))
			bus := &collected{answers: []schemas.ScopeHead{{Kind: schemas.NodeKind, Key: "n1", Profile: "p", Strategy: "nodes"}}}
			toldOf(t, bus, outcome, reason, false)
			time.Sleep(10 * time.Minute)
			leadingWith(t, f, bus, func(w *Watcher, _ *collected) { checkProtections(t, w, moving, nil) })
		})
	})
}

// checkProtections compares the protections of the pod in the scope of n1, and the protections from a request.
func checkProtections(t *testing.T, w *Watcher, p *corev1.Pod, want []schemas.Protection) {
	t.Helper()
	synctest.Wait()
	scopes := w.session.Load().scopes
	r, err := scopes.Build(scope.Key{Profile: "p", Strategy: "nodes", Kind: schemas.NodeKind, Name: "n1"}, nil, time.Now())
	expect.Must(t, err)
	expect.Equal(t, "in the scope of the node", r.Scope.(schemas.NodeScope).Pods[0].Protected, want)
	expect.Equal(t, "from a request", scopes.ProtectionsOfRequest("p", p, nil, time.Now()), want)
}

// A strategy must still find a better node for a pod in flight whose replacement has taken the room there.
func TestElsewhereOfPodInFlight(t *testing.T) {
	better := func(n *corev1.Node) { n.Labels["pool"] = "web" }
	objects := []metav1.Object{
		roomy("n1", cpus("8")), roomy("n2", better), roomy("n3"), guest("a", "n1", asks("3"), prefers("pool", "web", 5), ofOwners("rs")),
		guest("replacement", "n2", asks("3"), ofOwners("rs")),
	}
	enabled := policy.Enabled{
		Strategy: policy.Strategy{
			Name: "nodes", Scope: schemas.NodeKind, NewArgs: func() policy.Args { return &seeking{} },
			Traits: policy.Traits{Facts: []policy.Fact{policy.FactElsewhere, policy.FactFit}},
		},
		Args: json.RawMessage(`{}`),
	}
	p := policy.Policy{Profiles: []policy.Profile{{Name: "p", Strategies: []policy.Enabled{enabled}}}}
	for _, c := range []struct {
		name    string
		moves   bool
		objects []metav1.Object
		want    *schemas.Elsewhere
	}{
		{"no_move", false, objects, &schemas.Elsewhere{Fits: true, Node: "n1"}},
		{"better_node", true, objects, &schemas.Elsewhere{Fits: true, Node: "n2", Preference: 5}},
		{"better_node_is_tainted", true, append(objects, roomy("n2", better, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		})), &schemas.Elsewhere{Fits: true, Node: "n3"}},
		{"better_node_is_not_ready", true, append(objects, roomy("n2", better, conditioned(corev1.ConditionFalse))),
			&schemas.Elsewhere{Fits: true, Node: "n3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leading(t, newFixture(t, compiled(t, p), c.objects...), func(w *Watcher, bus *collected) {
					if c.moves {
						toldOf(t, bus, schemas.Restarted, schemas.ReasonRestartAccepted, false)
					}
					key := scope.Key{Profile: "p", Strategy: "nodes", Kind: schemas.NodeKind, Name: "n1"}
					r, err := w.session.Load().scopes.Build(key, nil, time.Now())
					expect.Must(t, err)
					expect.Equal(t, "result", r.Scope.(schemas.NodeScope).Pods[0].Elsewhere, c.want)
				})
			})
		})
	}
}
