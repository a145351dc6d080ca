package policy

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

const allOfMaintenance = `maintenance:
  restart: false
  protect: [PodsWithPVC, SystemCriticalPods]
  start:
    - condition: NeedsReboot
    - condition: example.com/Healthy
      status: "False"
    - taint: example.com/drain
    - taint: "example.com/drain=:NoExecute"
`

func TestMaintenanceReadAndWritten(t *testing.T) {
	compareWritten(t, func(p Policy) Maintenance { return p.Maintenance }, []section[Maintenance]{
		{"a file that says nothing has the defaults", start, Maintenance{}},
		{"so has an empty section", start + "maintenance: {}\n", Maintenance{}},
		{"and one that writes them", start + "maintenance: {restart: true, protect: null}\n", Maintenance{}},
		{"all of it", start + allOfMaintenance, Maintenance{
			Restart: new(bool), Protect: []string{PodsWithPVC, SystemCriticalPods},
			Start: []StartSign{
				{Condition: "NeedsReboot"},
				{Condition: "example.com/Healthy", Status: corev1.ConditionFalse},
				{Taint: "example.com/drain"},
				{Taint: "example.com/drain=:NoExecute"},
			},
		}},
	})
}

func TestInvalidMaintenanceSection(t *testing.T) {
	_, err := Parse("p.yaml", []byte(start+`maintenance:
  restart: maybe
  protect: [MinReplicas, PodsWithPVC, PodsWithPVC]
  start:
    - status: "True"
    - condition: A
      taint: b
    - taint: a:Evict
      status: "True"
    - condition: "-"
    - condition: A
      status: Yes
    - taint: a=b c
  window: 1h
`), known())
	const want = `p.yaml:4: maintenance.restart: want true or false, got the text "maybe"
p.yaml:5: maintenance.protect[0]: is not known, got "MinReplicas"; known here: ` +
		`SystemCriticalPods, FailedBarePods, PodsWithLocalStorage, DaemonSetPods, PodsWithPVC, PodsWithResourceClaims, ` +
		`PreferNoEviction, EvictAnnotationFalse
p.yaml:5: maintenance.protect[2]: is given twice, got "PodsWithPVC"; keep one
p.yaml:7: maintenance.start[0].condition: is missing; write condition, or taint
p.yaml:9: maintenance.start[1].taint: cannot be used together with condition, got "b"; write two entries
p.yaml:10: maintenance.start[2].taint: is not a taint, got "a:Evict"; write KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT ` +
		`with the effect NoSchedule, PreferNoSchedule or NoExecute
p.yaml:11: maintenance.start[2].status: goes only with condition, got "True"
p.yaml:12: maintenance.start[3].condition: is not a key, got "-"; write NAME or PREFIX/NAME
p.yaml:14: maintenance.start[4].status: is not known, got "Yes"; want True, False or Unknown
p.yaml:15: maintenance.start[5].taint: is not a taint, got "a=b c"; write KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT ` +
		`with the effect NoSchedule, PreferNoSchedule or NoExecute
p.yaml:16: maintenance.window: unknown field; known here: protect, restart, start`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestDeschedulerFileMaintenance(t *testing.T) {
	_, err := Parse("p.yaml", []byte("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nmaintenance: {}\n"), known())
	const want = "p.yaml:3: maintenance: is not part of descheduler/v1alpha2; write apiVersion: rehome.dev/v1alpha1"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// protectedInEveryWay returns a pod with everything that a rule of a maintenance reads.
func protectedInEveryWay() *corev1.Pod {
	critical := SystemCritical
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Annotations: map[string]string{PreferNoEviction: ""}},
		Spec: corev1.PodSpec{
			Priority: &critical, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}},
			Volumes: []corev1.Volume{
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "data", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
			},
		},
	}
}

