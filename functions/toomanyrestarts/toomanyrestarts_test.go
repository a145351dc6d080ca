package toomanyrestarts

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

// restarted gives the pod one container per count.
func restarted(counts ...int32) test.PodOption { return test.Containers(containers(counts)...) }

func initRestarted(counts ...int32) test.PodOption { return test.InitContainers(containers(counts)...) }

func containers(counts []int32) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for i, n := range counts {
		list = append(list, corev1.ContainerStatus{Name: fmt.Sprint("c", i), RestartCount: n})
	}
	return list
}

// waits makes the first container wait; initWaits the first init container.
func waits(reason string) test.PodOption {
	return func(p *schemas.ScopedPod) {
		p.Pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	}
}

func initWaits(reason string) test.PodOption {
	return func(p *schemas.ScopedPod) {
		p.Pod.Status.InitContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	}
}

func TestDecide(t *testing.T) {
	const waiting = "CrashLoopBackOff"
	states := func(states ...string) Args { return Args{PodRestartThreshold: 5, States: states} }
	in := func(include, exclude []string) Args {
		return Args{PodRestartThreshold: 5, Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: include, Exclude: exclude}}}
	}
	selecting := func(tier string) Args {
		return Args{PodRestartThreshold: 5, Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}}}
	}
	five := test.Moves("restarted 5 times, the threshold is 5")
	for _, c := range []struct {
		name string
		args Args
		pod  schemas.ScopedPod
		want []schemas.Intent
	}{
		{"never restarted", Args{PodRestartThreshold: 1}, test.Single(), nil},
		{"threshold 1", Args{PodRestartThreshold: 1}, test.Single(restarted(1)), test.Moves("restarted 1 time, the threshold is 1")},
		{"one less than the threshold", Args{PodRestartThreshold: 5}, test.Single(restarted(4)), nil},
		{"exactly the threshold", Args{PodRestartThreshold: 5}, test.Single(restarted(5)), five},
		{"more than the threshold", Args{PodRestartThreshold: 100}, test.Single(restarted(120)), test.Moves("restarted 120 times, the threshold is 100")},
		{"all containers together", Args{PodRestartThreshold: 5}, test.Single(restarted(2, 0, 3)), five},
		{"more than 32 bits", Args{PodRestartThreshold: 5}, test.Single(restarted(1<<31-1, 1<<31-1)), test.Moves("restarted 4294967294 times, the threshold is 5")},

		{"init containers do not count", Args{PodRestartThreshold: 5}, test.Single(restarted(4), initRestarted(9)), nil},
		{"init containers count when asked for", Args{PodRestartThreshold: 5, IncludingInitContainers: true}, test.Single(restarted(2), initRestarted(2, 1)), five},
		{"init containers alone", Args{PodRestartThreshold: 5, IncludingInitContainers: true}, test.Single(initRestarted(5)), five},

		{"empty states", states(), test.Single(restarted(5), test.Phase(corev1.PodPending)), five},
		{"empty list of states", Args{PodRestartThreshold: 5, States: []string{}}, test.Single(restarted(5), test.Phase(corev1.PodPending)), five},
		{"running selected", states("Running"), test.Single(restarted(5)), five},
		{"phase Running with a waiting container", states("Running"), test.Single(restarted(5), waits(waiting)), five},
		{"pending, running selected", states("Running"), test.Single(restarted(5), test.Phase(corev1.PodPending)), nil},
		{"waiting selected", states(waiting), test.Single(restarted(5), waits(waiting)), five},
		{"other waiting reason", states(waiting), test.Single(restarted(5), waits("ImagePullBackOff")), nil},
		{"running, waiting selected", states(waiting), test.Single(restarted(5)), nil},
		{"one of two states", states("Running", waiting), test.Single(restarted(5), test.Phase(corev1.PodPending), waits(waiting)), five},
		{"neither of two states", states("Running", waiting), test.Single(restarted(5), test.Phase(corev1.PodPending)), nil},
		{"an init container that waits does not count", states(waiting), test.Single(restarted(5), initRestarted(0), initWaits(waiting)), nil},
		{"an init container that waits counts if included", Args{PodRestartThreshold: 5, States: []string{waiting}, IncludingInitContainers: true},
			test.Single(restarted(5), initRestarted(0), initWaits(waiting)), five},

		{"included namespace", in([]string{"web"}, nil), test.Single(restarted(5)), five},
		{"namespace not included", in([]string{"db"}, nil), test.Single(restarted(5)), nil},
		{"excluded namespace", in(nil, []string{"web"}), test.Single(restarted(5)), nil},
		{"selected pod", selecting("web"), test.Single(restarted(5)), five},
		{"pod not selected", selecting("db"), test.Single(restarted(5)), nil},
		{"an empty selector selects all", Args{PodRestartThreshold: 5, Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{}}}, test.Single(restarted(5)), five},

		{"protected pod", Args{PodRestartThreshold: 5}, test.Single(restarted(5), test.Protected(policy.DaemonSetPods)), nil},
		{"terminating pod", Args{PodRestartThreshold: 5}, test.Single(restarted(5), test.Deleted()), nil},
		{"a pod that has failed is removed", Args{PodRestartThreshold: 5}, test.Single(restarted(5), test.Phase(corev1.PodFailed)),
			test.Removed("restarted 5 times, the threshold is 5")},
		{"a pod that has succeeded is removed", Args{PodRestartThreshold: 5}, test.Single(restarted(5), test.Phase(corev1.PodSucceeded)),
			test.Removed("restarted 5 times, the threshold is 5")},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Decides(t, c.args, Args{}, test.SingleScope(c.pod), test.Weighing(c.want, c.args.containers().Restarts(&c.pod.Pod)))
		})
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		args Args
		want []string
	}{
		{"all fields", Args{
			Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"web"}}, LabelSelector: &metav1.LabelSelector{}}, PodRestartThreshold: 1,
			IncludingInitContainers: true, States: []string{"Running", "CrashLoopBackOff"},
		}, nil},
		{"no threshold", Args{}, []string{"podRestartThreshold: must be at least 1, got 0; 100 is usual"}},
		{"a negative threshold", Args{PodRestartThreshold: -1}, []string{"podRestartThreshold: must be at least 1, got -1; 100 is usual"}},
		{"unknown states", Args{PodRestartThreshold: 1, States: []string{"Running", "running", "Pending", ""}}, []string{
			`states[1]: is not known, got "running"; want Running or CrashLoopBackOff`,
			`states[2]: is not known, got "Pending"; want Running or CrashLoopBackOff`,
			`states[3]: is not known, got ""; want Running or CrashLoopBackOff`,
		}},
		{"namespaces and selector", Args{PodRestartThreshold: 1, Selection: test.InvalidSelection()}, test.SelectionMistakes()},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Refused(t, c.args.Validate(), c.want...)
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	s := test.SingleScope(test.Single(restarted(60, 60), initRestarted(1)))
	args := Args{PodRestartThreshold: 100, IncludingInitContainers: true, States: []string{"Running"}, Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}}}
	test.BenchmarkDecide(b, args, s)
}

func BenchmarkDue(b *testing.B) {
	p := test.Single(restarted(1, 0), initRestarted(0)).Pod
	args := Args{PodRestartThreshold: 100, Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}}
	test.BenchmarkDue(b, args, p, false)
}
