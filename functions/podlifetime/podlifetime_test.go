package podlifetime

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

// since adds a condition that changed its status this long ago.
func since(ago time.Duration, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) test.PodOption {
	return func(p *schemas.ScopedPod) {
		p.Pod.Status.Conditions = append(p.Pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(test.Now().Add(-ago)),
		})
	}
}

// always adds a condition without a transition time.
func always(kind corev1.PodConditionType, status corev1.ConditionStatus) test.PodOption {
	return func(p *schemas.ScopedPod) {
		p.Pod.Status.Conditions = append(p.Pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status})
	}
}

// testCase is a pod and the expected intents.
type testCase struct {
	name string
	args Args
	pod  schemas.ScopedPod
	want []schemas.Intent
}

func run(t *testing.T, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			weight := int64(0)
			if at, _ := c.args.Due(&c.pod.Pod); !at.IsZero() {
				weight = int64(test.Now().Sub(at) / time.Second)
			}
			test.Decides(t, c.args, Args{}, test.SingleScope(c.pod), test.Weighing(c.want, weight))
		})
	}
}

func TestDecideAge(t *testing.T) {
	most := func(seconds uint) Args { return Args{MaxPodLifeTimeSeconds: &seconds} }
	kinds := func(include, exclude []string) Args {
		return Args{MaxPodLifeTimeSeconds: new(uint(3600)), OwnerKinds: OwnerKinds{Include: include, Exclude: exclude}}
	}
	in := func(include, exclude []string) Args {
		return Args{MaxPodLifeTimeSeconds: new(uint(3600)), Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: include, Exclude: exclude}}}
	}
	selecting := func(tier string) Args {
		return Args{MaxPodLifeTimeSeconds: new(uint(3600)), Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}}}
	}
	old := test.Moves("2h old, the limit is 1h")
	run(t, []testCase{
		{"too young", most(7201), test.Single(), nil},
		{"exactly at the limit", most(7200), test.Single(), nil},
		{"less than a second over the limit", most(7199), test.Single(test.Aged(2*time.Hour - time.Nanosecond)), nil},
		{"one second over the limit", most(7199), test.Single(), test.Moves("2h old, the limit is 1h59m59s")},
		{"much older", most(86400), test.Single(test.Aged(142 * time.Hour)), test.Moves("142h old, the limit is 24h")},
		{"limit 0, after a second", most(0), test.Single(test.Aged(time.Second)), test.Moves("1s old, the limit is 0s")},
		{"limit 0, in the first second", most(0), test.Single(test.Aged(time.Second - 1)), nil},
		{"from the future", most(0), test.Single(test.Aged(-time.Hour)), nil},
		{"unknown age", most(0), test.Single(func(p *schemas.ScopedPod) { p.Pod.CreationTimestamp = metav1.Time{} }), nil},
		{"the longest time is never over", most(math.MaxUint), test.Single(), nil},
		{"centuries are never over", most(1 << 34), test.Single(), nil},

		{"pending", most(3600), test.Single(test.Phase(corev1.PodPending)), old},
		{"succeeded", most(3600), test.Single(test.Phase(corev1.PodSucceeded)), test.Removed(old[0].Reason)},
		{"failed", most(3600), test.Single(test.Phase(corev1.PodFailed)), test.Removed(old[0].Reason)},

		{"included owner", kinds([]string{"Job", "ReplicaSet"}, nil), test.Single(test.OwnedBy("Other", "other"), test.OwnedBy("ReplicaSet", "replicaset")), old},
		{"owner not included", kinds([]string{"Job"}, nil), test.Single(test.OwnedBy("ReplicaSet", "replicaset")), nil},
		{"no owner, some included", kinds([]string{"Job"}, nil), test.Single(), nil},
		{"excluded owner", kinds(nil, []string{"Job"}), test.Single(test.OwnedBy("Other", "other"), test.OwnedBy("Job", "job")), nil},
		{"owner not excluded", kinds(nil, []string{"Job"}), test.Single(test.OwnedBy("ReplicaSet", "replicaset")), old},
		{"no owner, some excluded", kinds(nil, []string{"Job"}), test.Single(), old},
		{"empty lists of kinds", kinds([]string{}, []string{}), test.Single(), old},

		{"included namespace", in([]string{"web"}, nil), test.Single(), old},
		{"namespace not included", in([]string{"db"}, nil), test.Single(), nil},
		{"excluded namespace", in(nil, []string{"web"}), test.Single(), nil},
		{"selected pod", selecting("web"), test.Single(), old},
		{"pod not selected", selecting("db"), test.Single(), nil},
		{"protected pod", most(3600), test.Single(test.Protected(policy.DaemonSetPods)), nil},
		{"terminating pod", most(3600), test.Single(test.Deleted()), nil},
	})
}

