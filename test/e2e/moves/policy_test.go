package moves

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestPolicyReload(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 3, scene.PreferNode(s.Nodes[0]))
	before := s.PodsOn(s.Nodes[0])
	open := s.ReadPolicy(s.Policy())
	file := s.DeschedulePolicy("RemovePodsViolatingNodeTaints",
		[]string{"{name: RemovePodsViolatingNodeTaints, args: {excludedTaints: [dedicated]}}"})
	dir := filetest.ShortDir(t)
	p := s.StartRun(file, dir)
	events := scene.Record(t, scene.BusIn(dir))
	s.Taint(s.Nodes[0], "dedicated")

	filetest.Write(t, file, strings.Replace(open, "RemovePodsViolatingNodeTaints]", "RemovePodsViolatingNodeTaint]", 1))
	p.WaitReloaded("refused")
	if got := s.Evictions(); got != nil {
		t.Errorf("evicted %v under a policy that was refused", got)
	}
	if want := "policy.yaml:9: profiles[0].plugins.deschedule.enabled[0]: is not a plugin of this version of Rehome"; !strings.Contains(p.Log.String(), want) {
		t.Errorf("the log does not say %s", want)
	}

	filetest.Write(t, file, open)
	events.WaitVerdicts("the pods that the old policy left alone are evicted", func(v []schemas.Verdict) bool {
		return len(scene.WithOutcome(schemas.Evicted, v)) == len(before)
	})
	p.WaitReloaded("applied")
	if got := scene.UIDs(s.Evictions()); !reflect.DeepEqual(got, before) {
		t.Errorf("evicted %v, want %v", got, before)
	}
	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
