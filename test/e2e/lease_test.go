package e2e

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/filetest"
)

func TestLeaseHolderActs(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*process)
		// lease is the lease duration, and so how long standbys wait for a lost leader.
		lease time.Duration
		most  time.Duration // until the other leads
	}{
		// The first limit is far below the lease duration; the second one is twice the lease duration, for a busy machine.
		{"at once when it is stopped", func(p *process) { p.stop() }, time.Minute, 20 * time.Second},
		{"after a lease when it is killed", (*process).kill, 15 * time.Second, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, 2)
			s.deployment("api", 4, preferring(s.nodes[0]))
			policy, first, second := s.policy(), filetest.ShortDir(t), filetest.ShortDir(t)
			duration := "REHOME_LEASE_DURATION=" + c.lease.String()
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
			c.end(leader)
			standby.says("lease held")
			if took := time.Since(ended); took > c.most {
				t.Errorf("the other took over after %v, want at most %v", took, c.most)
			}
			s.back("api", 4)
			s.handles(4)
			others.until("all four have a verdict", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 4 })
		})
	}
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
	text, err := os.ReadFile(policy)
	s.t.Must(err)
	elsewhere := filepath.Join(t.TempDir(), "policy.yaml")
	filetest.Write(s.t, elsewhere, strings.Replace(string(text), "scene="+s.namespace, "scene=none", 1))
	s.rehome(elsewhere, filetest.ShortDir(t)).says("lease held")
	beside := filetest.ShortDir(t)
	s.rehome(policy, beside, "REHOME_DRY_RUN=true")
	s.taint(s.nodes[0], "dedicated")
	record(t, at(beside)).until("both would be evicted", evicted)
	if got := s.evictions(); !reflect.DeepEqual(got, []eviction(nil)) {
		t.Errorf("evicted %v, want none", got)
	}
}