func TestDecideStates(t *testing.T) {
	in := func(states ...string) Args { return Args{States: states} }
	initToo := func(states ...string) Args { return Args{States: states, IncludingInitContainers: true} }
	ephemeralToo := func(states ...string) Args { return Args{States: states, IncludingEphemeralContainers: true} }
	oom := test.Ended("OOMKilled", 137)
	run(t, []testCase{
		{"its phase", in("Pending", "Running"), test.Single(), test.Moves("in state Running")},
		{"another phase", in("Pending"), test.Single(), nil},
		{"any age", in("Running"), test.Single(test.Aged(-time.Hour)), test.Moves("in state Running")},
		{"failed", in("Failed"), test.Single(test.Phase(corev1.PodFailed)), test.Removed("in state Failed")},
		{"succeeded", in("Succeeded"), test.Single(test.Phase(corev1.PodSucceeded)), test.Removed("in state Succeeded")},
		{"its reason", in("NodeLost"), test.Single(test.Because("NodeLost")), test.Moves("in state NodeLost")},
		{"another reason", in("NodeLost"), test.Single(test.Because("Shutdown")), nil},
		{"a container waits", in("CrashLoopBackOff"), test.Single(test.Containers(test.Ended("Completed", 0), test.Waiting("CrashLoopBackOff"))), test.Moves("in state CrashLoopBackOff")},
		{"a container waits for something else", in("CrashLoopBackOff"), test.Single(test.Containers(test.Waiting("ErrImagePull"))), nil},
		{"a container has ended", in("OOMKilled"), test.Single(test.Containers(oom)), test.Moves("in state OOMKilled")},
		{"a container had ended before it was restarted", in("OOMKilled"), test.Single(test.Containers(corev1.ContainerStatus{LastTerminationState: oom.State})), nil},
		{"an init container does not count", in("OOMKilled"), test.Single(test.InitContainers(oom)), nil},
		{"an init container does not count with ephemeral ones", ephemeralToo("OOMKilled"), test.Single(test.InitContainers(oom)), nil},
		{"an init container counts if included", initToo("OOMKilled"), test.Single(test.InitContainers(oom)), test.Moves("in state OOMKilled")},
		{"an ephemeral container does not count", in("Error"), test.Single(test.EphemeralContainers(test.Ended("Error", 1))), nil},
		{"an ephemeral container does not count with init ones", initToo("Error"), test.Single(test.EphemeralContainers(test.Ended("Error", 1))), nil},
		{"an ephemeral container counts if included", ephemeralToo("Error"), test.Single(test.EphemeralContainers(test.Ended("Error", 1))), test.Moves("in state Error")},
		{"phase before reason before container", in("OOMKilled", "NodeLost", "Running"), test.Single(test.Because("NodeLost"), test.Containers(oom)),
			test.Moves("in state Running")},
		{"and long enough", Args{States: []string{"Running"}, MaxPodLifeTimeSeconds: new(uint(3600))}, test.Single(), test.Moves("2h old, the limit is 1h; in state Running")},
		{"but not long enough", Args{States: []string{"Running"}, MaxPodLifeTimeSeconds: new(uint(7200))}, test.Single(), nil},
		{"long enough, but in another state", Args{States: []string{"Pending"}, MaxPodLifeTimeSeconds: new(uint(3600))}, test.Single(), nil},
	})
}

