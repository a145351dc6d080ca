package requests

import (
	"regexp"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// maskedText replaces the parts of the output that differ between runs.
func maskedText(s *scene.Scene, text string) string {
	replace := []string{s.Namespace, "SCENE"}
	for i, n := range s.Nodes {
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
	s := scene.New(t, 2)
	s.AddDeployment("api", 1, scene.PreferNode(s.Nodes[0]))
	s.AddDeployment("held", 1, scene.OnNode(s.Nodes[0]))
	s.AddPod("bare", s.Nodes[0], nil)
	s.AddBudget("keep", "held", 1)
	policy, dir := s.Policy(), filetest.ShortDir(t)
	address := expect.Value(s.T, program.FreeAddress)
	s.StartRun(policy, dir, "REHOME_API_LOCAL="+address).WaitEvaluated(s)
	here := "REHOME_STORE_DIR=" + dir
	moved, held := s.PodsOf("api")[0].Name, s.PodsOf("held")[0].Name
	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEvicted(0, 1)
	s.WaitRunning("app=api", 1)

	explain := func(pod, reach string, more ...string) scene.Result {
		return s.Run(append([]string{"explain", "pod", pod, "-n", s.Namespace}, more...), reach)
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
		for way, explained := range map[string]func() scene.Result{
			"bus": func() scene.Result { return explain(c.pod, here, c.more...) }, "API": func() scene.Result { return explain(c.pod, api) },
		} {
			t.Run(c.name+" by the "+way, func(t *testing.T) {
				expect.EventuallyWithState(t, "the pod is explained", func() (bool, string) { // the last event of a chain may still be on its way
					got := explained()
					text := maskedText(s, got.Stdout)
					return got.Code == 0 && text == c.want, text + "\nwant\n" + c.want + got.Stderr
				})
			})
		}
	}
	for _, words := range []string{"node " + s.Nodes[0], "workload deployment/held -n " + s.Namespace} {
		onBus := s.Run(append(strings.Fields("explain "+words), "--policy", policy), here)
		onAPI := s.Run(strings.Fields("explain "+words), api)
		if onAPI != onBus || onBus.Code != 0 || !strings.Contains(onBus.Stdout, held) {
			t.Errorf("%s: by the API %s\nby the bus %s", words, onAPI, onBus)
		}
	}
	if got := explain("nobody", here); got.Code != 1 ||
		got.Stderr != "pod "+s.Namespace+"/nobody: not found: it is not in the cluster; the history has no events about it\n" {
		t.Errorf("%s", got)
	}
}
