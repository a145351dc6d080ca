package actuator

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rehome-dev/rehome/schemas"
)

func TestPeopleAreToldWhatHappenedToAPodAndNothingElse(t *testing.T) {
	type event struct {
		Type, Reason, Note string
		OK                 bool
	}
	const taints = "RemovePodsViolatingNodeTaints"
	tests := []struct {
		outcome  schemas.Outcome
		failures bool // evictionFailureEventNotification
		want     event
	}{
		{schemas.Evicted, false, event{"Normal", taints,
			"evicted from node worker-1 by rehome: does not tolerate dedicated=gpu:NoSchedule", true}},
		{schemas.Deferred, false, event{"Normal", taints,
			"eviction from node worker-1 by rehome deferred: the message (does not tolerate dedicated=gpu:NoSchedule)", true}},
		{schemas.Failed, false, event{"Warning", taints,
			"eviction from node worker-1 by rehome failed: the message (does not tolerate dedicated=gpu:NoSchedule)", true}},
		{schemas.Rejected, false, event{}},
		{schemas.Withdrawn, false, event{}},
		{schemas.Expired, false, event{}},
		{schemas.Evicted, true, event{"Normal", taints,
			"evicted from node worker-1 by rehome: does not tolerate dedicated=gpu:NoSchedule", true}},
		{schemas.Deferred, true, event{"Warning", "EvictionFailed",
			"eviction from node worker-1 by rehome deferred: the message (does not tolerate dedicated=gpu:NoSchedule)", true}},
		{schemas.Failed, true, event{"Warning", "EvictionFailed",
			"eviction from node worker-1 by rehome failed: the message (does not tolerate dedicated=gpu:NoSchedule)", true}},
		{schemas.Rejected, true, event{}},
		{schemas.Withdrawn, true, event{}},
		{schemas.Expired, true, event{}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s, failures told as such: %v", tt.outcome, tt.failures), func(t *testing.T) {
			v := wish().Verdict(tt.outcome, "", "the message")
			var got event
			got.Type, got.Reason, got.Note, got.OK = kubernetesEvent(v, tt.failures)
			check(t, "event", got, tt.want)
			v.DryRun = true
			if _, _, _, ok := kubernetesEvent(v, tt.failures); ok {
				t.Error("a dry run is told as a Kubernetes Event")
			}
		})
	}
}

func TestANoteIsNoLongerThanTheAPIServerTakes(t *testing.T) {
	for n := maxNote - 4; n < maxNote+4; n++ {
		got := truncate(strings.Repeat("x", n)+"öööö", maxNote)
		if len(got) > maxNote || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d x and four ö become %d bytes ending in %q", n, len(got), got[len(got)-5:])
		}
	}
	check(t, "a short note", truncate("öö", 4), "öö")
}
