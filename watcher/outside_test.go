package watcher

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// outsidePolicy declares a strategy for each of three kinds of scopes, that is woken by those deltas. Each has the argument
// of a profile over its defaults.
func outsidePolicy(t *testing.T, wakes string) policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(`
apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
functions:
- {name: OfNodes, scope: node, wakes: `+wakes+`, args: {a: 1, b: 2}, http: {url: http://a}}
- {name: OfPods, scope: pod, wakes: `+wakes+`, args: {a: 1, b: 2}, nats: {subject: a}}
- {name: OfWorkloads, scope: workload, wakes: `+wakes+`, args: {a: 1, b: 2}, http: {url: http://b}}
profiles:
- name: p
  pluginConfig: [{name: OfNodes, args: {b: 3}}, {name: OfPods, args: {b: 3}}, {name: OfWorkloads, args: {b: 3}}]
  plugins: {deschedule: {enabled: [OfNodes, OfPods, OfWorkloads]}}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// scattered are two pods of one workload, each on a node of its own, with which no built-in strategy would find anything.
func scattered() []*corev1.Pod {
	numbered := func(uid string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = types.UID(uid) } }
	return []*corev1.Pod{placed("a", "n1", numbered("a")), placed("b", "n2", numbered("b"))}
}

func TestAStrategyThatThePolicyDeclaresIsWokenByItsDeltas(t *testing.T) {
	relabelled := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "new"} }
	const workload = "OfWorkloads web/ReplicaSet/rs"
	for _, c := range []struct {
		name, wakes string
		change      func(*corev1.Pod) // nil: the node gets a taint
		want        []string
	}{
		{
			name: "labels of a pod", wakes: "[pod.labels]", want: []string{"OfNodes n1", "OfPods web/a", workload, "pod.labels"},
			change: relabelled,
		},
		{
			name:  "a restart of a container, which does not change who belongs to the workload",
			wakes: "[pod.restarted]", want: []string{"OfNodes n1", "OfPods web/a", workload, "pod.restarted"},
			change: restarted(0, 1),
		},
		{
			name: "and not by others, nor are those published", wakes: "[pod.labels]",
			change: restarted(0, 1),
		},
		{
			name: "taints of a node", wakes: "[node.taints]",
			want: []string{"OfNodes n1", "OfPods web/a", workload, "node.taints"},
		},
		{
			name: "and not by taints of a node when it does not look at them", wakes: "[pod.labels]",
			want: []string{"node.taints"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := scattered()
				s := view(t, outsidePolicy(t, c.wakes), []*corev1.Node{named("n1"), named("n2")}, pods)
				leading(t, s, func(w *Watcher, bus *collected) {
					begin := []string{"OfNodes n1", "OfNodes n2", "OfPods web/a", "OfPods web/b", workload}
					if got := bus.take(t); !reflect.DeepEqual(got, begin) {
						t.Errorf("at the beginning: got %q, want %q", got, begin)
					}
					if c.change == nil {
						w.nodeChanged(named("n1"), named("n1", taintedBy("a")), false)
					} else {
						after := pods[0].DeepCopy()
						c.change(after)
						if err := s.cluster.pods.Update(after); err != nil {
							t.Fatal(err)
						}
						w.podChanged(pods[0], after, false)
					}
					time.Sleep(10 * time.Millisecond)
					if got := bus.take(t); !reflect.DeepEqual(got, c.want) {
						t.Errorf("got %q, want %q", got, c.want)
					}
				})
			})
		})
	}
}

func TestTheScopesOfAStrategyThatThePolicyDeclaresHaveItsArgumentsAndAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := scattered()
		s := view(t, outsidePolicy(t, "[pod.labels]"), []*corev1.Node{named("n1"), named("n2")}, pods)
		leading(t, s, func(_ *Watcher, bus *collected) {
			synctest.Wait()
			got := map[string][]string{}
			for _, e := range bus.events {
				head, err := schemas.Decode[schemas.ScopeHead](e)
				if err != nil {
					t.Fatal(err)
				}
				got[head.Strategy+" "+head.Key] = append(podsIn(t, e, head.Kind), string(head.Args))
			}
			const args = `{"a":1,"b":3}`
			want := map[string][]string{
				"OfNodes n1": {"a", args}, "OfNodes n2": {"b", args}, "OfPods web/a": {"a", args}, "OfPods web/b": {"b", args},
				"OfWorkloads web/ReplicaSet/rs": {"a", "b", args},
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	})
}

// podsIn are the names of the pods of a scope.
func podsIn(t *testing.T, e schemas.Event, kind schemas.ScopeKind) []string {
	t.Helper()
	var pods []schemas.ScopedPod
	var err error
	switch kind {
	case schemas.NodeKind:
		var s schemas.NodeScope
		s, err = schemas.Decode[schemas.NodeScope](e)
		pods = s.Pods
	case schemas.PodKind:
		var s schemas.PodScope
		s, err = schemas.Decode[schemas.PodScope](e)
		pods = []schemas.ScopedPod{s.Pod}
	default:
		var s schemas.WorkloadScope
		s, err = schemas.Decode[schemas.WorkloadScope](e)
		pods = s.Pods
	}
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range pods {
		names = append(names, p.Pod.Name)
	}
	return names
}

func TestAGroupOfAStrategyThatThePolicyDeclaresIsAskedAboutWhenAPodJoinsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := scattered()
		s := view(t, outsidePolicy(t, "[node.load]"), []*corev1.Node{named("n1"), named("n2")}, pods)
		leading(t, s, func(w *Watcher, bus *collected) {
			bus.take(t)
			third := placed("c", "n1", func(p *corev1.Pod) { p.UID = "c" })
			if err := s.cluster.pods.Add(third); err != nil {
				t.Fatal(err)
			}
			w.podChanged(nil, third, false)
			time.Sleep(10 * time.Millisecond)
			if got, want := bus.take(t), []string{"OfWorkloads web/ReplicaSet/rs"}; !reflect.DeepEqual(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	})
}
