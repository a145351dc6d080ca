package toomanyrestarts

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

type change = func(*schemas.ScopedPod)

// pod is the running pod web/api on worker-1 that nothing protects, with changes.
func pod(changes ...change) schemas.ScopedPod {
	p := schemas.ScopedPod{Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api", UID: "u1", Labels: map[string]string{"tier": "web"}},
		Spec:       corev1.PodSpec{NodeName: "worker-1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}}
	for _, c := range changes {
		c(&p)
	}
	return p
}

// restarted gives the pod one container for each count.
func restarted(counts ...int32) change {
	return func(p *schemas.ScopedPod) { p.Pod.Status.ContainerStatuses = containers(counts) }
}

func initRestarted(counts ...int32) change {
	return func(p *schemas.ScopedPod) { p.Pod.Status.InitContainerStatuses = containers(counts) }
}

func containers(counts []int32) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for i, n := range counts {
		list = append(list, corev1.ContainerStatus{Name: fmt.Sprint("c", i), RestartCount: n})
	}
	return list
}

func phase(phase corev1.PodPhase) change {
	return func(p *schemas.ScopedPod) { p.Pod.Status.Phase = phase }
}

// waits makes the first container wait; init the first init container.
func waits(reason string) change {
	return func(p *schemas.ScopedPod) {
		p.Pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	}
}

func initWaits(reason string) change {
	return func(p *schemas.ScopedPod) {
		p.Pod.Status.InitContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	}
}

func terminating(p *schemas.ScopedPod) { p.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func protected(p *schemas.ScopedPod) {
	p.Protected = []schemas.Protection{{Rule: policy.DaemonSetPods, Detail: "it belongs to the DaemonSet agent"}}
}

func scope(p schemas.ScopedPod) schemas.PodScope {
	return schemas.PodScope{ScopeHead: schemas.ScopeHead{Kind: schemas.PodKind, Key: "web/api", Now: time.Unix(1000, 0)}, Pod: p}
}

// moves is the answer that the pod moves.
func moves(reason string) []schemas.Intent {
	return []schemas.Intent{{Pod: schemas.PodRef{Namespace: "web", Name: "api", UID: "u1"}, Node: "worker-1", Reason: reason}}
}

func removed(reason string) []schemas.Intent {
	list := moves(reason)
	list[0].Ended = true
	return list
}

func TestPodsThatWereRestartedTooOftenMove(t *testing.T) {
	const waiting = "CrashLoopBackOff"
	states := func(states ...string) Args { return Args{PodRestartThreshold: 5, States: states} }
	in := func(include, exclude []string) Args {
		return Args{PodRestartThreshold: 5, Namespaces: policy.Namespaces{Include: include, Exclude: exclude}}
	}
	selecting := func(tier string) Args {
		return Args{PodRestartThreshold: 5, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}}
	}
	five := moves("restarted 5 times, the threshold is 5")
	for _, c := range []struct {
		name string
		args Args
		pod  schemas.ScopedPod
		want []schemas.Intent
	}{
		{"never restarted", Args{PodRestartThreshold: 1}, pod(), nil},
		{"once, and once is too often", Args{PodRestartThreshold: 1}, pod(restarted(1)), moves("restarted 1 time, the threshold is 1")},
		{"one less than the threshold", Args{PodRestartThreshold: 5}, pod(restarted(4)), nil},
		{"exactly the threshold", Args{PodRestartThreshold: 5}, pod(restarted(5)), five},
		{"more than the threshold", Args{PodRestartThreshold: 100}, pod(restarted(120)), moves("restarted 120 times, the threshold is 100")},
		{"all containers together", Args{PodRestartThreshold: 5}, pod(restarted(2, 0, 3)), five},
		{"more than one number of 32 bits holds", Args{PodRestartThreshold: 5}, pod(restarted(1<<31-1, 1<<31-1)), moves("restarted 4294967294 times, the threshold is 5")},

		{"init containers do not count", Args{PodRestartThreshold: 5}, pod(restarted(4), initRestarted(9)), nil},
		{"init containers count when asked for", Args{PodRestartThreshold: 5, IncludingInitContainers: true}, pod(restarted(2), initRestarted(2, 1)), five},
		{"init containers alone", Args{PodRestartThreshold: 5, IncludingInitContainers: true}, pod(initRestarted(5)), five},

		{"an empty list of states asks for none", states(), pod(restarted(5), phase(corev1.PodPending)), five},
		{"a list of no states asks for none", Args{PodRestartThreshold: 5, States: []string{}}, pod(restarted(5), phase(corev1.PodPending)), five},
		{"running, as asked for", states("Running"), pod(restarted(5)), five},
		{"running by its phase although a container waits", states("Running"), pod(restarted(5), waits(waiting)), five},
		{"pending, though running is asked for", states("Running"), pod(restarted(5), phase(corev1.PodPending)), nil},
		{"waiting, as asked for", states(waiting), pod(restarted(5), waits(waiting)), five},
		{"waiting for something else", states(waiting), pod(restarted(5), waits("ImagePullBackOff")), nil},
		{"running, though waiting is asked for", states(waiting), pod(restarted(5)), nil},
		{"one of two states", states("Running", waiting), pod(restarted(5), phase(corev1.PodPending), waits(waiting)), five},
		{"neither of two states", states("Running", waiting), pod(restarted(5), phase(corev1.PodPending)), nil},
		{"an init container that waits does not count", states(waiting), pod(restarted(5), initRestarted(0), initWaits(waiting)), nil},
		{"an init container that waits counts when asked for", Args{PodRestartThreshold: 5, States: []string{waiting}, IncludingInitContainers: true},
			pod(restarted(5), initRestarted(0), initWaits(waiting)), five},

		{"a namespace that is included", in([]string{"web"}, nil), pod(restarted(5)), five},
		{"a namespace that is not included", in([]string{"db"}, nil), pod(restarted(5)), nil},
		{"a namespace that is excluded", in(nil, []string{"web"}), pod(restarted(5)), nil},
		{"a pod that is selected", selecting("web"), pod(restarted(5)), five},
		{"a pod that is not selected", selecting("db"), pod(restarted(5)), nil},
		{"an empty selector selects all", Args{PodRestartThreshold: 5, LabelSelector: &metav1.LabelSelector{}}, pod(restarted(5)), five},

		{"a protected pod stays", Args{PodRestartThreshold: 5}, pod(restarted(5), protected), nil},
		{"a terminating pod is left alone", Args{PodRestartThreshold: 5}, pod(restarted(5), terminating), nil},
		{"a pod that has failed is removed", Args{PodRestartThreshold: 5}, pod(restarted(5), phase(corev1.PodFailed)),
			removed("restarted 5 times, the threshold is 5")},
		{"a pod that has succeeded is removed", Args{PodRestartThreshold: 5}, pod(restarted(5), phase(corev1.PodSucceeded)),
			removed("restarted 5 times, the threshold is 5")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.args.Validate(); err != nil {
				t.Fatal(err)
			}
			for _, args := range []Args{c.args, throughJSON(t, c.args)} {
				if got := args.Decide(scope(c.pod)); !slices.Equal(got, c.want) {
					t.Errorf("with %+v:\ngot  %+v\nwant %+v", args, got, c.want)
				}
			}
		})
	}
}