func TestDecideConditions(t *testing.T) {
	notReady := since(10*time.Minute, corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
	scheduled := since(2*time.Hour, corev1.PodScheduled, corev1.ConditionTrue, "")
	in := func(conditions ...Condition) Args { return Args{Conditions: conditions} }
	text := test.Moves("condition Ready is False (ContainersNotReady) for 10m")
	run(t, []testCase{
		{"its type", in(Condition{Type: "Ready"}), test.Single(scheduled, notReady), text},
		{"another type", in(Condition{Type: "Initialized"}), test.Single(scheduled, notReady), nil},
		{"no conditions at all", in(Condition{Status: "False"}), test.Single(), nil},
		{"its status", in(Condition{Status: "False"}), test.Single(scheduled, notReady), text},
		{"another status", in(Condition{Status: "Unknown"}), test.Single(scheduled, notReady), nil},
		{"its reason", in(Condition{Reason: "ContainersNotReady"}), test.Single(scheduled, notReady), text},
		{"another reason", in(Condition{Reason: "PodCompleted"}), test.Single(scheduled, notReady), nil},
		{"all of it", in(Condition{Type: "Ready", Status: "False", Reason: "ContainersNotReady", MinTimeSinceLastTransitionSeconds: new(uint(600))}),
			test.Single(scheduled, notReady), text},
		{"matches in two different conditions", in(Condition{Type: "Ready", Status: "True"}), test.Single(scheduled, notReady), nil},
		{"one of two conditions", in(Condition{Type: "Gone"}, Condition{Type: "Ready"}), test.Single(scheduled, notReady), text},
		{"the condition that matched first", in(
			Condition{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(60))}, Condition{Type: "PodScheduled", MinTimeSinceLastTransitionSeconds: new(uint(60))},
		), test.Single(notReady, scheduled), test.Moves("condition PodScheduled is True for 2h")},
		{"two matches by state, first in the arguments", in(Condition{Type: "Ready"}, Condition{Type: "PodScheduled"}),
			test.Single(scheduled, notReady), text},

		{"for exactly long enough", in(Condition{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(600))}), test.Single(notReady), text},
		{"a second too short", in(Condition{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(601))}), test.Single(notReady), nil},
		{"one for long enough and one too short", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(601))}), test.Single(notReady, scheduled),
			test.Moves("condition PodScheduled is True for 2h")},
		{"any time, however short", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(0))}), test.Single(notReady), text},
		{"a condition from the future waits until it is there", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(0))}),
			test.Single(since(-time.Second, corev1.PodReady, corev1.ConditionFalse, "")), nil},
		{"for centuries", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(math.MaxUint))}), test.Single(notReady), nil},
		{"for an unknown time", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(0))}), test.Single(always(corev1.PodReady, corev1.ConditionFalse)), nil},
		{"no matter when", in(Condition{Type: "Ready"}), test.Single(always(corev1.PodReady, corev1.ConditionFalse)), test.Moves("condition Ready is False")},

		{"and old enough", Args{Conditions: []Condition{{Type: "Ready"}}, MaxPodLifeTimeSeconds: new(uint(3600))}, test.Single(notReady),
			test.Moves("2h old, the limit is 1h; " + text[0].Reason)},
		{"but not old enough", Args{Conditions: []Condition{{Type: "Ready"}}, MaxPodLifeTimeSeconds: new(uint(7200))}, test.Single(notReady), nil},
		{"old enough, but in another condition", Args{Conditions: []Condition{{Type: "Gone"}}, MaxPodLifeTimeSeconds: new(uint(3600))}, test.Single(notReady), nil},
		{"old enough, but in the condition for too short", Args{
			Conditions: []Condition{{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(601))}}, MaxPodLifeTimeSeconds: new(uint(3600)),
		}, test.Single(notReady), nil},
	})
}

func TestDecideExitCodes(t *testing.T) {
	with := func(codes ...int32) Args { return Args{ExitCodes: codes} }
	two := test.Containers(test.Ended("Completed", 0), test.Ended("Error", 3))
	run(t, []testCase{
		{"of one of its containers", with(1, 3), test.Single(two), test.Moves("a container ended with exit code 3")},
		{"of none of them", with(1), test.Single(two), nil},
		{"zero is an exit code", with(0), test.Single(two), test.Moves("a container ended with exit code 0")},
		{"zero is not the exit code of a container that runs", with(0), test.Single(test.Containers(corev1.ContainerStatus{})), nil},
		{"from before the last restart does not count", with(3), test.Single(test.Containers(corev1.ContainerStatus{LastTerminationState: test.Ended("Error", 3).State})), nil},
		{"of an init container does not count", with(3), test.Single(test.InitContainers(test.Ended("Error", 3))), nil},
		{"of an init container counts if included", Args{ExitCodes: []int32{3}, IncludingInitContainers: true}, test.Single(test.InitContainers(test.Ended("Error", 3))),
			test.Moves("a container ended with exit code 3")},
		{"of an ephemeral container never counts", Args{ExitCodes: []int32{3}, IncludingEphemeralContainers: true}, test.Single(test.EphemeralContainers(test.Ended("Error", 3))), nil},
		{"exit code and state of different containers", Args{ExitCodes: []int32{3}, States: []string{"Completed"}}, test.Single(two),
			test.Moves("in state Completed; a container ended with exit code 3")},
		{"but in another state", Args{ExitCodes: []int32{3}, States: []string{"Pending"}}, test.Single(two), nil},
		{"all arguments", Args{
			MaxPodLifeTimeSeconds: new(uint(3600)), States: []string{"Running"}, Conditions: []Condition{{Type: "Ready"}}, ExitCodes: []int32{3},
			OwnerKinds: OwnerKinds{Include: []string{"ReplicaSet"}},
		}, test.Single(two, test.OwnedBy("ReplicaSet", "replicaset"), since(time.Minute, corev1.PodReady, corev1.ConditionFalse, "")),
			test.Moves("2h old, the limit is 1h; in state Running; condition Ready is False for 1m; a container ended with exit code 3")},
	})
}

