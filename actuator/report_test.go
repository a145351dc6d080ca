package actuator

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rehome-dev/rehome/schemas"
)

func TestPeopleAreToldWhatHappenedToAPodAndNothingElse(t *testing.T) {
	type event struct {
		Type, Note string
		OK         bool
	}
	tests := []struct {
		outcome schemas.Outcome
		dryRun  bool
		want    event
	}{
		{schemas.Evicted, false, event{"Normal", "evicted from node worker-1 by rehome: does not tolerate dedicated=gpu:NoSchedule", true}},
		{schemas.Deferred, false, event{"Normal",
			"eviction from node worker-1 by rehome deferred: the message (does not tolerate dedicated=gpu:NoSchedule)", true}},
		{schemas.Failed, false, event{"Warning",
			"eviction from node worker-1 by rehome failed: the message (does not tolerate dedicated=gpu:NoSchedule)", true}},
		{schemas.Rejected, false, event{}},
		{schemas.Withdrawn, false, event{}},
		{schemas.Expired, false, event{}},
	}
	for _, tt := range tests {
		t.Run(string(tt.outcome), func(t *testing.T) {
			v := wish().Verdict(tt.outcome, "", "the message")
			var got event
			got.Type, got.Note, got.OK = kubernetesEvent(v)
			check(t, "event", got, tt.want)
			v.DryRun = true
			if _, _, ok := kubernetesEvent(v); ok {
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
