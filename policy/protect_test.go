package policy

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// Objects for tests.
var (
	volume = fixtures.NamedVolume
)

var (
	noon      = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	protected = func(rule, detail string) schemas.Protection { return schemas.Protection{Rule: rule, Detail: detail} }
)

// evictor is NewEvictor for valid arguments.
func evictor(t *testing.T, args EvictorArgs) Evictor {
	t.Helper()
	e, err := NewEvictor(args)
	expect.Must(t, err)
	return e
}

// pod returns a pod of a ReplicaSet that nothing protects, with changes.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api-0", UID: "u",
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "api"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: noon.Add(-time.Hour)}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func annotated(keysAndValues ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		for i := 0; i < len(keysAndValues); i += 2 {
			p.Annotations[keysAndValues[i]] = keysAndValues[i+1]
		}
	}
}

func priority(value int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &value } }

func owned(kinds ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = nil
		for _, kind := range kinds {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: kind, Name: "its-" + strings.ToLower(kind)})
		}
	}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func started(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: noon.Add(-ago)} }
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{key: value} }
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }

func notStarted(p *corev1.Pod) { p.Status.StartTime = nil }

func claiming(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }

var (
	emptyDir = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	hostPath = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var"}}
	claim    = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	generic  = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	config   = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}
)

func off(rules ...string) EvictorArgs {
	return EvictorArgs{PodProtections: PodProtections{DefaultDisabled: rules}}
}
func on(rules ...string) EvictorArgs {
	return EvictorArgs{PodProtections: PodProtections{ExtraEnabled: rules}}
}

func threshold(value int32, args EvictorArgs) EvictorArgs {
	args.PriorityThreshold.Value = &value
	return args
}

