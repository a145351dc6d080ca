package failedpods

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

// pod is the pod web/api on worker-1 that has failed, is two hours old and that nothing protects, with changes.
func pod(changes ...change) schemas.ScopedPod {
	p := schemas.ScopedPod{Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api", UID: "u1", Labels: map[string]string{"tier": "web"}},
		Spec:       corev1.PodSpec{NodeName: "worker-1"},
		Status:     corev1.PodStatus{Phase: corev1.PodFailed},
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

func terminating(p *schemas.ScopedPod) { p.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func protected(p *schemas.ScopedPod) {
	p.Protected = []schemas.Protection{{Rule: policy.FailedBarePods, Detail: "it has no owner that would replace it"}}
}

func scope(p schemas.ScopedPod) schemas.PodScope {
	return schemas.PodScope{ScopeHead: schemas.ScopeHead{Kind: schemas.PodKind, Key: "web/api", Now: now()}, Pod: p}
}

// goes is the answer that the pod goes.
func goes(reason string) []schemas.Intent {
	return []schemas.Intent{{
		Pod: schemas.PodRef{Namespace: "web", Name: "api", UID: "u1"}, Node: "worker-1", Ended: true, Reason: reason,
	}}
}

func TestPodsThatHaveFailedGo(t *testing.T) {
	after := func(seconds uint) Args { return Args{MinPodLifetimeSeconds: seconds} }
	reasons := func(reasons ...string) Args { return Args{Reasons: reasons} }
	codes := func(codes ...int32) Args { return Args{ExitCodes: codes} }
	oom := containers(ended("Completed", 0), ended("OOMKilled", 137))
	initOOM := initContainers(ended("OOMKilled", 137))
	plain := goes("failed; 2h old")
	for _, c := range []struct {
		name string
		args Args
		pod  schemas.ScopedPod
		want []schemas.Intent
	}{
		{"a pod that runs stays", Args{}, pod(phase(corev1.PodRunning)), nil},
		{"a pod that waits stays", Args{}, pod(phase(corev1.PodPending)), nil},
		{"a pod that has succeeded stays", Args{}, pod(phase(corev1.PodSucceeded)), nil},
		{"a pod whose node does not answer stays", Args{}, pod(phase(corev1.PodUnknown)), nil},
		{"a pod that runs stays although a container failed", Args{}, pod(phase(corev1.PodRunning), oom), nil},
		{"a pod that has failed goes", Args{}, pod(), plain},

		{"by default after an hour", Default(), pod(aged(time.Hour)), goes("failed; 1h old")},
		{"by default not before an hour", Default(), pod(aged(time.Hour - time.Nanosecond)), nil},
		{"at the very second", after(90), pod(aged(90 * time.Second)), goes("failed; 1m30s old")},
		{"not a moment before", after(90), pod(aged(90*time.Second - time.Nanosecond)), nil},
		{"at once when 0 is asked for", after(0), pod(aged(0)), goes("failed; 0s old")},
		{"a pod from the future waits until it is there", after(0), pod(aged(-time.Second)), nil},
		{"the longest time is never over", after(math.MaxUint), pod(), nil},

		{"the reason of the pod is told", Args{}, pod(because("Evicted")), goes("failed: Evicted; 2h old")},
		{"how a container ended is told", Args{}, pod(oom), goes("failed: OOMKilled, exit code 137; 2h old")},
		{"how a container ended for no reason is told", Args{}, pod(containers(ended("", 1))), goes("failed: exit code 1; 2h old")},
		{"how an init container ended is told", Args{}, pod(containers(waiting("PodInitializing")), initContainers(ended("Error", 1))),
			goes("failed: Error, exit code 1; 2h old")},

		{"an empty list of reasons asks for none", Args{Reasons: []string{}}, pod(), plain},
		{"for the reason of the pod", reasons("Evicted"), pod(because("Evicted")), goes("failed: Evicted; 2h old")},
		{"for another reason of the pod", reasons("Evicted"), pod(because("NodeAffinity")), nil},
		{"for no reason", reasons("Evicted"), pod(), nil},
		{"for the reason why a container ended", reasons("Error", "OOMKilled"), pod(oom), goes("failed: OOMKilled; 2h old")},
		{"for the reason why a container waits", reasons("CreateContainerConfigError"), pod(containers(waiting("CreateContainerConfigError"))),
			goes("failed: CreateContainerConfigError; 2h old")},
		{"a reason may be any text", reasons("MyReason"), pod(because("MyReason")), goes("failed: MyReason; 2h old")},
		{"a reason is not met by its beginning", reasons("OOM"), pod(oom), nil},
		{"the reason of an init container does not count", reasons("OOMKilled"), pod(initOOM), nil},
		{"the reason of an init container counts when asked for", Args{Reasons: []string{"OOMKilled"}, IncludingInitContainers: true},
			pod(initOOM), goes("failed: OOMKilled; 2h old")},
		{"ephemeral containers never count", Args{Reasons: []string{"OOMKilled"}, IncludingInitContainers: true},
			pod(ephemeralContainers(ended("OOMKilled", 137))), nil},
		{"how a container ended the time before does not count", reasons("OOMKilled"), pod(containers(corev1.ContainerStatus{
			LastTerminationState: ended("OOMKilled", 137).State,
		})), nil},

		{"an empty list of exit codes asks for none", Args{ExitCodes: []int32{}}, pod(), plain},
		{"with the exit code", codes(1, 137), pod(oom), goes("failed: exit code 137; 2h old")},
		{"with another exit code", codes(1), pod(oom), nil},
		{"with exit code 0, of a container that ended well", codes(0), pod(oom), goes("failed: exit code 0; 2h old")},
		{"with no exit code", codes(0), pod(), nil},
		{"the exit code of an init container does not count", codes(137), pod(initOOM), nil},
		{"the exit code of an init container counts when asked for", Args{ExitCodes: []int32{137}, IncludingInitContainers: true},
			pod(initOOM), goes("failed: exit code 137; 2h old")},
		{"reason and exit code, of one container or of two", Args{Reasons: []string{"Completed"}, ExitCodes: []int32{137}}, pod(oom),
			goes("failed: Completed, exit code 137; 2h old")},
		{"the reason without the exit code", Args{Reasons: []string{"OOMKilled"}, ExitCodes: []int32{1}}, pod(oom), nil},
		{"the exit code without the reason", Args{Reasons: []string{"Error"}, ExitCodes: []int32{137}}, pod(oom), nil},

		{"the pods of an owner that is excluded stay", Args{ExcludeOwnerKinds: []string{"Job"}}, pod(owned("Job")), nil},
		{"also when it has other owners", Args{ExcludeOwnerKinds: []string{"Job"}}, pod(owned("Other", "Job")), nil},
		{"the pods of other owners go", Args{ExcludeOwnerKinds: []string{"Job"}}, pod(owned("ReplicaSet")), plain},
		{"pods without an owner go", Args{ExcludeOwnerKinds: []string{"Job"}}, pod(), plain},

		{"a namespace that is included", Args{Namespaces: policy.Namespaces{Include: []string{"web"}}}, pod(), plain},
		{"a namespace that is not included", Args{Namespaces: policy.Namespaces{Include: []string{"db"}}}, pod(), nil},
		{"a namespace that is excluded", Args{Namespaces: policy.Namespaces{Exclude: []string{"web"}}}, pod(), nil},
		{"a pod that is selected", Args{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}, pod(), plain},
		{"a pod that is not selected", Args{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}}, pod(), nil},
		{"a protected pod stays", Args{}, pod(protected), nil},
		{"a terminating pod is left alone", Args{}, pod(terminating), nil},
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

// throughJSON is what arrives of the arguments in a scope, which are decoded over the defaults.
func throughJSON(t *testing.T, args Args) Args {
	t.Helper()
	data, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	got := Default()
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
		{"nothing", Args{}, nil},
		{"the defaults", Default(), nil},
		{"every field, rightly", Args{
			Namespaces: policy.Namespaces{Include: []string{"web"}}, LabelSelector: &metav1.LabelSelector{},
			ExcludeOwnerKinds: []string{"Job"}, MinPodLifetimeSeconds: 1, Reasons: []string{"any text at all"},
			ExitCodes: []int32{-1, 0, 137, 0xC0000}, IncludingInitContainers: true,
		}, nil},
		{"reasons and kinds that are empty", Args{Reasons: []string{"Error", ""}, ExcludeOwnerKinds: []string{"", "batch/Job"}}, []string{
			`excludeOwnerKinds[0]: is not a kind, got ""; write it without its group, such as ReplicaSet`,
			`excludeOwnerKinds[1]: is not a kind, got "batch/Job"; write it without its group, such as ReplicaSet`,
			`reasons[1]: is empty, got ""; write a reason, such as OOMKilled`,
		}},
		{"namespaces and selector", Args{
			Namespaces:    policy.Namespaces{Include: []string{"a"}, Exclude: []string{"b"}},
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
	s := scope(pod(containers(ended("Completed", 0), ended("OOMKilled", 137)), owned("ReplicaSet")))
	args := Args{
		MinPodLifetimeSeconds: 3600, Reasons: []string{"Error", "OOMKilled"}, ExcludeOwnerKinds: []string{"Job"},
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}},
	}
	b.ReportAllocs()
	for b.Loop() {
		if got := args.Decide(s); len(got) != 1 {
			b.Fatalf("got %+v, want one intent", got)
		}
	}
}

// A pod that runs is the usual one: every pod of the cluster is asked about at every resync.
func BenchmarkDue(b *testing.B) {
	p := pod(phase(corev1.PodRunning)).Pod
	args := Default()
	args.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, ever := args.Due(&p); ever {
			b.Fatal("due, want never")
		}
	}
}
