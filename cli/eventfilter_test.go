package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// verdictEvent returns the event of a verdict about pod NAMESPACE/NAME on worker-1.
func verdictEvent(t *testing.T, id string, outcome schemas.Outcome, namespace, name string) schemas.Event {
	t.Helper()
	return eventOf(t, id, schemas.Verdict{
		Outcome: outcome, Reason: schemas.ReasonEvictionAccepted, Profile: "default", Strategy: "PodLifeTime",
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: namespace, Name: name}, Node: "worker-1", Reason: "it is old"},
	})
}

// publishAll stores events.
func publishAll(t *testing.T, b *bus.Bus, events ...schemas.Event) {
	t.Helper()
	if err := b.PublishAll(t.Context(), events); err != nil {
		t.Fatal(err)
	}
}

func TestEventFilterFlags(t *testing.T) {
	b := busOf(t)
	taint := eventOf(t, "taint", schemas.Delta{Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "worker-1"}})
	follows := verdictEvent(t, "cart", schemas.Evicted, "shop", "cart-0")
	follows.CorrelationID = taint.ID
	publishAll(t, b,
		taint, follows, verdictEvent(t, "held", schemas.Deferred, "shop", "api-0"), verdictEvent(t, "web", schemas.Evicted, "web", "api-0"),
		eventOf(t, "gone", schemas.Delta{
			Kind: schemas.PodDeleted, Object: schemas.ObjectRef{Kind: "Pod", Namespace: "shop", Name: "cart-0"}, Node: "worker-2",
		}))
	for _, c := range []struct {
		flags string
		want  []string
	}{
		{"", []string{"taint", "cart", "held", "web", "gone"}},
		{"-n shop", []string{"cart", "held", "gone"}},
		{"--namespace shop,web --outcome evicted", []string{"cart", "web"}},
		{"--outcome deferred --outcome rejected,failed", []string{"held"}},
		{"--strategy PodLifeTime", []string{"cart", "held", "web"}},
		{"--node worker-1", []string{"taint", "cart", "held", "web"}},
		{"--node worker-1 --type delta", []string{"taint"}},
		{"--node worker-2", []string{"gone"}},
		{"--type verdict,intents --type delta", []string{"taint", "cart", "held", "web", "gone"}},
		{"--since 1h", []string{"taint", "cart", "held", "web", "gone"}},
		{"--since 1ns", nil},
		{"--pod shop/cart-0", []string{"cart", "gone"}},
		{"--pod shop/cart-0,web/api-0 --type verdict", []string{"cart", "web"}},
		{"--correlation taint", []string{"taint", "cart"}},
		{"--correlation nothing", nil},
	} {
		t.Run(c.flags, func(t *testing.T) {
			out, err := execute(t, append([]string{"events", "-o", "json"}, strings.Fields(c.flags)...)...)
			expect.Must(t, err)
			var got []string
			for line := range strings.Lines(out) {
				var e struct{ ID string }
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				got = append(got, e.ID)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// A sender of requests chooses the reason that verdicts repeat.
func TestHostileEventText(t *testing.T) {
	b := busOf(t)
	publishAll(t, b, eventOf(t, "hostile", schemas.Verdict{
		Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Profile: "default", Strategy: "Request",
		Intent: schemas.Intent{
			Pod: schemas.PodRef{Namespace: "shop", Name: "cart-0"}, Node: "worker-1", Reason: "\x1b[2Jgone\rnew\nline",
		},
	}))
	got, err := execute(t, "events")
	if err != nil || !strings.Contains(got, "�[2Jgone�new�line") || strings.ContainsAny(got, "\x1b\r") || strings.Count(got, "\n") != 1 {
		t.Errorf("error %v\n got %q, want one line without control characters", err, got)
	}
}

func TestMaintenanceColumns(t *testing.T) {
	b := busOf(t)
	e := eventOf(t, "rolling", schemas.Maintenance{
		Name: "rolling", Summary: v1alpha1.Summary{Nodes: "2/30", PodsLeft: 41},
		Nodes: []v1alpha1.NodeStatus{{Name: "worker-3", Stage: v1alpha1.IsDrained}},
	})
	publishAll(t, b, e, verdictEvent(t, "web", schemas.Evicted, "web", "api-0"))
	want := e.Time.Local().Format("15:04:05.000") +
		"  maintenance rolling                       node worker-3 Drained  2/30 nodes, 41 pods left\n"
	for _, flags := range [][]string{{"--node", "worker-3"}, {"--maintenance", "rolling"}, {"--type", "maintenance"}} {
		if got, err := execute(t, append([]string{"events"}, flags...)...); err != nil || got != want {
			t.Errorf("%v: error %v\n got %s\nwant %s", flags, err, got, want)
		}
	}
}
