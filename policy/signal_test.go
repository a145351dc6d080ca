package policy

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// withSignals returns the policy with one profile and these signals.
func withSignals(t *testing.T, signals string) Policy {
	t.Helper()
	return parse(t, start+"signals: "+signals+"\nprofiles: [{}]\n")
}

func TestPodSignals(t *testing.T) {
	const disrupt, evict = "karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict"
	const cast, cost = "autoscaling.cast.ai/removal-disabled", "scheduling.koordinator.sh/eviction-cost"
	signal := func(detail string) []schemas.Protection {
		return []schemas.Protection{{Rule: SignalRule, Detail: detail}}
	}
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want []schemas.Protection
	}{
		{"Karpenter's", pod(annotated(disrupt, "true")), signal(`its annotation ` + disrupt + ` is "true"`)},
		{"with another value says nothing", pod(annotated(disrupt, "false")), nil},
		{"on a label instead of an annotation says nothing", pod(labelled(disrupt, "true")), nil},
		{"for a time that is not over", pod(started(time.Hour-time.Second), annotated(disrupt, "1h")),
			signal(`its annotation ` + disrupt + ` is "1h", and it started at 2026-05-04T11:00:01Z`)},
		{"for a time that is just over", pod(started(time.Hour), annotated(disrupt, "1h")), nil},
		{"for a time that has not begun", pod(notStarted, annotated(disrupt, "1h")),
			signal(`its annotation ` + disrupt + ` is "1h", and it has not started`)},
		{"for a time before it started says nothing", pod(notStarted, annotated(disrupt, "-1h")), nil},
		{"for no readable time says nothing", pod(notStarted, annotated(disrupt, "an hour")), nil},
		{"the Cluster Autoscaler's", pod(annotated(evict, "false")), signal(`its annotation ` + evict + ` is "false"`)},
		{"that allows says nothing", pod(annotated(evict, "true")), nil},
		{"Cluster API's", pod(labelled("cluster.x-k8s.io/drain", "skip")), signal(`its label cluster.x-k8s.io/drain is "skip"`)},
		{"Cluster API's for a pod that ends by itself", pod(labelled("cluster.x-k8s.io/drain", "wait-completed")),
			signal(`its label cluster.x-k8s.io/drain is "wait-completed"`)},
		{"CAST AI's annotation", pod(annotated(cast, "true")), signal(`its annotation ` + cast + ` is "true"`)},
		{"CAST AI's label", pod(labelled(cast, "true")), signal(`its label ` + cast + ` is "true"`)},
		{"Koordinator's highest cost", pod(annotated(cost, "2147483647")), signal(`its annotation ` + cost + ` is "2147483647"`)},
		{"Koordinator's lower cost says nothing", pod(annotated(cost, "100")), nil},
		{"two of them", pod(annotated(disrupt, "true", evict, "false")), []schemas.Protection{
			{Rule: SignalRule, Detail: `its annotation ` + disrupt + ` is "true"`},
			{Rule: SignalRule, Detail: `its annotation ` + evict + ` is "false"`},
		}},
		{"is lifted by the owner who wants the pod moved", pod(annotated(disrupt, "true", EvictAnnotation, "")), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			older := parse(t, "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: [{}]")
			for from, e := range map[string]Evictor{
				"zero Evictor": {}, "a file of the descheduler": older.Profiles[0].Evictor, "NewEvictor": evictor(t, EvictorArgs{}),
			} {
				if got := e.Protects(c.pod, noon, nil); !reflect.DeepEqual(got, c.want) {
					t.Errorf("%s:\ngot  %+v\nwant %+v", from, got, c.want)
				}
			}
		})
	}
}

