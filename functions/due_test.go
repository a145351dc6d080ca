package functions

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/functions/failedpods"
	"github.com/rehome-dev/rehome/functions/podlifetime"
	"github.com/rehome-dev/rehome/functions/toomanyrestarts"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// timed is a strategy about single pods.
type timed interface {
	policy.Args
	policy.Timed
	Decide(schemas.PodScope) []schemas.Intent
}

// random makes pods and arguments from few values, so that they often match.
type random struct{ *rand.Rand }

func (r random) one(of ...string) string { return of[r.IntN(len(of))] }

func (r random) often() bool { return r.IntN(3) > 0 }

func (r random) some(of ...string) []string {
	var list []string
	for _, s := range of {
		if r.IntN(2) == 0 {
			list = append(list, s)
		}
	}
	return list
}

func (r random) seconds() *uint {
	if r.IntN(3) == 0 {
		return nil
	}
	if r.IntN(20) == 0 {
		return new(r.Uint())
	}
	return new(uint(r.IntN(10)))
}

// base returns the approximate time of everything.
func base() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// time returns a time within ten seconds of the base, usually a whole second, as the API server writes it.
func (r random) time() metav1.Time {
	if r.IntN(10) == 0 {
		return metav1.Time{}
	}
	unit := time.Second
	if r.IntN(4) == 0 {
		unit = time.Millisecond
	}
	return metav1.NewTime(base().Add(time.Duration(r.Int64N(int64(10*time.Second/unit))) * unit))
}

func (r random) statuses() []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for i := range r.IntN(3) {
		s := corev1.ContainerStatus{Name: fmt.Sprint("c", i), RestartCount: r.Int32N(4)}
		switch r.IntN(3) {
		case 0:
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: r.one("CrashLoopBackOff", "ErrImagePull")}
		case 1:
			s.State.Terminated = &corev1.ContainerStateTerminated{Reason: r.one("Error", "OOMKilled", ""), ExitCode: r.Int32N(3)}
		}
		list = append(list, s)
	}
	return list
}

func (r random) pod() corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.one("web", "db"), Name: "api", UID: "u1", Labels: map[string]string{"tier": r.one("a", "b")}, CreationTimestamp: r.time(),
		},
		Spec: corev1.PodSpec{NodeName: "worker-1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodPhase(r.one("Pending", "Running", "Succeeded", "Failed", "Failed")), Reason: r.one("", "", "Evicted", "NodeLost"),
			ContainerStatuses: r.statuses(), InitContainerStatuses: r.statuses(), EphemeralContainerStatuses: r.statuses(),
		},
	}
	for _, kind := range r.some("Job", "ReplicaSet") {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: kind})
	}
	for _, kind := range r.some("Ready", "Initialized") {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodConditionType(kind), Status: corev1.ConditionStatus(r.one("True", "False")), Reason: r.one("", "A"), LastTransitionTime: r.time(),
		})
	}
	if r.IntN(10) == 0 {
		p.DeletionTimestamp = new(metav1.NewTime(base()))
	}
	return p
}

func (r random) namespaces() policy.Namespaces {
	switch r.IntN(4) {
	case 0:
		return policy.Namespaces{Include: []string{r.one("web", "db")}}
	case 1:
		return policy.Namespaces{Exclude: []string{r.one("web", "db")}}
	}
	return policy.Namespaces{}
}

func (r random) selector() *metav1.LabelSelector {
	if r.often() {
		return nil
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"tier": r.one("a", "b")}}
}

func (r random) codes() []int32 {
	if r.often() {
		return nil
	}
	return []int32{r.Int32N(3), r.Int32N(3)}
}

func (r random) tooManyRestarts() toomanyrestarts.Args {
	return toomanyrestarts.Args{
		Selection: candidate.Selection{Namespaces: r.namespaces(), LabelSelector: r.selector()}, PodRestartThreshold: 1 + r.Int32N(8),
		IncludingInitContainers: r.IntN(2) == 0, States: r.some("Running", "CrashLoopBackOff"),
	}
}