func TestValidate(t *testing.T) {
	const known = "; want one of Running, Pending, Succeeded, Failed, Unknown, " +
		"NodeAffinity, NodeLost, Shutdown, UnexpectedAdmissionError, " +
		"PodInitializing, ContainerCreating, ImagePullBackOff, CrashLoopBackOff, CreateContainerConfigError, ErrImagePull, " +
		"CreateContainerError, InvalidImageName, " +
		"OOMKilled, Error, Completed, DeadlineExceeded, Evicted, ContainerCannotRun, StartError"
	const nothing = "would move every pod; give at least one of maxPodLifeTimeSeconds, states, conditions and exitCodes"
	max := new(uint(1))
	for _, c := range []struct {
		name string
		args Args
		want []string
	}{
		{"nothing", Args{}, []string{nothing}},
		{"empty lists", Args{States: []string{}, Conditions: []Condition{}, ExitCodes: []int32{}}, []string{nothing}},
		{"only filters", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"a"}}, LabelSelector: &metav1.LabelSelector{}},
			OwnerKinds: OwnerKinds{Include: []string{"Job"}}, IncludingInitContainers: true}, []string{nothing}},
		{"age 0", Args{MaxPodLifeTimeSeconds: new(uint(0))}, nil},
		{"one state", Args{States: []string{"Running"}}, nil},
		{"one condition", Args{Conditions: []Condition{{MinTimeSinceLastTransitionSeconds: new(uint(0))}}}, nil},
		{"one exit code", Args{ExitCodes: []int32{0}}, nil},
		{"all fields", Args{
			Selection:  candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"web"}}, LabelSelector: &metav1.LabelSelector{}},
			OwnerKinds: OwnerKinds{Exclude: []string{"Job"}}, MaxPodLifeTimeSeconds: max, States: states(),
			Conditions: []Condition{{Type: "a", Status: "True", Reason: "b"}, {Status: "Unknown"}, {Status: "False"}},
			ExitCodes:  []int32{-1, 255}, IncludingInitContainers: true, IncludingEphemeralContainers: true,
		}, nil},
		{"unknown states", Args{States: []string{"Running", "running", "", "Terminating"}}, []string{
			`states[1]: is not known, got "running"` + known, `states[2]: is not known, got ""` + known,
			`states[3]: is not known, got "Terminating"` + known,
		}},
		{"empty condition and invalid status", Args{Conditions: []Condition{{}, {Type: "Ready"}, {Status: "true"}}}, []string{
			"conditions[0]: would be met by every condition; give at least one of type, status, reason and minTimeSinceLastTransitionSeconds",
			`conditions[2].status: is not the status of a condition, got "true"; want True, False or Unknown`,
		}},
		{"both lists of kinds", Args{MaxPodLifeTimeSeconds: max, OwnerKinds: OwnerKinds{Include: []string{"Job"}, Exclude: []string{"batch/Job"}}}, []string{
			"ownerKinds: has both include and exclude; keep one",
			`ownerKinds.exclude[0]: is not a kind, got "batch/Job"; write it without its group, such as ReplicaSet`,
		}},
		{"empty kind", Args{MaxPodLifeTimeSeconds: max, OwnerKinds: OwnerKinds{Include: []string{""}}}, []string{
			`ownerKinds.include[0]: is not a kind, got ""; write it without its group, such as ReplicaSet`,
		}},
		{"namespaces and selector", Args{MaxPodLifeTimeSeconds: max, Selection: test.InvalidSelection()}, test.SelectionMistakes()},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Refused(t, c.args.Validate(), c.want...)
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	s := test.SingleScope(test.Single(test.Containers(test.Ended("Completed", 0), test.Waiting("CrashLoopBackOff")), test.OwnedBy("ReplicaSet", "replicaset"),
		since(10*time.Minute, corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")))
	args := Args{
		MaxPodLifeTimeSeconds: new(uint(3600)), States: []string{"Pending", "CrashLoopBackOff"}, OwnerKinds: OwnerKinds{Exclude: []string{"Job"}},
		Conditions: []Condition{{Type: "Ready", Status: "False", MinTimeSinceLastTransitionSeconds: new(uint(60))}},
		Selection:  candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}},
	}
	test.BenchmarkDecide(b, args, s)
}

func BenchmarkDue(b *testing.B) {
	p := test.Single().Pod
	args := Args{MaxPodLifeTimeSeconds: new(uint(86400)), Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}}
	test.BenchmarkDue(b, args, p, true)
}
