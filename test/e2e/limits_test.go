package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/expect"
)

func limitIsKept(t *testing.T) {
	const most, window = 2, 4 * time.Second
	s := newScene(t, 2)
	node := s.nodes[0]
	s.deployment("api", 6, preferring(node))
	before := s.pods(node)
	events := s.follow(s.policy(fmt.Sprintf("maxNoOfPodsToEvictPerNode: %d", most), fmt.Sprintf("limits: {window: %v}", window)))

	// The verdict has the time at which the limit allows another move. The pod is evaluated again then.
	s.taint(node, "dedicated")
	expect.EventuallyWithState(t, "the node is empty", func() (bool, string) {
		left := s.pods(node)
		return len(left) == 0, fmt.Sprint(left)
	})
	s.ready("api")
	s.evictedOnce(before)

	got := s.evictions()
	slices.SortFunc(got, func(a, b eviction) int { return a.received.Compare(b.received) })
	for i := range got[most:] {
		if d := got[i+most].received.Sub(got[i].received); d < window {
			t.Errorf("evictions %d to %d came within %v, want at most %d in %v", i+1, i+1+most, d, most, window)
		}
	}
	verdicts := events.until("all have moved", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == len(before) })
	deferred := of(schemas.Deferred, verdicts)
	if len(deferred) < len(before)-most {
		t.Errorf("%d verdicts deferred, want one at least for each of the other pods: %s", len(deferred), summary(verdicts))
	}
	said := map[string]bool{}
	clock := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)
	for _, v := range deferred {
		said[string(v.Reason)+": "+clock.ReplaceAllString(v.Message, "TIME")] = true
	}
	want := map[string]bool{
		"LimitNode: node " + node + " has reached its limit of 2 pods in 4s; there is capacity again at TIME": true,
	}
	if !maps.Equal(said, want) {
		t.Errorf("deferred because of %v, want %v", said, want)
	}
}