func TestProtectionRules(t *testing.T) {
	const mirror, source = "kubernetes.io/config.mirror", "kubernetes.io/config.source"
	older := func(change func(*EvictorArgs)) EvictorArgs {
		var args EvictorArgs
		change(&args)
		return args
	}
	selecting := EvictorArgs{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"move": "yes"}}}
	aged := EvictorArgs{MinPodAge: metav1.Duration{Duration: time.Hour}}
	mandatory := EvictorArgs{NoEvictionPolicy: Mandatory}
	bare := protected(FailedBarePods, "it has no owner that would replace it")
	bareNotFailed := protected(FailedBarePods, "it has no owner that would replace it, and has not failed")
	emptyDirFound := protected(PodsWithLocalStorage, "its volume cache is an emptyDir")
	daemonFound := protected(DaemonSetPods, "it belongs to the DaemonSet its-daemonset")
	claimFound := protected(PodsWithPVC, "its volume data is the claim data")
	gpuFound := protected(PodsWithResourceClaims, "it has the resource claim gpu")
	young := func(text string) schemas.Protection { return protected(MinPodAgeRule, text) }
	everything := func() EvictorArgs {
		args := threshold(10, on(PodsWithPVC, PodsWithResourceClaims))
		args.LabelSelector, args.MinPodAge, args.NoEvictionPolicy = selecting.LabelSelector, aged.MinPodAge, Mandatory
		return args
	}()
	all := []func(*corev1.Pod){
		annotated(mirror, "x", source, "file", PreferNoEviction, ""), terminating, priority(SystemCritical + 1),
		volume("host", hostPath), volume("data", claim), owned("DaemonSet"), claiming, notStarted,
	}
	physicalFound := []schemas.Protection{
		protected(MirrorPods, "it mirrors a static pod"),
		protected(StaticPods, `the kubelet runs it from its own source "file"`),
		protected(TerminatingPods, "it is being deleted already"),
	}
	allFound := append(append([]schemas.Protection(nil), physicalFound...),
		protected(SystemCriticalPods, "its priority 2000000001 is system-critical: at least 2000000000"),
		protected(PriorityThresholdRule, "its priority 2000000001 is not below the threshold 10"),
		protected(PodsWithLocalStorage, "its volume host is a hostPath"),
		daemonFound, claimFound, gpuFound,
		protected(LabelSelectorRule, "its labels do not match move=yes"),
		young("it has not started"),
		protected(PreferNoEvictionRule, "it has the annotation descheduler.alpha.kubernetes.io/prefer-no-eviction"),
	)
	refusedFound := func(value string) schemas.Protection {
		return protected(EvictAnnotationFalseRule, `its annotation descheduler.alpha.kubernetes.io/evict is "`+value+`"`)
	}
	type list = []schemas.Protection
	for _, c := range []struct {
		name string
		args EvictorArgs
		pod  *corev1.Pod
		want list
	}{
		{"an ordinary pod is not protected", EvictorArgs{}, pod(), nil},
		{"every rule that applies is listed, in order", everything, pod(all...), allFound},

		{"a mirror pod", EvictorArgs{}, pod(annotated(mirror, "")), physicalFound[:1]},
		{"a static pod", EvictorArgs{}, pod(annotated(source, "file")), physicalFound[1:2]},
		{"a pod from the API server is not static", EvictorArgs{}, pod(annotated(source, "api")), nil},
		{"a terminating pod", EvictorArgs{}, pod(terminating), physicalFound[2:]},

		{"a system-critical pod", EvictorArgs{}, pod(priority(SystemCritical)),
			list{protected(SystemCriticalPods, "its priority 2000000000 is system-critical: at least 2000000000")}},
		{"a priority just below system-critical", EvictorArgs{}, pod(priority(SystemCritical - 1)), nil},
		{"system-critical pods switched off", off(SystemCriticalPods), pod(priority(SystemCritical)), nil},
		{"system-critical pods switched off, the older way",
			older(func(a *EvictorArgs) { a.EvictSystemCriticalPods = true }), pod(priority(SystemCritical)), nil},

		{"a priority at the threshold", threshold(10, EvictorArgs{}), pod(priority(10)),
			list{protected(PriorityThresholdRule, "its priority 10 is not below the threshold 10")}},
		{"a priority below the threshold", threshold(10, EvictorArgs{}), pod(priority(9)), nil},
		{"a negative threshold", threshold(-5, EvictorArgs{}), pod(priority(-5)),
			list{protected(PriorityThresholdRule, "its priority -5 is not below the threshold -5")}},
		{"no priority is below every threshold", threshold(-5, EvictorArgs{}), pod(), nil},
		{"the threshold stays when system-critical pods are switched off", threshold(10, off(SystemCriticalPods)),
			pod(priority(SystemCritical)), list{protected(PriorityThresholdRule,
				"its priority 2000000000 is not below the threshold 10")}},

		{"a bare pod", EvictorArgs{}, pod(owned()), list{bare}},
		{"a failed bare pod", EvictorArgs{}, pod(owned(), phase(corev1.PodFailed)), list{bare}},
		{"a failed bare pod, switched off", off(FailedBarePods), pod(owned(), phase(corev1.PodFailed)), nil},
		{"a running bare pod stays protected when failed ones are not", off(FailedBarePods), pod(owned()), list{bareNotFailed}},
		{"a running bare pod stays protected, the older way",
			older(func(a *EvictorArgs) { a.EvictFailedBarePods = true }), pod(owned()), list{bareNotFailed}},

		{"an emptyDir", EvictorArgs{}, pod(volume("config", config), volume("cache", emptyDir)), list{emptyDirFound}},
		{"a hostPath", EvictorArgs{}, pod(volume("host", hostPath)),
			list{protected(PodsWithLocalStorage, "its volume host is a hostPath")}},
		{"other volumes are not local storage", EvictorArgs{}, pod(volume("a", config), volume("b", claim), volume("c", generic)), nil},
		{"local storage switched off", off(PodsWithLocalStorage), pod(volume("cache", emptyDir)), nil},
		{"local storage switched off, the older way",
			older(func(a *EvictorArgs) { a.EvictLocalStoragePods = true }), pod(volume("cache", emptyDir)), nil},

		{"a pod of a DaemonSet", EvictorArgs{}, pod(owned("DaemonSet")), list{daemonFound}},
		{"a DaemonSet among the owners", EvictorArgs{}, pod(owned("Job", "DaemonSet")), list{daemonFound}},
		{"pods of DaemonSets switched off", off(DaemonSetPods), pod(owned("DaemonSet")), nil},
		{"pods of DaemonSets switched off, the older way",
			older(func(a *EvictorArgs) { a.EvictDaemonSetPods = true }), pod(owned("DaemonSet")), nil},
		{"switching one rule off keeps the others", off(DaemonSetPods), pod(owned("DaemonSet"), volume("cache", emptyDir)),
			list{emptyDirFound}},

		{"a volume claim", on(PodsWithPVC), pod(volume("data", claim)), list{claimFound}},
		{"a volume claim, the older way", older(func(a *EvictorArgs) { a.IgnorePVCPods = true }),
			pod(volume("data", claim)), list{claimFound}},
		{"a generic ephemeral volume is not a claim of the pod", on(PodsWithPVC), pod(volume("data", generic)), nil},
		{"a resource claim", on(PodsWithResourceClaims), pod(claiming), list{gpuFound}},
		{"a resource claim does not protect by default", EvictorArgs{}, pod(claiming, volume("data", claim)), nil},
		{"switching a rule on keeps the defaults", on(PodsWithPVC), pod(volume("cache", emptyDir)), list{emptyDirFound}},

		{"a pod that the selector selects", selecting, pod(labelled("move", "yes")), nil},
		{"a pod that the selector does not select", selecting, pod(labelled("move", "no")),
			list{protected(LabelSelectorRule, "its labels do not match move=yes")}},
		{"an empty selector selects all", EvictorArgs{LabelSelector: &metav1.LabelSelector{}}, pod(), nil},

		{"a pod exactly as old as it must be", aged, pod(started(time.Hour)), nil},
		{"a pod a nanosecond too young", aged, pod(started(time.Hour - 1)),
			list{young("it started at 2026-05-04T11:00:00Z, less than 1h0m0s ago")}},
		{"a pod that has not started", aged, pod(notStarted), list{young("it has not started")}},
		{"no minimum age, not started", EvictorArgs{}, pod(notStarted), nil},

		{"prefer-no-eviction is a wish by default", EvictorArgs{}, pod(annotated(PreferNoEviction, "true")), nil},
		{"prefer-no-eviction is a wish when preferred", EvictorArgs{NoEvictionPolicy: Preferred},
			pod(annotated(PreferNoEviction, "true")), nil},
		{"prefer-no-eviction protects when mandatory, whatever its value", mandatory,
			pod(annotated(PreferNoEviction, "false")), allFound[len(allFound)-1:]},

		{"evict: true lifts everything that is configured, but not what cannot be moved", everything,
			pod(append(all, annotated(EvictAnnotation, "true"))...), physicalFound},
		{"evict without a value lifts", EvictorArgs{}, pod(owned(), annotated(EvictAnnotation, "")), nil},
		{"evict: no lifts, since only false means no", EvictorArgs{}, pod(owned(), annotated(EvictAnnotation, "no")), nil},
		{"evict: true lifts mandatory prefer-no-eviction", mandatory,
			pod(annotated(EvictAnnotation, "true", PreferNoEviction, "")), nil},
		{"evict: false protects", EvictorArgs{}, pod(annotated(EvictAnnotation, "false")), list{refusedFound("false")}},
		{"evict: False protects", EvictorArgs{}, pod(annotated(EvictAnnotation, "False")), list{refusedFound("False")}},
		{"evict: false lifts nothing and comes last", everything,
			pod(append(all, annotated(EvictAnnotation, "false"))...), append(append(list(nil), allFound...), refusedFound("false"))},
		{"a pod that has ended is judged like any other", EvictorArgs{}, pod(phase(corev1.PodSucceeded)), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.pod.DeepCopy()
			if got := evictor(t, c.args).Protects(c.pod, noon, nil); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if !reflect.DeepEqual(c.pod, before) {
				t.Error("the pod was changed")
			}
		})
	}
}

