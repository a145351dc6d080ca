package policy

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// TestDefaultSenders has the senders of a policy without the section, and of a policy with an empty one.
func TestDefaultSenders(t *testing.T) {
	for text, want := range map[string]Requests{
		"": {MaxPods: 500, Senders: []Sender{
			{Name: "admin", Nodes: true, Override: []string{"*"}, PerMinute: 10, Open: 20},
			{Name: "http", Nodes: true, Override: []string{"*"}, PerMinute: 60, Open: 200},
		}},
		"requests: {}\n": {MaxPods: 500},
	} {
		if got := parse(t, start+text).Asking(); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}

func TestSendersRoundTrip(t *testing.T) {
	compareWritten(t, func(p Policy) *Requests { return p.Requests }, []section[*Requests]{
		{"a file that says nothing has the defaults", start, nil},
		{"an empty section allows no sender", start + "requests: {}\n", &Requests{MaxPods: 500}},
		{
			"a sender has what it is given",
			start + "requests:\n  maxPods: 20\n  senders:\n    - name: scaler\n      namespaces: [shop]\n      actions: [deschedule]\n" +
				"      nodes: true\n      override: [DaemonSetPods]\n      perMinute: 3\n      open: 4\n    - name: other\n",
			&Requests{MaxPods: 20, Senders: []Sender{
				{
					Name: "scaler", Namespaces: []string{"shop"}, Actions: []schemas.RequestAction{schemas.ActionDeschedule}, Nodes: true,
					Override: []string{DaemonSetPods}, PerMinute: 3, Open: 4,
				},
				{Name: "other", PerMinute: 10, Open: 20},
			}},
		},
		{
			"a sender of notices of a cloud",
			start + "requests:\n  senders:\n    - {name: spot, actions: [maintain], nodes: true, perMinute: 100, open: 1000}\n",
			&Requests{MaxPods: 500, Senders: []Sender{
				{Name: "spot", Actions: []schemas.RequestAction{schemas.ActionMaintain}, Nodes: true, PerMinute: 100, Open: 1000},
			}},
		},
	})
}

func TestInvalidSenders(t *testing.T) {
	_, err := Parse("p.yaml", []byte(start+`requests:
  maxPods: 1001
  senders:
    - name: Big Boss
    - name: scaler
      namespaces: [Shop]
      actions: [drain]
      override: [TerminatingPods]
      perMinute: 0
    - name: scaler
      open: 10001
    - nodes: true
`), known())
	const want = `p.yaml:4: requests.maxPods: must be at least 1 and at most 1000, got 1001
p.yaml:6: requests.senders[0].name: is not a name, got "Big Boss"; write 1 to 63 of a-z, 0-9 and -
p.yaml:8: requests.senders[1].namespaces[0]: is not the name of a namespace, got "Shop"; write an exact name, or its beginning and a *
p.yaml:9: requests.senders[1].actions[0]: is not known, got "drain"; want deschedule, evaluate, cancel or maintain
p.yaml:10: requests.senders[1].override[0]: is not known, got "TerminatingPods"; known here: *, ` +
		`SystemCriticalPods, PriorityThreshold, FailedBarePods, PodsWithLocalStorage, DaemonSetPods, PodsWithPVC, PodsWithoutPDB, ` +
		`PodsWithResourceClaims, LabelSelector, MinPodAge, MinReplicas, PreferNoEviction, Signal, NamespaceLabelSelector, ` +
		`EvictAnnotationFalse, NodeFit, NodeNotUsable
p.yaml:11: requests.senders[1].perMinute: must be at least 1 and at most 10000, got 0
p.yaml:12: requests.senders[2].name: is there twice, got "scaler"; write one sender of that name
p.yaml:13: requests.senders[2].open: must be at least 1 and at most 10000, got 10001
p.yaml:14: requests.senders[3].name: is missing; write 1 to 63 of a-z, 0-9 and -`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestOverriddenRule(t *testing.T) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "n", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d"}},
		},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}},
	}
	rules := func(overridden ...string) (list []string) {
		for _, found := range evictor(t, EvictorArgs{}).ProtectsBut(overridden, p, time.Unix(9, 0), nil) {
			list = append(list, found.Rule)
		}
		return list
	}
	got := [][]string{rules(), rules(DaemonSetPods), rules(DaemonSetPods, PodsWithLocalStorage, TerminatingPods)}
	want := [][]string{
		{TerminatingPods, PodsWithLocalStorage, DaemonSetPods}, {TerminatingPods, PodsWithLocalStorage}, {TerminatingPods},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
