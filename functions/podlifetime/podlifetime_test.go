package podlifetime

import (
	"encoding/json"
	"math"
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

// now is when the tests decide.
func now() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// pod is the running pod web/api on worker-1, two hours old and not protected, with changes.
func pod(changes ...change) schemas.ScopedPod {
	p := schemas.ScopedPod{Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api", UID: "u1", Labels: map[string]string{"tier": "web"}},
		Spec:       corev1.PodSpec{NodeName: "worker-1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}}
	aged(2 * time.Hour)(&p)
	for _, c := range changes {
		c(&p)
	}
	return p
}

func aged(age time.Duration) change {
	return func(p *schemas.ScopedPod) { p.Pod.CreationTimestamp = metav1.NewTime(now().Add(-age)) }
}

func phase(phase corev1.PodPhase) change {
	return func(p *schemas.ScopedPod) { p.Pod.Status.Phase = phase }
}

func because(reason string) change {
	return func(p *schemas.ScopedPod) { p.Pod.Status.Reason = reason }
}

func owned(kinds ...string) change {
	return func(p *schemas.ScopedPod) {
		for _, k := range kinds {
			p.Pod.OwnerReferences = append(p.Pod.OwnerReferences, metav1.OwnerReference{Kind: k})
		}
	}
}

func ended(reason string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}}}
}

func waiting(reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func containers(statuses ...corev1.ContainerStatus) change {
	return func(p *schemas.ScopedPod) { p.Pod.Status.ContainerStatuses = statuses }
}

func initContainers(statuses ...corev1.ContainerStatus) change {
	return func(p *schemas.ScopedPod) { p.Pod.Status.InitContainerStatuses = statuses }
}

func ephemeralContainers(statuses ...corev1.ContainerStatus) change {
	return func(p *schemas.ScopedPod) { p.Pod.Status.EphemeralContainerStatuses = statuses }
}

// since adds a condition that changed its status that long ago.
func since(ago time.Duration, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) change {
	return func(p *schemas.ScopedPod) {
		p.Pod.Status.Conditions = append(p.Pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(now().Add(-ago)),
		})
	}
}

// always adds a condition of which it is not known when it changed its status.
func always(kind corev1.PodConditionType, status corev1.ConditionStatus) change {
	return func(p *schemas.ScopedPod) {
		p.Pod.Status.Conditions = append(p.Pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status})
	}
}