func TestZeroEvictor(t *testing.T) {
	if got := evictor(t, EvictorArgs{}); !reflect.DeepEqual(got, Evictor{}) {
		t.Errorf("got %+v, want the zero Evictor", got)
	}
	args := threshold(10, off(DaemonSetPods))
	if got := evictor(t, args).Args(); !reflect.DeepEqual(got, args) {
		t.Errorf("got %+v, want %+v", got, args)
	}
}

func TestInvalidEvictor(t *testing.T) {
	got, err := NewEvictor(EvictorArgs{NodeSelector: "pool in ("})
	var field *FieldError
	if !errors.As(err, &field) || field.Field != "nodeSelector" || !reflect.DeepEqual(got, Evictor{}) {
		t.Errorf("got %+v and %v, want the zero Evictor and an error about nodeSelector", got, err)
	}
}

func BenchmarkProtects(b *testing.B) {
	value := int32(10000)
	e, err := NewEvictor(EvictorArgs{
		PriorityThreshold: PriorityThreshold{Value: &value},
		LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"move": "yes"}},
		MinPodAge:         metav1.Duration{Duration: time.Minute},
	})
	expect.Must(b, err)
	p := pod(labelled("move", "yes"), priority(100), volume("config", config))
	b.ReportAllocs()
	for b.Loop() {
		if found := e.Protects(p, noon, nil); found != nil {
			b.Fatal(found)
		}
	}
}
