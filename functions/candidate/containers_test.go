package candidate

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status returns a container that was restarted and is waiting or terminated for a reason.
func status(name string, restarts int32, waits, ended string, code int32) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name, RestartCount: restarts}
	if waits != "" {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: waits}
	}
	if ended != "" {
		s.State.Terminated = &corev1.ContainerStateTerminated{Reason: ended, ExitCode: code}
	}
	return s
}

func TestSelectedContainers(t *testing.T) {
	last := status("last", 1, "", "", 0)
	last.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "Gone", ExitCode: 9}
	pod := &corev1.Pod{Status: corev1.PodStatus{
		ContainerStatuses:          []corev1.ContainerStatus{last, status("a", math.MaxInt32, "A", "", 0), status("b", 2, "", "B", 2)},
		InitContainerStatuses:      []corev1.ContainerStatus{status("i", 10, "I", "", 0), status("j", 0, "", "J", 3)},
		EphemeralContainerStatuses: []corev1.ContainerStatus{status("e", 0, "E", "", 0), status("f", 0, "", "F", 4)},
	}}
	type read struct {
		names    string
		restarts int64
		reasons  string
		codes    []int32
	}
	for _, c := range []struct {
		name  string
		count Containers
		want  read
	}{
		{"regular ones", Containers{}, read{"last a b", math.MaxInt32 + 3, "A B", []int32{2}}},
		{"init containers too", Containers{Init: true}, read{"last a b i j", math.MaxInt32 + 13, "A B I J", []int32{2, 3}}},
		{"ephemeral ones too", Containers{Ephemeral: true}, read{"last a b e f", math.MaxInt32 + 3, "A B E F", []int32{2, 4}}},
		{"all", Containers{Init: true, Ephemeral: true}, read{"last a b i j e f", math.MaxInt32 + 13, "A B I J E F", []int32{2, 3, 4}}},
	} {
		var names, reasons []string
		got := read{restarts: c.count.Restarts(pod)}
		for s := range c.count.Of(pod) {
			names = append(names, s.Name)
		}
		for _, r := range []string{"A", "B", "I", "J", "E", "F", "Gone", ""} {
			if found, ok := c.count.Reason(pod, []string{"other", r}); ok {
				reasons = append(reasons, found)
			}
		}
		for code := range int32(10) {
			if found, ok := c.count.ExitCode(pod, []int32{-1, code}); ok {
				got.codes = append(got.codes, found)
			}
		}
		got.names, got.reasons = strings.Join(names, " "), strings.Join(reasons, " ")
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestFirstContainerReason(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{
		ContainerStatuses:     []corev1.ContainerStatus{status("a", 0, "", "B", 2), status("b", 0, "A", "", 0)},
		InitContainerStatuses: []corev1.ContainerStatus{status("i", 0, "C", "", 0)},
	}}
	reason, _ := Containers{Init: true}.Reason(pod, []string{"C", "A", "B"})
	if reason != "B" {
		t.Errorf("reason %q, want B", reason)
	}
}

func TestOwnerKinds(t *testing.T) {
	owned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Job"}, {Kind: "Node"}}}}
	for _, c := range []struct {
		pod   *corev1.Pod
		kinds []string
		want  bool
	}{
		{owned, []string{"ReplicaSet", "Node"}, true},
		{owned, []string{"job"}, false},
		{owned, nil, false},
		{&corev1.Pod{}, []string{"Job"}, false},
	} {
		if got := Owned(c.pod, c.kinds); got != c.want {
			t.Errorf("%v owned by one of %v: got %v, want %v", c.pod.OwnerReferences, c.kinds, got, c.want)
		}
	}
}

func TestInvalidOwnerKinds(t *testing.T) {
	want := `[1]: is not a kind, got ""; write it without its group, such as ReplicaSet
[2]: is not a kind, got "apps/ReplicaSet"; write it without its group, such as ReplicaSet`
	if err := ValidateKinds([]string{"Job", "", "apps/ReplicaSet"}); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := ValidateKinds(nil); err != nil {
		t.Errorf("none: got %v", err)
	}
}

func TestAgeReached(t *testing.T) {
	created := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	pod := func(at time.Time) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}}
	}
	for _, c := range []struct {
		created time.Time
		seconds uint
		want    time.Time
		ever    bool
	}{
		{created, 0, created, true},
		{created, 90, created.Add(90 * time.Second), true},
		{created.Add(time.Millisecond), 1, created.Add(1001 * time.Millisecond), true},
		{created, longest, created.Add(time.Duration(longest) * time.Second), true},
		{created, longest + 1, time.Time{}, false},
		{created, math.MaxUint, time.Time{}, false},
		{time.Time{}, 0, time.Time{}, false},
	} {
		if got, ever := AtAge(pod(c.created), c.seconds); !got.Equal(c.want) || ever != c.ever {
			t.Errorf("created %v, %d s: got %v, %v, want %v, %v", c.created, c.seconds, got, ever, c.want, c.ever)
		}
	}
}

func TestDurationFormat(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1999 * time.Millisecond: "1s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Second: "1m30s",
		10 * time.Minute: "10m", time.Hour: "1h", time.Hour + time.Second: "1h0m1s", 90 * time.Minute: "1h30m",
		142 * time.Hour: "142h", 100*time.Hour + 20*time.Minute: "100h20m", -5 * time.Second: "-5s",
	} {
		if got := Text(d); got != want {
			t.Errorf("%d ns: got %s, want %s", d, got, want)
		}
	}
}
