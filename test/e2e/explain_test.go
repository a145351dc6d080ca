package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// maskedText replaces the parts of the output that differ between runs.
func (s *scene) maskedText(text string) string {
	replace := []string{s.namespace, "SCENE"}
	for i, n := range s.nodes {
		replace = append(replace, n, "NODE-"+string(rune('0'+i)))
	}
	text = strings.NewReplacer(replace...).Replace(text)
	for _, mask := range []struct{ pattern, with string }{
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})?`, "TIME"}, {`\+\d+\.\d+s `, "+SOON "}, {`(\w+)-[0-9a-f]{7,10}-[0-9a-z]{5}`, "$1-POD"},
		{`\w+s old`, "AGE old"}, {`after \d+\.\ds`, "after SECONDS"}, {` +`, " "}, {`; again at TIME at the earliest`, ""},
		{`deferred \d+ times: (.*); last at TIME`, "deferred: $1"}, {`\n +at TIME`, ""},
	} {
		text = regexp.MustCompile(mask.pattern).ReplaceAllString(text, mask.with)
	}
	return text
}

func TestExplainPod(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 1, preferring(s.nodes[0]))
	s.deployment("held", 1, on(s.nodes[0]))
	s.pod("bare", s.nodes[0], nil)
	s.budget("keep", "held", 1)
	policy, dir := s.policy(), filetest.ShortDir(t)
	address := expect.Value(s.t, program.FreeAddress)
	s.rehome(policy, dir, "REHOME_API_LOCAL="+address).evaluated(s)
	here := "REHOME_STORE_DIR=" + dir
	moved, held := s.podsOf("api")[0].Name, s.podsOf("held")[0].Name
	s.taint(s.nodes[0], "dedicated")
	s.evicted(0, 1)
	s.running("app=api", 1)

	explain := func(pod, reach string, more ...string) result {
		return s.run(append([]string{"explain", "pod", pod, "-n", s.namespace}, more...), reach)
	}
	api := "REHOME_SERVER=http://" + address
	const chain = " TIME node/NODE-0 taints: none → dedicated:NoSchedule\n" +
		" +SOON RemovePodsViolatingNodeTaints (default, node/NODE-0) wants it off NODE-0: does not tolerate\n dedicated:NoSchedule\n"
	for _, c := range []struct {
		name string
		pod  string
		more []string
		want string
	}{
		{"a pod that was moved", moved, nil, "pod SCENE/api-POD is not in the cluster\n\nHistory\n" + chain +
			" +SOON evicted: evicted from NODE-0\n +SOON settled after SECONDS: Replaced: replacement api-POD on NODE-1\n"},
		{"a pod that a budget holds", held, []string{"--policy", policy}, "pod SCENE/held-POD is on NODE-0, Running, AGE old, of deployment/SCENE/held\n\n" +
			"History\n" + chain + " +SOON deferred: DisruptionBudget: poddisruptionbudget SCENE/keep: 1 of 1 healthy pods needed\n\n" +
			"Strategies\n RemovePodsViolatingNodeTaints wants it moved: does not tolerate dedicated:NoSchedule\n" +
			" If it moved now, its replacement would be Pending: it does not fit on the only other node: node-affinity.\n\n" +
			"Protections\n profile default: nothing\n poddisruptionbudget SCENE/keep: 1 of 1 healthy pods needed\n"},
		{"a pod that a rule protects", "bare", []string{"--policy", policy}, "pod SCENE/bare is on NODE-0, Running, AGE old\n\n" +
			"History\n none known\n\n" +
			"Strategies\n RemovePodsViolatingNodeTaints would want it moved if nothing protected it: does not tolerate dedicated:NoSchedule\n\n" +
			"Protections\n profile default: FailedBarePods: it has no owner that would replace it\n"},
	} {
		for way, explained := range map[string]func() result{
			"bus": func() result { return explain(c.pod, here, c.more...) }, "API": func() result { return explain(c.pod, api) },
		} {
			t.Run(c.name+" by the "+way, func(t *testing.T) {
				expect.EventuallyWithState(t, "the pod is explained", func() (bool, string) { // the last event of a chain may still be on its way
					got := explained()
					text := s.maskedText(got.stdout)
					return got.code == 0 && text == c.want, text + "\nwant\n" + c.want + got.stderr
				})
			})
		}
	}
	for _, words := range []string{"node " + s.nodes[0], "workload deployment/held -n " + s.namespace} {
		onBus := s.run(append(strings.Fields("explain "+words), "--policy", policy), here)
		onAPI := s.run(strings.Fields("explain "+words), api)
		if onAPI != onBus || onBus.code != 0 || !strings.Contains(onBus.stdout, held) {
			t.Errorf("%s: by the API %s\nby the bus %s", words, onAPI, onBus)
		}
	}
	if got := explain("nobody", here); got.code != 1 ||
		got.stderr != "pod "+s.namespace+"/nobody: not found: it is not in the cluster; the history has no events about it\n" {
		t.Errorf("%s", got)
	}
}
