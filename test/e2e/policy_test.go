package e2e

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// text returns the text of a policy file.
func (s *scene) text(file string) string {
	s.t.Helper()
	data, err := os.ReadFile(file)
	s.t.Must(err)
	return string(data)
}

// reloaded waits until the process has reported one reload of its policy file with a result.
func (p *process) reloaded(result string) {
	p.t.Helper()
	p.eventually("a policy is "+result, func() (bool, string) {
		got := p.metric(`rehome_policy_reloads_total{result="` + result + `"}`)
		return got == 1, fmt.Sprint(got)
	})
}

func TestPolicyReload(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 3, preferring(s.nodes[0]))
	before := s.pods(s.nodes[0])
	open := s.text(s.policy())
	file := s.enable("RemovePodsViolatingNodeTaints",
		[]string{"{name: RemovePodsViolatingNodeTaints, args: {excludedTaints: [dedicated]}}"})
	dir := filetest.ShortDir(t)
	p := s.rehome(file, dir)
	events := record(t, at(dir))
	s.taint(s.nodes[0], "dedicated")

	filetest.Write(t, file, strings.Replace(open, "RemovePodsViolatingNodeTaints]", "RemovePodsViolatingNodeTaint]", 1))
	p.reloaded("refused")
	if got := s.evictions(); got != nil {
		t.Errorf("evicted %v under a policy that was refused", got)
	}
	if want := "policy.yaml:9: profiles[0].plugins.deschedule.enabled[0]: is not a plugin of this version of Rehome"; !strings.Contains(p.Log.String(), want) {
		t.Errorf("the log does not say %s", want)
	}

	filetest.Write(t, file, open)
	events.until("the pods that the old policy left alone are evicted", func(v []schemas.Verdict) bool {
		return len(of(schemas.Evicted, v)) == len(before)
	})
	p.reloaded("applied")
	if got := uids(s.evictions()); !reflect.DeepEqual(got, before) {
		t.Errorf("evicted %v, want %v", got, before)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