func (r random) podLifeTime() podlifetime.Args {
	a := podlifetime.Args{
		Selection: candidate.Selection{Namespaces: r.namespaces(), LabelSelector: r.selector()}, MaxPodLifeTimeSeconds: r.seconds(), ExitCodes: r.codes(),
		IncludingInitContainers: r.IntN(2) == 0, IncludingEphemeralContainers: r.IntN(2) == 0,
	}
	switch r.IntN(4) {
	case 0:
		a.OwnerKinds.Include = r.some("Job", "ReplicaSet")
	case 1:
		a.OwnerKinds.Exclude = r.some("Job", "ReplicaSet")
	}
	if !r.often() {
		a.States = r.some("Running", "Failed", "NodeLost", "OOMKilled", "CrashLoopBackOff")
	}
	if r.IntN(2) == 0 {
		for range 1 + r.IntN(2) {
			a.Conditions = append(a.Conditions, podlifetime.Condition{
				Type: r.one("", "Ready"), Status: r.one("", "True", "False"), Reason: r.one("", "", "A"), MinTimeSinceLastTransitionSeconds: r.seconds(),
			})
		}
	}
	return a
}

func (r random) failedPods() failedpods.Args {
	a := failedpods.Args{
		Selection: candidate.Selection{Namespaces: r.namespaces(), LabelSelector: r.selector()}, ExitCodes: r.codes(), IncludingInitContainers: r.IntN(2) == 0,
	}
	if least := r.seconds(); least != nil {
		a.MinPodLifetimeSeconds = *least
	}
	if !r.often() {
		a.ExcludeOwnerKinds = r.some("Job", "ReplicaSet")
		a.Reasons = r.some("Evicted", "OOMKilled")
	}
	return a
}

// A second version of the rules, as in the reference: in whole seconds, at one moment.

// age returns the time since then in whole seconds; none is less than 0.
func age(now time.Time, then metav1.Time) int64 {
	if then.IsZero() || now.Before(then.Time) {
		return -1
	}
	return int64(now.Sub(then.Time) / time.Second)
}

func looked(p corev1.Pod, n policy.Namespaces, s *metav1.LabelSelector) bool {
	return p.DeletionTimestamp == nil && (len(n.Include) == 0 || slices.Contains(n.Include, p.Namespace)) &&
		!slices.Contains(n.Exclude, p.Namespace) && (s == nil || s.MatchLabels["tier"] == p.Labels["tier"])
}

// facts returns the restarts, the reasons and the exit codes of some containers.
func facts(lists ...[]corev1.ContainerStatus) (restarts int, waiting, reasons []string, codes []int32) {
	for _, s := range slices.Concat(lists...) {
		restarts += int(s.RestartCount)
		if s.State.Waiting != nil {
			waiting, reasons = append(waiting, s.State.Waiting.Reason), append(reasons, s.State.Waiting.Reason)
		}
		if s.State.Terminated != nil {
			reasons, codes = append(reasons, s.State.Terminated.Reason), append(codes, s.State.Terminated.ExitCode)
		}
	}
	return restarts, waiting, reasons, codes
}

func common[T comparable](a, b []T) bool {
	return slices.ContainsFunc(a, func(x T) bool { return slices.Contains(b, x) })
}

func only(list []corev1.ContainerStatus, counts bool) []corev1.ContainerStatus {
	if !counts {
		return nil
	}
	return list
}

func kinds(p corev1.Pod) []string {
	var list []string
	for _, o := range p.OwnerReferences {
		list = append(list, o.Kind)
	}
	return list
}

func tooManyRestarts(a toomanyrestarts.Args, p corev1.Pod) bool {
	restarts, waiting, _, _ := facts(p.Status.ContainerStatuses, only(p.Status.InitContainerStatuses, a.IncludingInitContainers))
	return looked(p, a.Namespaces, a.LabelSelector) && restarts >= int(a.PodRestartThreshold) &&
		(len(a.States) == 0 || common(a.States, append(waiting, string(p.Status.Phase))))
}

func podLifeTime(a podlifetime.Args, p corev1.Pod, now time.Time) bool {
	inits := only(p.Status.InitContainerStatuses, a.IncludingInitContainers)
	_, _, reasons, _ := facts(p.Status.ContainerStatuses, inits, only(p.Status.EphemeralContainerStatuses, a.IncludingEphemeralContainers))
	_, _, _, codes := facts(p.Status.ContainerStatuses, inits)
	met := len(a.Conditions) == 0
	for _, want := range a.Conditions {
		for _, c := range p.Status.Conditions {
			least := want.MinTimeSinceLastTransitionSeconds
			met = met || (want.Type == "" || want.Type == string(c.Type)) && (want.Status == "" || want.Status == string(c.Status)) &&
				(want.Reason == "" || want.Reason == c.Reason) &&
				(least == nil || age(now, c.LastTransitionTime) >= 0 && uint(age(now, c.LastTransitionTime)) >= *least)
		}
	}
	old := age(now, p.CreationTimestamp)
	return met && looked(p, a.Namespaces, a.LabelSelector) &&
		(a.MaxPodLifeTimeSeconds == nil || old >= 0 && uint(old) > *a.MaxPodLifeTimeSeconds) &&
		(len(a.States) == 0 || common(a.States, append(reasons, string(p.Status.Phase), p.Status.Reason))) &&
		(len(a.OwnerKinds.Include) == 0 || common(a.OwnerKinds.Include, kinds(p))) && !common(a.OwnerKinds.Exclude, kinds(p)) &&
		(len(a.ExitCodes) == 0 || common(a.ExitCodes, codes))
}