func terminating(p *schemas.ScopedPod) { p.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func protected(p *schemas.ScopedPod) {
	p.Protected = []schemas.Protection{{Rule: policy.DaemonSetPods, Detail: "it belongs to the DaemonSet agent"}}
}

func scope(p schemas.ScopedPod) schemas.PodScope {
	return schemas.PodScope{ScopeHead: schemas.ScopeHead{Kind: schemas.PodKind, Key: "web/api", Now: now()}, Pod: p}
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

// testCase is one pod and what the arguments make of it.
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

func TestPodsThatHaveLivedTooLongMove(t *testing.T) {
	most := func(seconds uint) Args { return Args{MaxPodLifeTimeSeconds: &seconds} }
	kinds := func(include, exclude []string) Args {
		return Args{MaxPodLifeTimeSeconds: new(uint(3600)), OwnerKinds: OwnerKinds{Include: include, Exclude: exclude}}
	}
	in := func(include, exclude []string) Args {
		return Args{MaxPodLifeTimeSeconds: new(uint(3600)), Namespaces: policy.Namespaces{Include: include, Exclude: exclude}}
	}
	selecting := func(tier string) Args {
		return Args{MaxPodLifeTimeSeconds: new(uint(3600)), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}}
	}
	old := moves("2h old, the limit is 1h")
	run(t, []testCase{
		{"younger than it may be", most(7201), pod(), nil},
		{"as old as it may be", most(7200), pod(), nil},
		{"older than it may be by less than a second", most(7199), pod(aged(2*time.Hour - time.Nanosecond)), nil},
		{"older than it may be by a second", most(7199), pod(), moves("2h old, the limit is 1h59m59s")},
		{"much older", most(86400), pod(aged(142 * time.Hour)), moves("142h old, the limit is 24h")},
		{"when no age is allowed, after a second", most(0), pod(aged(time.Second)), moves("1s old, the limit is 0s")},
		{"when no age is allowed, not in the first second", most(0), pod(aged(time.Second - 1)), nil},
		{"from the future", most(0), pod(aged(-time.Hour)), nil},
		{"of an age that is not known", most(0), pod(func(p *schemas.ScopedPod) { p.Pod.CreationTimestamp = metav1.Time{} }), nil},
		{"the longest time is never over", most(math.MaxUint), pod(), nil},
		{"centuries are never over", most(1 << 34), pod(), nil},

		{"one that waits for its containers", most(3600), pod(phase(corev1.PodPending)), old},
		{"one that has succeeded", most(3600), pod(phase(corev1.PodSucceeded)), removed(old[0].Reason)},
		{"one that has failed", most(3600), pod(phase(corev1.PodFailed)), removed(old[0].Reason)},

		{"of an owner that is included", kinds([]string{"Job", "ReplicaSet"}, nil), pod(owned("Other", "ReplicaSet")), old},
		{"of an owner that is not included", kinds([]string{"Job"}, nil), pod(owned("ReplicaSet")), nil},
		{"without an owner when some are included", kinds([]string{"Job"}, nil), pod(), nil},
		{"of an owner that is excluded", kinds(nil, []string{"Job"}), pod(owned("Other", "Job")), nil},
		{"of an owner that is not excluded", kinds(nil, []string{"Job"}), pod(owned("ReplicaSet")), old},
		{"without an owner when some are excluded", kinds(nil, []string{"Job"}), pod(), old},
		{"empty lists of kinds ask for none", kinds([]string{}, []string{}), pod(), old},

		{"a namespace that is included", in([]string{"web"}, nil), pod(), old},
		{"a namespace that is not included", in([]string{"db"}, nil), pod(), nil},
		{"a namespace that is excluded", in(nil, []string{"web"}), pod(), nil},
		{"one that is selected", selecting("web"), pod(), old},
		{"one that is not selected", selecting("db"), pod(), nil},
		{"a protected one stays", most(3600), pod(protected), nil},
		{"a terminating one is left alone", most(3600), pod(terminating), nil},
	})
}

func TestPodsInAStateMove(t *testing.T) {
	in := func(states ...string) Args { return Args{States: states} }
	initToo := func(states ...string) Args { return Args{States: states, IncludingInitContainers: true} }
	ephemeralToo := func(states ...string) Args { return Args{States: states, IncludingEphemeralContainers: true} }
	oom := ended("OOMKilled", 137)
	run(t, []testCase{
		{"its phase", in("Pending", "Running"), pod(), moves("in state Running")},
		{"another phase", in("Pending"), pod(), nil},
		{"whatever its age", in("Running"), pod(aged(-time.Hour)), moves("in state Running")},
		{"failed", in("Failed"), pod(phase(corev1.PodFailed)), removed("in state Failed")},
		{"succeeded", in("Succeeded"), pod(phase(corev1.PodSucceeded)), removed("in state Succeeded")},
		{"its reason", in("NodeLost"), pod(because("NodeLost")), moves("in state NodeLost")},
		{"another reason", in("NodeLost"), pod(because("Shutdown")), nil},
		{"a container waits", in("CrashLoopBackOff"), pod(containers(ended("Completed", 0), waiting("CrashLoopBackOff"))), moves("in state CrashLoopBackOff")},
		{"a container waits for something else", in("CrashLoopBackOff"), pod(containers(waiting("ErrImagePull"))), nil},
		{"a container has ended", in("OOMKilled"), pod(containers(oom)), moves("in state OOMKilled")},
		{"a container had ended before it was restarted", in("OOMKilled"), pod(containers(corev1.ContainerStatus{LastTerminationState: oom.State})), nil},
		{"an init container does not count", in("OOMKilled"), pod(initContainers(oom)), nil},
		{"an init container does not count with ephemeral ones", ephemeralToo("OOMKilled"), pod(initContainers(oom)), nil},
		{"an init container counts when asked for", initToo("OOMKilled"), pod(initContainers(oom)), moves("in state OOMKilled")},
		{"an ephemeral container does not count", in("Error"), pod(ephemeralContainers(ended("Error", 1))), nil},
		{"an ephemeral container does not count with init ones", initToo("Error"), pod(ephemeralContainers(ended("Error", 1))), nil},
		{"an ephemeral container counts when asked for", ephemeralToo("Error"), pod(ephemeralContainers(ended("Error", 1))), moves("in state Error")},
		{"the phase is told before the reason, and that before a container's", in("OOMKilled", "NodeLost", "Running"), pod(because("NodeLost"), containers(oom)),
			moves("in state Running")},
		{"and long enough", Args{States: []string{"Running"}, MaxPodLifeTimeSeconds: new(uint(3600))}, pod(), moves("2h old, the limit is 1h; in state Running")},
		{"but not long enough", Args{States: []string{"Running"}, MaxPodLifeTimeSeconds: new(uint(7200))}, pod(), nil},
		{"long enough, but in another state", Args{States: []string{"Pending"}, MaxPodLifeTimeSeconds: new(uint(3600))}, pod(), nil},
	})
}

func TestPodsInAConditionMove(t *testing.T) {
	notReady := since(10*time.Minute, corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
	scheduled := since(2*time.Hour, corev1.PodScheduled, corev1.ConditionTrue, "")
	in := func(conditions ...Condition) Args { return Args{Conditions: conditions} }
	text := moves("condition Ready is False (ContainersNotReady) for 10m")
	run(t, []testCase{
		{"its type", in(Condition{Type: "Ready"}), pod(scheduled, notReady), text},
		{"another type", in(Condition{Type: "Initialized"}), pod(scheduled, notReady), nil},
		{"no conditions at all", in(Condition{Status: "False"}), pod(), nil},
		{"its status", in(Condition{Status: "False"}), pod(scheduled, notReady), text},
		{"another status", in(Condition{Status: "Unknown"}), pod(scheduled, notReady), nil},
		{"its reason", in(Condition{Reason: "ContainersNotReady"}), pod(scheduled, notReady), text},
		{"another reason", in(Condition{Reason: "PodCompleted"}), pod(scheduled, notReady), nil},
		{"all of it", in(Condition{Type: "Ready", Status: "False", Reason: "ContainersNotReady", MinTimeSinceLastTransitionSeconds: new(uint(600))}),
			pod(scheduled, notReady), text},
		{"what is asked for of two conditions together", in(Condition{Type: "Ready", Status: "True"}), pod(scheduled, notReady), nil},
		{"one of two that are asked for", in(Condition{Type: "Gone"}, Condition{Type: "Ready"}), pod(scheduled, notReady), text},
		{"of two that are met, the one that was met first", in(
			Condition{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(60))}, Condition{Type: "PodScheduled", MinTimeSinceLastTransitionSeconds: new(uint(60))},
		), pod(notReady, scheduled), moves("condition PodScheduled is True for 2h")},
		{"of two that are met by the state alone, the one that is asked for first", in(Condition{Type: "Ready"}, Condition{Type: "PodScheduled"}),
			pod(scheduled, notReady), text},

		{"for exactly long enough", in(Condition{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(600))}), pod(notReady), text},
		{"a second too short", in(Condition{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(601))}), pod(notReady), nil},
		{"one for long enough and one too short", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(601))}), pod(notReady, scheduled),
			moves("condition PodScheduled is True for 2h")},
		{"any time, however short", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(0))}), pod(notReady), text},
		{"a condition from the future waits until it is there", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(0))}),
			pod(since(-time.Second, corev1.PodReady, corev1.ConditionFalse, "")), nil},
		{"for centuries", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(math.MaxUint))}), pod(notReady), nil},
		{"for a time that is not known", in(Condition{MinTimeSinceLastTransitionSeconds: new(uint(0))}), pod(always(corev1.PodReady, corev1.ConditionFalse)), nil},
		{"no matter when", in(Condition{Type: "Ready"}), pod(always(corev1.PodReady, corev1.ConditionFalse)), moves("condition Ready is False")},

		{"and old enough", Args{Conditions: []Condition{{Type: "Ready"}}, MaxPodLifeTimeSeconds: new(uint(3600))}, pod(notReady),
			moves("2h old, the limit is 1h; " + text[0].Reason)},
		{"but not old enough", Args{Conditions: []Condition{{Type: "Ready"}}, MaxPodLifeTimeSeconds: new(uint(7200))}, pod(notReady), nil},
		{"old enough, but in another condition", Args{Conditions: []Condition{{Type: "Gone"}}, MaxPodLifeTimeSeconds: new(uint(3600))}, pod(notReady), nil},
		{"old enough, but in the condition for too short", Args{
			Conditions: []Condition{{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(601))}}, MaxPodLifeTimeSeconds: new(uint(3600)),
		}, pod(notReady), nil},
	})
}

