package bus

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestLeaseHolderActs(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 4, scene.PreferNode(s.Nodes[0]))
	const duration = "REHOME_LEASE_DURATION=1m"
	policy, first, second := s.Policy(), filetest.ShortDir(t), filetest.ShortDir(t)
	leader := s.StartRun(policy, first, duration)
	leader.WaitLog("lease held")
	standby := s.StartRun(policy, second, duration)
	events, others := scene.Record(t, scene.BusIn(first)), scene.Record(t, scene.BusIn(second))

	s.DrainFirstNode(4)
	events.WaitVerdicts("all four have a verdict", func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Evicted, v)) == 4 })
	if strings.Contains(standby.Log.String(), "lease held") {
		t.Error("two processes held the lease at once")
	}
	if got := others.All(); len(got) > 0 {
		t.Errorf("the process without the lease has published %d events, such as %+v", len(got), got[0])
	}

	ended := time.Now()
	leader.Stop()
	standby.WaitLog("lease held")
	if took := time.Since(ended); took > 20*time.Second { // far below the duration of the lease
		t.Errorf("the other took over after %v, want at most 20s", took)
	}
	s.BringBack("api", 4)
	s.DrainFirstNode(4)
	others.WaitVerdicts("all four have a verdict", func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Evicted, v)) == 4 })
}

func TestDryRunWithoutLease(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 2, scene.OnNode(s.Nodes[0]))
	dir := filetest.ShortDir(t)
	policy := s.Policy()
	s.StartRun(policy, dir, "REHOME_DRY_RUN=true")
	events := scene.Record(t, scene.BusIn(dir))
	s.Taint(s.Nodes[0], "dedicated")
	evicted := func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Evicted, v)) == 2 }
	events.WaitVerdicts("both would be evicted", evicted)
	leases, err := s.Client.CoordinationV1().Leases(s.Namespace).List(t.Context(), metav1.ListOptions{})
	s.T.Must(err)
	if len(leases.Items) != 0 {
		t.Errorf("there are leases: %+v", leases.Items)
	}

	// A dry run also works beside a leader.
	s.Untaint(s.Nodes[0])
	elsewhere := filetest.New(t, "policy.yaml", strings.Replace(s.ReadPolicy(policy), "scene="+s.Namespace, "scene=none", 1))
	s.StartRun(elsewhere, filetest.ShortDir(t)).WaitLog("lease held")
	beside := filetest.ShortDir(t)
	s.StartRun(policy, beside, "REHOME_DRY_RUN=true")
	s.Taint(s.Nodes[0], "dedicated")
	scene.Record(t, scene.BusIn(beside)).WaitVerdicts("both would be evicted", evicted)
	if got := s.Evictions(); got != nil {
		t.Errorf("evicted %v, want none", got)
	}
}
