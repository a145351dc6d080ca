package failedpods

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

// pod returns a failed pod.
func pod(options ...test.PodOption) schemas.ScopedPod {
	return test.Single(append([]test.PodOption{test.Phase(corev1.PodFailed)}, options...)...)
}

func TestDecide(t *testing.T) {
	after := func(seconds uint) Args { return Args{MinPodLifetimeSeconds: seconds} }
	reasons := func(reasons ...string) Args { return Args{Reasons: reasons} }
	codes := func(codes ...int32) Args { return Args{ExitCodes: codes} }
	oom := test.Containers(test.Ended("Completed", 0), test.Ended("OOMKilled", 137))
	initOOM := test.InitContainers(test.Ended("OOMKilled", 137))
	plain := test.Removed("failed; 2h old")
	for _, c := range []struct {
		name string
		args Args
		pod  schemas.ScopedPod
		want []schemas.Intent
	}{
		{"running", Args{}, pod(test.Phase(corev1.PodRunning)), nil},
		{"pending", Args{}, pod(test.Phase(corev1.PodPending)), nil},
		{"succeeded", Args{}, pod(test.Phase(corev1.PodSucceeded)), nil},
		{"unknown", Args{}, pod(test.Phase(corev1.PodUnknown)), nil},
		{"running with a failed container", Args{}, pod(test.Phase(corev1.PodRunning), oom), nil},
		{"failed", Args{}, pod(), plain},

		{"by default after an hour", Default(), pod(test.Aged(time.Hour)), test.Removed("failed; 1h old")},
		{"by default not before an hour", Default(), pod(test.Aged(time.Hour - time.Nanosecond)), nil},
		{"at the very second", after(90), pod(test.Aged(90 * time.Second)), test.Removed("failed; 1m30s old")},
		{"not a moment before", after(90), pod(test.Aged(90*time.Second - time.Nanosecond)), nil},
		{"minimum age 0", after(0), pod(test.Aged(0)), test.Removed("failed; 0s old")},
		{"created in the future", after(0), pod(test.Aged(-time.Second)), nil},
		{"the longest time is never over", after(math.MaxUint), pod(), nil},

		{"reason of the pod", Args{}, pod(test.Because("Evicted")), test.Removed("failed: Evicted; 2h old")},
		{"reason of a container", Args{}, pod(oom), test.Removed("failed: OOMKilled, exit code 137; 2h old")},
		{"exit code without reason", Args{}, pod(test.Containers(test.Ended("", 1))), test.Removed("failed: exit code 1; 2h old")},
		{"reason of an init container", Args{}, pod(test.Containers(test.Waiting("PodInitializing")), test.InitContainers(test.Ended("Error", 1))),
			test.Removed("failed: Error, exit code 1; 2h old")},

		{"empty list of reasons", Args{Reasons: []string{}}, pod(), plain},
		{"matching reason of the pod", reasons("Evicted"), pod(test.Because("Evicted")), test.Removed("failed: Evicted; 2h old")},
		{"other reason of the pod", reasons("Evicted"), pod(test.Because("NodeAffinity")), nil},
		{"for no reason", reasons("Evicted"), pod(), nil},
		{"matching reason of an ended container", reasons("Error", "OOMKilled"), pod(oom), test.Removed("failed: OOMKilled; 2h old")},
		{"matching reason of a waiting container", reasons("CreateContainerConfigError"), pod(test.Containers(test.Waiting("CreateContainerConfigError"))),
			test.Removed("failed: CreateContainerConfigError; 2h old")},
		{"a reason may be any text", reasons("MyReason"), pod(test.Because("MyReason")), test.Removed("failed: MyReason; 2h old")},
		{"a reason is not met by its beginning", reasons("OOM"), pod(oom), nil},
		{"the reason of an init container does not count", reasons("OOMKilled"), pod(initOOM), nil},
		{"the reason of an init container counts if included", Args{Reasons: []string{"OOMKilled"}, IncludingInitContainers: true},
			pod(initOOM), test.Removed("failed: OOMKilled; 2h old")},
		{"ephemeral containers never count", Args{Reasons: []string{"OOMKilled"}, IncludingInitContainers: true},
			pod(test.EphemeralContainers(test.Ended("OOMKilled", 137))), nil},
		{"how a container ended the time before does not count", reasons("OOMKilled"), pod(test.Containers(corev1.ContainerStatus{
			LastTerminationState: test.Ended("OOMKilled", 137).State,
		})), nil},

		{"empty list of exit codes", Args{ExitCodes: []int32{}}, pod(), plain},
		{"with the exit code", codes(1, 137), pod(oom), test.Removed("failed: exit code 137; 2h old")},
		{"with another exit code", codes(1), pod(oom), nil},
		{"exit code 0", codes(0), pod(oom), test.Removed("failed: exit code 0; 2h old")},
		{"with no exit code", codes(0), pod(), nil},
		{"the exit code of an init container does not count", codes(137), pod(initOOM), nil},
		{"the exit code of an init container counts if included", Args{ExitCodes: []int32{137}, IncludingInitContainers: true},
			pod(initOOM), test.Removed("failed: exit code 137; 2h old")},
		{"reason and exit code of different containers", Args{Reasons: []string{"Completed"}, ExitCodes: []int32{137}}, pod(oom),
			test.Removed("failed: Completed, exit code 137; 2h old")},
		{"the reason without the exit code", Args{Reasons: []string{"OOMKilled"}, ExitCodes: []int32{1}}, pod(oom), nil},
		{"the exit code without the reason", Args{Reasons: []string{"Error"}, ExitCodes: []int32{137}}, pod(oom), nil},

		{"excluded owner", Args{ExcludeOwnerKinds: []string{"Job"}}, pod(test.OwnedBy("Job", "job")), nil},
		{"excluded owner among others", Args{ExcludeOwnerKinds: []string{"Job"}}, pod(test.OwnedBy("Other", "other"), test.OwnedBy("Job", "job")), nil},
		{"other owner", Args{ExcludeOwnerKinds: []string{"Job"}}, pod(test.OwnedBy("ReplicaSet", "replicaset")), plain},
		{"no owner", Args{ExcludeOwnerKinds: []string{"Job"}}, pod(), plain},

		{"included namespace", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web"}}}}, pod(), plain},
		{"namespace not included", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"db"}}}}, pod(), nil},
		{"excluded namespace", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"web"}}}}, pod(), nil},
		{"selected pod", Args{Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}}, pod(), plain},
		{"pod not selected", Args{Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}}}, pod(), nil},
		{"protected pod", Args{}, pod(test.Protected(policy.FailedBarePods)), nil},
		{"terminating pod", Args{}, pod(test.Deleted()), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			weight := int64(0)
			if at, _ := c.args.Due(&c.pod.Pod); !at.IsZero() {
				weight = int64(test.Now().Sub(at) / time.Second)
			}
			test.Decides(t, c.args, Default(), test.SingleScope(c.pod), test.Weighing(c.want, weight))
		})
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		args Args
		want []string
	}{
		{"nothing", Args{}, nil},
		{"the defaults", Default(), nil},
		{"all fields", Args{
			Selection:         candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web"}}, LabelSelector: &metav1.LabelSelector{}},
			ExcludeOwnerKinds: []string{"Job"}, MinPodLifetimeSeconds: 1, Reasons: []string{"any text at all"},
			ExitCodes: []int32{-1, 0, 137, 0xC0000}, IncludingInitContainers: true,
		}, nil},
		{"empty reasons and kinds", Args{Reasons: []string{"Error", ""}, ExcludeOwnerKinds: []string{"", "batch/Job"}}, []string{
			`excludeOwnerKinds[0]: is not a kind, got ""; write it without its group, such as ReplicaSet`,
			`excludeOwnerKinds[1]: is not a kind, got "batch/Job"; write it without its group, such as ReplicaSet`,
			`reasons[1]: is empty, got ""; write a reason, such as OOMKilled`,
		}},
		{"namespaces and selector", Args{Selection: test.InvalidSelection()}, test.SelectionMistakes()},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Refused(t, c.args.Validate(), c.want...)
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	s := test.SingleScope(pod(test.Containers(test.Ended("Completed", 0), test.Ended("OOMKilled", 137)), test.OwnedBy("ReplicaSet", "replicaset")))
	args := Args{
		MinPodLifetimeSeconds: 3600, Reasons: []string{"Error", "OOMKilled"}, ExcludeOwnerKinds: []string{"Job"},
		Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}},
	}
	test.BenchmarkDecide(b, args, s)
}

func BenchmarkDue(b *testing.B) {
	p := pod(test.Phase(corev1.PodRunning)).Pod
	args := Default()
	args.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	test.BenchmarkDue(b, args, p, false)
}