func TestSignalConfiguration(t *testing.T) {
	marked := pod(annotated("karpenter.sh/do-not-disrupt", "true", "example.com/stay", ""))
	timed := pod(annotated("karpenter.sh/do-not-disrupt", "2h"))
	stay := []schemas.Protection{{Rule: SignalRule, Detail: "its annotation example.com/stay is set"}}
	karpenter := []schemas.Protection{{Rule: SignalRule, Detail: `its annotation karpenter.sh/do-not-disrupt is "true"`}}
	const disabled, extra = "defaultDisabled: [karpenter.sh/do-not-disrupt]",
		"extraEnabled: [{where: annotation, key: example.com/stay, effect: protect}]"
	for _, c := range []struct {
		name, signals string
		pod           *corev1.Pod
		want          []schemas.Protection
	}{
		{"the default", "{}", marked, karpenter},
		{"one less", "{" + disabled + "}", marked, nil},
		{"one less, with two entries", "{" + disabled + "}", timed, nil},
		{"one more", "{" + extra + "}", marked, append(karpenter, stay...)},
		{"another one", "{" + disabled + ", " + extra + "}", marked, stay},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := withSignals(t, c.signals).Profiles[0].Evictor.Protects(c.pod, noon, nil); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestProtectionExpiry(t *testing.T) {
	aged := evictor(t, EvictorArgs{MinPodAge: metav1.Duration{Duration: time.Hour}})
	own := withSignals(t, `{extraEnabled: [{where: label, key: for, duration: true, effect: protect}]}`).Profiles[0].Evictor
	disrupt := func(value string) func(*corev1.Pod) { return annotated("karpenter.sh/do-not-disrupt", value) }
	for _, c := range []struct {
		name    string
		evictor Evictor
		pod     *corev1.Pod
		want    time.Time
	}{
		{"never without one", Evictor{}, pod(disrupt("true")), time.Time{}},
		{"unknown before the pod has started", aged, pod(notStarted, disrupt("1h")), time.Time{}},
		{"when the pod has the age", aged, pod(started(time.Minute)), noon.Add(59 * time.Minute)},
		{"not when it has been old for long", aged, pod(started(time.Hour)), time.Time{}},
		{"when the time of a signal is over", Evictor{}, pod(started(time.Minute), disrupt("1h")), noon.Add(59 * time.Minute)},
		{"not when it has been over for long", Evictor{}, pod(started(time.Hour), disrupt("1h")), time.Time{}},
		{"the age before the signal", aged, pod(started(time.Minute), disrupt("2h")), noon.Add(59 * time.Minute)},
		{"the signal before the age", aged, pod(started(time.Minute), disrupt("2m")), noon.Add(time.Minute)},
		{"the age after the signal", aged, pod(started(time.Minute), disrupt("10s")), noon.Add(59 * time.Minute)},
		{"the first of two signals", own, pod(started(0), disrupt("2m"), labelled("for", "1m")), noon.Add(time.Minute)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.evictor.Lapses(c.pod, noon); !got.Equal(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestNodeSignals(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{}
		change(n)
		return n
	}
	tainted := func(key string) *corev1.Node {
		return node(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "other"}, {Key: key, Value: "x"}} })
	}
	condition := func(kind string, status corev1.ConditionStatus) *corev1.Node {
		return node(func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeConditionType(kind), Status: status}}
		})
	}
	labelled := node(func(n *corev1.Node) { n.Labels = map[string]string{"example.com/repair": "yes"} })
	rebooting := node(func(n *corev1.Node) {
		n.Annotations = map[string]string{"weave.works/kured-reboot-in-progress": "2026-05-04T11:59:00Z"}
	})
	own := withSignals(t, `{extraEnabled: [{where: label, key: example.com/repair, value: "yes", effect: ignoreNode}],
		defaultDisabled: [karpenter.sh/disrupted]}`).Signals
	for _, c := range []struct {
		name    string
		signals Signals
		node    *corev1.Node
		want    string
	}{
		{"nothing", Signals{}, &corev1.Node{}, ""},
		{"Karpenter takes it away", Signals{}, tainted("karpenter.sh/disrupted"), `its taint karpenter.sh/disrupted is "x"`},
		{"Karpenter has not seen it", Signals{}, tainted("karpenter.sh/unregistered"), `its taint karpenter.sh/unregistered is "x"`},
		{"a longer key is another key", Signals{}, tainted("karpenter.sh/disrupted-not"), ""},
		{"Medik8s empties it", Signals{}, tainted("medik8s.io/drain"), `its taint medik8s.io/drain is "x"`},
		{"the cluster autoscaler deletes it", Signals{}, tainted("ToBeDeletedByClusterAutoscaler"),
			`its taint ToBeDeletedByClusterAutoscaler is "x"`},
		{"the cluster autoscaler may delete it soon", Signals{}, tainted("DeletionCandidateOfClusterAutoscaler"),
			`its taint DeletionCandidateOfClusterAutoscaler is "x"`},
		{"kured reboots it", Signals{}, rebooting, `its annotation weave.works/kured-reboot-in-progress is "2026-05-04T11:59:00Z"`},
		{"it is drained", Signals{}, condition("DrainInProgress", corev1.ConditionTrue), `its condition DrainInProgress is "True"`},
		{"it was drained", Signals{}, condition("DrainInProgress", corev1.ConditionFalse), ""},
		{"a taint that is only not to be seen", Signals{}, tainted("readiness.k8s.io/network"), ""},
		{"a signal of the policy's own", own, labelled, `its label example.com/repair is "yes"`},
		{"a signal that the policy switched off", own, tainted("karpenter.sh/disrupted"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.signals.IgnoresNode(c.node); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestIgnoredTaints(t *testing.T) {
	network, gpu := corev1.Taint{Key: "readiness.k8s.io/network"}, corev1.Taint{Key: "gpu", Value: "a"}
	near := corev1.Taint{Key: "readiness.k8s.iox"}
	off := withSignals(t, `{defaultDisabled: [readiness.k8s.io/]}`).Signals
	own := withSignals(t, `{extraEnabled: [{where: taint, key: gpu, value: b, effect: ignoreTaint}]}`).Signals
	for _, c := range []struct {
		name    string
		signals Signals
		has     []corev1.Taint
		want    []corev1.Taint
	}{
		{"none", Signals{}, nil, nil},
		{"taints of the Node Readiness Controller", Signals{}, []corev1.Taint{network, gpu, near}, []corev1.Taint{gpu, near}},
		{"all there are", Signals{}, []corev1.Taint{network}, nil},
		{"none when the policy disables it", off, []corev1.Taint{network, gpu}, []corev1.Taint{network, gpu}},
		{"one of the policy's own, with its value", own, []corev1.Taint{gpu, {Key: "gpu", Value: "b"}}, []corev1.Taint{gpu}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.signals.Taints(c.has); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestDefaultSignals(t *testing.T) {
	seen := map[Signal]bool{}
	for _, s := range defaultSignals {
		if err := s.Validate(); err != nil || seen[s] {
			t.Errorf("%+v: %v, there before: %v", s, err, seen[s])
		}
		seen[s] = true
	}
}

// TestDefaultSignalsDocumented looks for each key, value, and effect in a line of the page that lists them.
func TestDefaultSignalsDocumented(t *testing.T) {
	page := filetest.Read(t, "../docs/differences.md")
	for _, s := range defaultSignals {
		if !slices.ContainsFunc(strings.Split(page, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "| ") && strings.Contains(line, string(s.Where)) &&
				strings.Contains(line, "`"+s.Key+"`") && strings.HasSuffix(line, "`"+string(s.Effect)+"` |") &&
				(s.Value == "" || strings.Contains(line, "`"+s.Value+"`")) && (!s.Duration || strings.Contains(line, "how long"))
		}) {
			t.Errorf("no line of docs/differences.md says %+v", s)
		}
	}
}

func BenchmarkProtectsWithSignals(b *testing.B) {
	p := pod(annotated("example.com/a", "1", "example.com/b", "2"), func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "api"}
		p.CreationTimestamp = metav1.Time{Time: noon}
	})
	b.ReportAllocs()
	for b.Loop() {
		if found := (Evictor{}).Protects(p, noon, nil); len(found) > 0 {
			b.Fatal(found)
		}
	}
}

func TestClosedNode(t *testing.T) {
	tainted := func(key string, effect corev1.TaintEffect) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Value: "x", Effect: effect}}}}
	}
	soft := tainted("DeletionCandidateOfClusterAutoscaler", corev1.TaintEffectPreferNoSchedule)
	hard := tainted("ToBeDeletedByClusterAutoscaler", corev1.TaintEffectNoSchedule)
	both := soft.DeepCopy()
	both.Spec.Taints = append(both.Spec.Taints, hard.Spec.Taints...)
	before := both.DeepCopy()
	var got []string
	for _, n := range []*corev1.Node{{}, soft, hard, both} {
		got = append(got, Signals{}.ClosesNode(n))
	}
	const closed = `its taint ToBeDeletedByClusterAutoscaler is "x"`
	if want := []string{"", "", closed, closed}; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !reflect.DeepEqual(both, before) {
		t.Errorf("the node was changed: %+v", both.Spec.Taints)
	}
}
