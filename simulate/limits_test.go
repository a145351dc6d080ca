package simulate

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func on(node, namespace string) schemas.Intent {
	return schemas.Intent{Node: node, Pod: schemas.PodRef{Namespace: namespace}}
}

func TestOrderOfLimits(t *testing.T) {
	asked := []schemas.Intent{on("n1", "a"), on("n1", "b"), on("n2", "a"), on("n2", "c"), on("n3", "d")}
	for _, c := range []struct {
		name                         string
		total, perNode, perNamespace *uint
		want                         []schemas.ReasonCode
		said                         string
	}{
		{"no limit", nil, nil, nil, []schemas.ReasonCode{"", "", "", "", ""}, ""},
		{"none at all", new(uint(0)), nil, nil, []schemas.ReasonCode{"LimitTotal", "LimitTotal", "LimitTotal", "LimitTotal", "LimitTotal"},
			"0 pods in this round were moved, the limit is 0"},
		{"of all", new(uint(2)), nil, nil, []schemas.ReasonCode{"", "", "LimitTotal", "LimitTotal", "LimitTotal"},
			"2 pods in this round were moved, the limit is 2"},
		{"of a node", nil, new(uint(1)), nil, []schemas.ReasonCode{"", "LimitNode", "", "LimitNode", ""}, "1 pods of node n2 were moved, the limit is 1"},
		{"of a namespace", nil, nil, new(uint(1)), []schemas.ReasonCode{"", "", "LimitNamespace", "", ""},
			"1 pods of namespace a were moved, the limit is 1"},
		{"all of them", new(uint(3)), new(uint(2)), new(uint(1)), []schemas.ReasonCode{"", "", "LimitNamespace", "", "LimitTotal"},
			"3 pods in this round were moved, the limit is 3"},
		{"node before namespace", nil, new(uint(0)), new(uint(0)), []schemas.ReasonCode{"LimitNode", "LimitNode", "LimitNode", "LimitNode", "LimitNode"},
			"0 pods of node n3 were moved, the limit is 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := limits{policy.Limits{Total: c.total, PerNode: c.perNode, PerNamespace: c.perNamespace}, map[string]uint{}}
			var got []schemas.ReasonCode
			said := ""
			for _, i := range asked {
				reason, message := l.take(i)
				got = append(got, reason)
				if message != "" {
					said = message
				}
			}
			if !slices.Equal(got, c.want) || said != c.said {
				t.Errorf("got  %q, %q\nwant %q, %q", got, said, c.want, c.said)
			}
		})
	}
}

// settled settles entries for these pods in a round with a limit of one move. The pods named held do not move.
func settled(t *testing.T, pods ...string) (asked, verdicts []string) {
	t.Helper()
	r := &round{limits: limits{policy.Limits{Total: new(uint(1))}, map[string]uint{}}}
	r.Carry = func(_ context.Context, intents []actuator.Intent) ([]schemas.Verdict, error) {
		var list []schemas.Verdict
		for _, o := range intents {
			asked = append(asked, o.Pod.Name)
			switch o.Pod.Name {
			case "held":
				list = append(list, o.Verdict(schemas.Deferred, schemas.ReasonThrottled, ""))
			case "restarts":
				list = append(list, o.Verdict(schemas.Restarted, schemas.ReasonRestartAccepted, ""))
			default:
				list = append(list, o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""))
			}
		}
		return list, nil
	}
	var entries []*entry
	for _, name := range pods {
		i := on("n1", "a")
		i.Pod.Name, i.Pod.UID = name, types.UID(name)
		entries = append(entries, &entry{open: actuator.Intent{Intent: i}})
	}
	expect.Must(t, r.execute(t.Context(), entries))
	for _, w := range entries {
		verdicts = append(verdicts, fmt.Sprintf("%s %s %s", w.open.Pod.Name, w.verdict.Outcome, w.verdict.Reason))
	}
	return asked, verdicts
}

func TestUnmovedPodFreesLimit(t *testing.T) {
	asked, verdicts := settled(t, "held", "moves", "late")
	want := []string{"held deferred Throttled", "moves evicted EvictionAccepted", "late deferred LimitTotal"}
	if !slices.Equal(verdicts, want) || !slices.Equal(asked, []string{"held", "moves"}) {
		t.Errorf("asked %q, got %q, want %q", asked, verdicts, want)
	}
}

func TestPodOfTwoScopesMovesOnce(t *testing.T) {
	asked, verdicts := settled(t, "held", "moves", "moves", "held")
	want := []string{
		"held deferred Throttled", "moves evicted EvictionAccepted", "moves rejected PodTerminating", "held deferred Throttled",
	}
	if !slices.Equal(verdicts, want) || !slices.Equal(asked, []string{"held", "moves"}) {
		t.Errorf("asked %q, got %q, want %q", asked, verdicts, want)
	}
}

// A restart is a move, too: it uses the limit, and the pod moves only once.
func TestRestartUsesLimit(t *testing.T) {
	asked, verdicts := settled(t, "restarts", "late", "restarts")
	want := []string{"restarts restarted RestartAccepted", "late deferred LimitTotal", "restarts rejected PodTerminating"}
	if !slices.Equal(verdicts, want) || !slices.Equal(asked, []string{"restarts"}) {
		t.Errorf("asked %q, got %q, want %q", asked, verdicts, want)
	}
}