func failedPods(a failedpods.Args, p corev1.Pod, now time.Time) bool {
	_, _, reasons, codes := facts(p.Status.ContainerStatuses, only(p.Status.InitContainerStatuses, a.IncludingInitContainers))
	old := age(now, p.CreationTimestamp)
	return p.Status.Phase == corev1.PodFailed && looked(p, a.Namespaces, a.LabelSelector) && old >= 0 && uint(old) >= a.MinPodLifetimeSeconds &&
		!common(a.ExcludeOwnerKinds, kinds(p)) && (len(a.Reasons) == 0 || common(a.Reasons, append(reasons, p.Status.Reason))) &&
		(len(a.ExitCodes) == 0 || common(a.ExitCodes, codes))
}

func TestDue(t *testing.T) {
	r := random{randtest.New(t)}
	// How often a pod was due later, always, and never: each must occur.
	var later, always, never [3]int
	for range 5_000 {
		pod := r.pod()
		before := *pod.DeepCopy()
		restarts, lifetime, failed := r.tooManyRestarts(), r.podLifeTime(), r.failedPods()
		for lifetime.Validate() != nil {
			lifetime = r.podLifeTime()
		}
		for i, s := range []struct {
			args timed
			rule func(time.Time) bool
		}{
			{restarts, func(time.Time) bool { return tooManyRestarts(restarts, pod) }},
			{lifetime, func(now time.Time) bool { return podLifeTime(lifetime, pod, now) }},
			{failed, func(now time.Time) bool { return failedPods(failed, pod, now) }},
		} {
			moves := func(now time.Time, protected ...schemas.Protection) bool {
				scope := schemas.PodScope{ScopeHead: schemas.ScopeHead{Now: now}, Pod: schemas.ScopedPod{Pod: pod, Protected: protected}}
				got := s.args.Decide(scope)
				if len(got) > 0 && (len(got) > 1 || got[0].Pod.UID != "u1" || got[0].Node != "worker-1" || got[0].Reason == "" || got[0].Ended != schemas.Ended(&pod)) {
					t.Fatalf("%+v answers %+v", s.args, got)
				}
				return len(got) > 0
			}
			at, ever := s.args.Due(&pod)
			times := []time.Time{base().Add(-time.Hour), base().Add(100 * 365 * 24 * time.Hour)}
			for range 5 {
				times = append(times, base().Add(time.Duration(r.Int64N(int64(30*time.Second)))))
			}
			switch {
			case ever && at.IsZero():
				always[i]++
			case ever:
				later[i]++
				times = append(times, at.Add(-time.Second), at.Add(-1), at, at.Add(1), at.Add(time.Second))
			default:
				never[i]++
			}
			for _, now := range times {
				want := ever && !now.Before(at)
				if got, rule := moves(now), s.rule(now); got != want || rule != want {
					t.Fatalf("at %v: moves %v, by the rule %v; due at %v, ever %v\narguments %+v\npod %+v", now, got, rule, at, ever, s.args, pod)
				}
				if moves(now, schemas.Protection{Rule: "Any"}) {
					t.Fatalf("%+v moves a protected pod", s.args)
				}
			}
			if err := s.args.Validate(); err != nil {
				t.Fatalf("%+v: %v", s.args, err)
			}
		}
		if !reflect.DeepEqual(pod, before) {
			t.Fatal("the pod was changed")
		}
	}
	t.Logf("due later %d, always %d, never %d", later, always, never)
	if slices.Contains(later[1:], 0) || always[0] == 0 || always[1] == 0 || slices.Contains(never[:], 0) {
		t.Error("a case did not occur: the test tests too little")
	}
}
