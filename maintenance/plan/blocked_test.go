package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

func TestBlockedPodLimit(t *testing.T) {
	var list []PodFacts
	for i := range 23 {
		list = append(list, one(fmt.Sprintf("p%02d", i), test.Protected("PodsWithPVC")))
	}
	_, steps := Decide(scene(draining(list...)))
	n := steps.Status.Nodes[0]
	if len(n.Blocked) != 20 || n.Blocked[19].Name != "p19" || n.More != 3 || n.Pods.Blocked != 23 {
		t.Errorf("got %d to %+v, %d more, %+v", len(n.Blocked), n.Blocked[len(n.Blocked)-1], n.More, n.Pods)
	}
}

func TestStatusFitsIntoObject(t *testing.T) {
	words := strings.Repeat("ä lot of wörds ", 4000)
	closed := nodeIs(func(n *NodeFacts) { n.Gates = []Gate{{Name: "long", Message: words}} })
	nodes := []option{func(s *Facts) { s.Cluster.Nodes = 2 * MostNodes }}
	for i := range MostNodes {
		var list []PodFacts
		for j := range 25 {
			p := one(fmt.Sprintf("a-workload-with-a-name-6c9f7d5b4-p%02d", j), test.Protected("PodsWithPVC"))
			p.Protected[0].Detail = words
			list = append(list, p)
		}
		nodes = append(nodes, with(fmt.Sprintf("ip-10-1-%03d-7.a-region-1.compute.internal", i), v1alpha1.Draining, pods(list...), closed))
	}
	_, steps := Decide(scene(nodes...))
	var got []string
	for _, n := range steps.Status.Nodes {
		got = append(got, fmt.Sprintf("%d named, %d more, of %d", len(n.Blocked), n.More, n.Pods.Blocked))
	}
	want := append(slices.Repeat([]string{"20 named, 5 more, of 25"}, 50), slices.Repeat([]string{"0 named, 25 more, of 25"}, 950)...)
	expect.Equal(t, "result", got, want)
	if s := steps.Status.Summary; s.PodsBlocked != 25_000 || !strings.HasPrefix(s.Message, "cannot move 25000 pods, such as") {
		t.Errorf("the summary is %+v", s)
	}
	for _, c := range steps.Status.Conditions {
		if len(c.Message) > 1024 || !utf8.ValidString(c.Message) {
			t.Errorf("%s has a message of %d bytes", c.Type, len(c.Message))
		}
	}
	text, err := json.Marshal(steps.Status)
	if err != nil || len(text) > 1<<20 { // of 1.5 MiB, including the names of field managers
		t.Errorf("it comes to %d bytes, error %v", len(text), err)
	}
}
