package watcher

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// wary are the arguments of a strategy that can move only pods of the app bad.
type wary struct{ anything }

func (*wary) Concerns(p *corev1.Pod, _ *corev1.Node) bool { return p.Labels["app"] == "bad" }

func waryStrategy() policy.Strategy {
	return policy.Strategy{
		Name: "wary", Scope: schemas.NodeKind, NewArgs: func() policy.Args { return &wary{} },
		Traits: policy.Traits{Facts: []policy.Fact{policy.FactConcerned}},
		Wakes:  []schemas.DeltaKind{schemas.PodScheduled, schemas.PodLabels, schemas.PodDeleted, schemas.PodStatus},
	}
}

func appOf(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }
}

// TestPublishedScopes counts the messages that each change causes.
func TestPublishedScopes(t *testing.T) {
	replaced := func(d *driven) {
		d.remove(guest("good", "n1"))
		d.set(guest("other", "", appOf("good")))
		d.set(guest("other", "n1", appOf("good")))
		d.set(guest("other", "n1", appOf("good"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }))
	}
	relabelled := func(d *driven) {
		d.set(guest("good", "n1", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "good", "version": "2"} }))
	}
	const scope = "wary n1"
	for _, c := range []struct {
		name   string
		change []func(*driven) // one after the other
		want   [][]string      // messages of each
	}{
		{"a_label_that_changes_no_answer", []func(*driven){relabelled}, [][]string{{"pod.labels"}}},
		{"a_pod_that_is_replaced", []func(*driven){replaced}, [][]string{{"pod.deleted", "pod.scheduled"}}},
		{"a_pod_that_could_move", []func(*driven){func(d *driven) { d.set(guest("bad", "n1", appOf("bad"))) }},
			[][]string{{"pod.scheduled", scope}}},
		{"a_pod_that_could_move_and_no_longer", []func(*driven){
			func(d *driven) { d.set(guest("bad", "n1", appOf("bad"))) },
			func(d *driven) { d.set(guest("bad", "n1", appOf("better"))) },
			relabelled,
		}, [][]string{{"pod.scheduled", scope}, {"pod.labels", scope}, {"pod.labels"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good := guest("good", "n1", appOf("good"))
				leadingOver(t, with("", waryStrategy()), []metav1.Object{named("n1", alone), named("n2"), good}, func(d *driven, bus *collected) {
					for i, change := range c.change {
						change(d)
						time.Sleep(10 * time.Millisecond)
						if got := bus.take(t); !reflect.DeepEqual(got, c.want[i]) {
							t.Errorf("change %d: got %q, want %q", i, got, c.want[i])
						}
					}
				})
			})
		})
	}
}

// The scope of a pod that is due later must be published at its time, without another change.
func TestDeltaBeforeDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := podsStrategy(time.Minute)
		s.Wakes = append(s.Wakes, schemas.PodLabels)
		young := func(changes ...func(*corev1.Pod)) *corev1.Pod {
			return guest("young", "n1", append(changes, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Now()) })...)
		}
		leadingOver(t, with("", s), []metav1.Object{named("n1", alone), named("n2"), young()}, func(d *driven, bus *collected) {
			d.set(young(appOf("other")))
			time.Sleep(10 * time.Millisecond)
			expect.Equal(t, "at once", bus.take(t), []string{"pod.labels"})
			time.Sleep(2 * time.Minute)
			expect.Equal(t, "when it is due", bus.take(t), []string{"pods web/young"})
		})
	})
}

func alone(n *corev1.Node) { n.UID = types.UID(n.Name) }

// A new leader must withdraw the answers that the previous leader may have requested.
func TestWithdrawal(t *testing.T) {
	for _, c := range []struct {
		name  string
		asked []schemas.ScopeHead
		want  []string
	}{
		{"nothing_asked", nil, nil},
		{"asked_by_the_leader_before", []schemas.ScopeHead{{Kind: schemas.NodeKind, Key: "n1", Profile: "p", Strategy: "wary"}},
			[]string{"wary n1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFixture(t, compiled(t, with("", waryStrategy())), named("n1"), named("n2"), guest("good", "n1", appOf("good")))
				leadingWith(t, s, &collected{answers: c.asked}, func(_ *Watcher, bus *collected) {
					expect.Equal(t, "published", bus.take(t), c.want)
				})
			})
		})
	}
}