func TestPodsWithAnExitCodeMove(t *testing.T) {
	with := func(codes ...int32) Args { return Args{ExitCodes: codes} }
	two := containers(ended("Completed", 0), ended("Error", 3))
	run(t, []testCase{
		{"of one of its containers", with(1, 3), pod(two), moves("a container ended with exit code 3")},
		{"of none of them", with(1), pod(two), nil},
		{"zero is an exit code", with(0), pod(two), moves("a container ended with exit code 0")},
		{"zero is not the exit code of a container that runs", with(0), pod(containers(corev1.ContainerStatus{})), nil},
		{"from before the last restart does not count", with(3), pod(containers(corev1.ContainerStatus{LastTerminationState: ended("Error", 3).State})), nil},
		{"of an init container does not count", with(3), pod(initContainers(ended("Error", 3))), nil},
		{"of an init container counts when asked for", Args{ExitCodes: []int32{3}, IncludingInitContainers: true}, pod(initContainers(ended("Error", 3))),
			moves("a container ended with exit code 3")},
		{"of an ephemeral container never counts", Args{ExitCodes: []int32{3}, IncludingEphemeralContainers: true}, pod(ephemeralContainers(ended("Error", 3))), nil},
		{"and in the state, of one container or of two", Args{ExitCodes: []int32{3}, States: []string{"Completed"}}, pod(two),
			moves("in state Completed; a container ended with exit code 3")},
		{"but in another state", Args{ExitCodes: []int32{3}, States: []string{"Pending"}}, pod(two), nil},
		{"everything at once", Args{
			MaxPodLifeTimeSeconds: new(uint(3600)), States: []string{"Running"}, Conditions: []Condition{{Type: "Ready"}}, ExitCodes: []int32{3},
			OwnerKinds: OwnerKinds{Include: []string{"ReplicaSet"}},
		}, pod(two, owned("ReplicaSet"), since(time.Minute, corev1.PodReady, corev1.ConditionFalse, "")),
			moves("2h old, the limit is 1h; in state Running; condition Ready is False for 1m; a container ended with exit code 3")},
	})
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
		{"only empty lists", Args{States: []string{}, Conditions: []Condition{}, ExitCodes: []int32{}}, []string{nothing}},
		{"only filters", Args{Namespaces: policy.Namespaces{Include: []string{"a"}}, LabelSelector: &metav1.LabelSelector{},
			OwnerKinds: OwnerKinds{Include: []string{"Job"}}, IncludingInitContainers: true}, []string{nothing}},
		{"an age of nothing", Args{MaxPodLifeTimeSeconds: new(uint(0))}, nil},
		{"one state", Args{States: []string{"Running"}}, nil},
		{"one condition", Args{Conditions: []Condition{{MinTimeSinceLastTransitionSeconds: new(uint(0))}}}, nil},
		{"one exit code", Args{ExitCodes: []int32{0}}, nil},
		{"every field, rightly", Args{
			Namespaces: policy.Namespaces{Exclude: []string{"web"}}, LabelSelector: &metav1.LabelSelector{},
			OwnerKinds: OwnerKinds{Exclude: []string{"Job"}}, MaxPodLifeTimeSeconds: max, States: states(),
			Conditions: []Condition{{Type: "a", Status: "True", Reason: "b"}, {Status: "Unknown"}, {Status: "False"}},
			ExitCodes:  []int32{-1, 255}, IncludingInitContainers: true, IncludingEphemeralContainers: true,
		}, nil},
		{"states that are not known", Args{States: []string{"Running", "running", "", "Terminating"}}, []string{
			`states[1]: is not known, got "running"` + known, `states[2]: is not known, got ""` + known,
			`states[3]: is not known, got "Terminating"` + known,
		}},
		{"conditions that say nothing or nothing that can be", Args{Conditions: []Condition{{}, {Type: "Ready"}, {Status: "true"}}}, []string{
			"conditions[0]: would be met by every condition; give at least one of type, status, reason and minTimeSinceLastTransitionSeconds",
			`conditions[2].status: is not the status of a condition, got "true"; want True, False or Unknown`,
		}},
		{"both lists of kinds", Args{MaxPodLifeTimeSeconds: max, OwnerKinds: OwnerKinds{Include: []string{"Job"}, Exclude: []string{"batch/Job"}}}, []string{
			"ownerKinds: has both include and exclude; keep one",
			`ownerKinds.exclude[0]: is not a kind, got "batch/Job"; write it without its group, such as ReplicaSet`,
		}},
		{"a kind that is empty", Args{MaxPodLifeTimeSeconds: max, OwnerKinds: OwnerKinds{Include: []string{""}}}, []string{
			`ownerKinds.include[0]: is not a kind, got ""; write it without its group, such as ReplicaSet`,
		}},
		{"namespaces and selector", Args{
			MaxPodLifeTimeSeconds: max, Namespaces: policy.Namespaces{Include: []string{"a"}, Exclude: []string{"b"}},
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
	s := scope(pod(containers(ended("Completed", 0), waiting("CrashLoopBackOff")), owned("ReplicaSet"),
		since(10*time.Minute, corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")))
	args := Args{
		MaxPodLifeTimeSeconds: new(uint(3600)), States: []string{"Pending", "CrashLoopBackOff"}, OwnerKinds: OwnerKinds{Exclude: []string{"Job"}},
		Conditions:    []Condition{{Type: "Ready", Status: "False", MinTimeSinceLastTransitionSeconds: new(uint(60))}},
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}},
	}
	b.ReportAllocs()
	for b.Loop() {
		if got := args.Decide(s); len(got) != 1 {
			b.Fatalf("got %+v, want one intent", got)
		}
	}
}

// A pod that is young is the usual one: every pod of the cluster is asked about at every resync.
func BenchmarkDue(b *testing.B) {
	p := pod().Pod
	args := Args{MaxPodLifeTimeSeconds: new(uint(86400)), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}
	b.ReportAllocs()
	for b.Loop() {
		if at, ever := args.Due(&p); !ever || at.Before(now()) {
			b.Fatalf("due at %v, %v, want later", at, ever)
		}
	}
}