func TestMaintenanceProtections(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	signal := func(detail string) []schemas.Protection {
		return []schemas.Protection{{Rule: SignalRule, Detail: detail}}
	}
	for _, c := range []struct {
		name, policy string
		pod          func(*corev1.Pod)
		want         []schemas.Protection
	}{
		{"bare, critical and with data, as a drain by hand would", "", nil, nil},
		{"of a DaemonSet, if a plan selects it", "", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d"}}
		}, nil},
		{"that its owner keeps from being descheduled", "", func(p *corev1.Pod) {
			p.Annotations = map[string]string{EvictAnnotation: "false"}
		}, nil},
		{"but not a mirror pod", "", func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x", EvictAnnotation: "true"}
		}, []schemas.Protection{{Rule: MirrorPods, Detail: "it mirrors a static pod"}}},
		{"nor one that Karpenter must not disrupt", "", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
		}, signal(`its annotation karpenter.sh/do-not-disrupt is "true"`)},
		{"unless the policy switches that off", "signals: {defaultDisabled: [karpenter.sh/do-not-disrupt]}\n", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
		}, nil},
		{"nor one that Cluster Autoscaler must not evict", "", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
		}, signal(`its annotation cluster-autoscaler.kubernetes.io/safe-to-evict is "false"`)},
		{"nor one that Cluster API skips", "", func(p *corev1.Pod) {
			p.Labels = map[string]string{"cluster.x-k8s.io/drain": "skip"}
		}, signal(`its label cluster.x-k8s.io/drain is "skip"`)},
		{"whose own label counts more", "", func(p *corev1.Pod) {
			p.Labels = map[string]string{"cluster.x-k8s.io/drain": "skip", "rehome.dev/drain": "drain"}
		}, nil},
		{"nor what the policy names, in the order of the rules", "maintenance: {protect: [PodsWithPVC, PreferNoEviction, FailedBarePods]}\n",
			nil, []schemas.Protection{
				{Rule: FailedBarePods, Detail: "it has no owner that would replace it"},
				{Rule: PodsWithPVC, Detail: "its volume data is the claim c"},
				{Rule: PreferNoEvictionRule, Detail: "it has the annotation " + PreferNoEviction},
			}},
		{"unless its owner lifts that", "maintenance: {protect: [PodsWithPVC]}\n", func(p *corev1.Pod) {
			p.Annotations = map[string]string{EvictAnnotation: ""}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := protectedInEveryWay()
			if c.pod != nil {
				c.pod(p)
			}
			if got := parse(t, start+c.policy).Maintenance.Protects(p, now); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// TestMaintenanceRuleNames also checks that each name has an effect.
func TestMaintenanceRuleNames(t *testing.T) {
	for _, rule := range (Maintenance{}).Enums()["protect"] {
		p := protectedInEveryWay()
		switch rule {
		case DaemonSetPods:
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d"}}
		case EvictAnnotationFalseRule:
			p.Annotations[EvictAnnotation] = "false"
		}
		found := Maintenance{Protect: []string{rule}}.Protects(p, time.Unix(1, 0))
		if len(found) != 1 || found[0].Rule != rule {
			t.Errorf("%s: got %+v, want that rule alone", rule, found)
		}
	}
}

func TestDrainTriggers(t *testing.T) {
	m := parse(t, start+allOfMaintenance).Maintenance
	taint := func(key, value string, effect corev1.TaintEffect) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Value: value, Effect: effect}}}}
	}
	condition := func(name string, status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeConditionType(name), Status: status}}}}
	}
	exact := Maintenance{Start: m.Start[3:]}
	for _, c := range []struct {
		name string
		by   Maintenance
		node *corev1.Node
		want string
	}{
		{"nothing on the node", m, &corev1.Node{}, ""},
		{"a condition that is true", m, condition("NeedsReboot", corev1.ConditionTrue), "condition NeedsReboot=True"},
		{"one that is not", m, condition("NeedsReboot", corev1.ConditionFalse), ""},
		{"one that has to be false", m, condition("example.com/Healthy", corev1.ConditionFalse), "condition example.com/Healthy=False"},
		{"a taint, whatever its value", m, taint("example.com/drain", "x", corev1.TaintEffectNoSchedule), "taint example.com/drain"},
		{"a taint of another name", m, taint("example.com/drained", "", corev1.TaintEffectNoSchedule), ""},
		{"a taint without a value", exact, taint("example.com/drain", "", corev1.TaintEffectNoExecute),
			"taint example.com/drain=:NoExecute"},
		{"which has one", exact, taint("example.com/drain", "x", corev1.TaintEffectNoExecute), ""},
		{"or another effect", exact, taint("example.com/drain", "", corev1.TaintEffectNoSchedule), ""},
	} {
		if got := c.by.Started(c.node); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