// throughJSON is what arrives of the arguments in a scope.
func throughJSON(t *testing.T, args Args) Args {
	t.Helper()
	data, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	var got Args
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, args) {
		t.Errorf("got %+v from %s, want %+v", got, data, args)
	}
	return got
}

func TestArgumentsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		args Args
		want []string
	}{
		{"every field, rightly", Args{
			Namespaces: policy.Namespaces{Exclude: []string{"web"}}, LabelSelector: &metav1.LabelSelector{}, PodRestartThreshold: 1,
			IncludingInitContainers: true, States: []string{"Running", "CrashLoopBackOff"},
		}, nil},
		{"no threshold", Args{}, []string{"podRestartThreshold: must be at least 1, got 0; 100 is usual"}},
		{"a negative threshold", Args{PodRestartThreshold: -1}, []string{"podRestartThreshold: must be at least 1, got -1; 100 is usual"}},
		{"states that are not known", Args{PodRestartThreshold: 1, States: []string{"Running", "running", "Pending", ""}}, []string{
			`states[1]: is not known, got "running"; want Running or CrashLoopBackOff`,
			`states[2]: is not known, got "Pending"; want Running or CrashLoopBackOff`,
			`states[3]: is not known, got ""; want Running or CrashLoopBackOff`,
		}},
		{"namespaces and selector", Args{
			PodRestartThreshold: 1, Namespaces: policy.Namespaces{Include: []string{"a"}, Exclude: []string{"b"}},
			LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}},
		}, []string{
			"namespaces: has both include and exclude; keep one",
			`labelSelector.matchExpressions[0].operator: not a valid selector operator, got "Near"`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			if err := c.args.Validate(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	s := scope(pod(restarted(60, 60), initRestarted(1)))
	args := Args{PodRestartThreshold: 100, IncludingInitContainers: true, States: []string{"Running"}, Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}}
	b.ReportAllocs()
	for b.Loop() {
		if got := args.Decide(s); len(got) != 1 {
			b.Fatalf("got %+v, want one intent", got)
		}
	}
}

// A pod that is not due is the usual one: every pod of the cluster is asked about at every resync.
func BenchmarkDue(b *testing.B) {
	p := pod(restarted(1, 0), initRestarted(0)).Pod
	args := Args{PodRestartThreshold: 100, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, ever := args.Due(&p); ever {
			b.Fatal("due, want never")
		}
	}
}
