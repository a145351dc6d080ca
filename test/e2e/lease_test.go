package e2e

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestLeaseHolderActs(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 4, preferring(s.nodes[0]))
	const duration = "REHOME_LEASE_DURATION=1m"
	policy, first, second := s.policy(), filetest.ShortDir(t), filetest.ShortDir(t)
	leader := s.rehome(policy, first, duration)
	leader.says("lease held")
	standby := s.rehome(policy, second, duration)
	events, others := record(t, at(first)), record(t, at(second))

	s.handles(4)
	events.until("all four have a verdict", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 4 })
	if strings.Contains(standby.Log.String(), "lease held") {
		t.Error("two processes held the lease at once")
	}
	if got := others.all(); len(got) > 0 {
		t.Errorf("the process without the lease has published %d events, such as %+v", len(got), got[0])
	}

	ended := time.Now()
	leader.stop()
	standby.says("lease held")
	if took := time.Since(ended); took > 20*time.Second { // far below the duration of the lease
		t.Errorf("the other took over after %v, want at most 20s", took)
	}
	s.back("api", 4)
	s.handles(4)
	others.until("all four have a verdict", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 4 })
}

func TestDryRunWithoutLease(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 2, on(s.nodes[0]))
	dir := filetest.ShortDir(t)
	policy := s.policy()
	s.rehome(policy, dir, "REHOME_DRY_RUN=true")
	events := record(t, at(dir))
	s.taint(s.nodes[0], "dedicated")
	evicted := func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 2 }
	events.until("both would be evicted", evicted)
	leases, err := s.client.CoordinationV1().Leases(s.namespace).List(t.Context(), metav1.ListOptions{})
	s.t.Must(err)
	if len(leases.Items) != 0 {
		t.Errorf("there are leases: %+v", leases.Items)
	}

	// A dry run also works beside a leader.
	s.untaint(s.nodes[0])
	elsewhere := filetest.New(t, "policy.yaml", strings.Replace(s.text(policy), "scene="+s.namespace, "scene=none", 1))
	s.rehome(elsewhere, filetest.ShortDir(t)).says("lease held")
	beside := filetest.ShortDir(t)
	s.rehome(policy, beside, "REHOME_DRY_RUN=true")
	s.taint(s.nodes[0], "dedicated")
	record(t, at(beside)).until("both would be evicted", evicted)
	if got := s.evictions(); got != nil {
		t.Errorf("evicted %v, want none", got)
	}
}
