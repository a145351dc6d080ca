package requests

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestEventsCommandShowsScopes(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 1, scene.PreferNode(s.Nodes[0]))
	dir := filetest.ShortDir(t)
	s.StartRun(s.Policy(), dir, "REHOME_DRY_RUN=true") // the pod stays, so each change of the taint can have an answer
	p := s.Start([]string{"events", "--type", "scope", "--type", "delta", "--follow"}, "REHOME_STORE_DIR="+dir)
	n := 0
	p.Eventually("a scope was shown, and the delta that led to it", func() (bool, string) {
		s.ChangeNode(s.Nodes[0], func(node *corev1.Node) { // until the command has subscribed
			node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: fmt.Sprint(n), Effect: corev1.TaintEffectNoSchedule}}
		})
		n++
		got := regexp.MustCompile(` +`).ReplaceAllString(p.Log.String(), " ")
		scope := strings.Contains(got, " scope node/"+s.Nodes[0]+" RemovePodsViolatingNodeTaints: because of node.taints\n")
		return scope && strings.Contains(got, " delta node/"+s.Nodes[0]+" taints: "), got
	})
	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
}

func TestVerdictCauses(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 3, scene.PreferNode(s.Nodes[0]))
	dir := filetest.ShortDir(t)
	s.StartRun(s.Policy(), dir).WaitEvaluated(s)
	events := scene.Record(t, scene.BusIn(dir))
	s.DrainFirstNode(3)
	expect.EventuallyWithState(t, "all three moves are settled", func() (bool, string) {
		return len(events.Settlements()) == 3, fmt.Sprint(len(events.Settlements()))
	})

	byID := map[string]schemas.Event{}
	var verdicts []schemas.Event
	expect.EventuallyWithState(t, "the answer is in the history", func() (bool, string) {
		verdicts = nil
		for _, e := range events.All() {
			byID[e.ID] = e
			if e.Type == schemas.VerdictType {
				verdicts = append(verdicts, e)
			}
		}
		_, ok := byID[verdicts[0].CausationID]
		return ok, verdicts[0].CausationID
	})
	for _, v := range verdicts {
		chain := []string{v.Type}
		e := v
		for e.CausationID != "" {
			cause, ok := byID[e.CausationID]
			if !ok {
				t.Fatalf("no event %s, the cause of %s %s", e.CausationID, e.Type, e.ID)
			}
			if cause.CorrelationID != v.CorrelationID || trace(cause) != trace(v) || cause.TraceParent == e.TraceParent {
				t.Errorf("%s: correlation %s, trace %s; its consequence %s: %s, %s",
					cause.Type, cause.CorrelationID, cause.TraceParent, e.Type, e.CorrelationID, e.TraceParent)
			}
			chain = append(chain, cause.Type)
			e = cause
		}
		want := []string{schemas.VerdictType, schemas.IntentsType, schemas.ScopeType, schemas.DeltaType}
		if strings.HasPrefix(v.Channel, "rehome.verdict.settled.") {
			want = append([]string{schemas.VerdictType}, want...) // the verdict that began the move
		}
		if !reflect.DeepEqual(chain, want) {
			t.Errorf("got the chain %q, want %q", chain, want)
		}
		if e.ID != v.CorrelationID || !strings.HasPrefix(e.Channel, "rehome.delta.node.taints.") {
			t.Errorf("the first of the chain is %s on %s, want %s, the taint", e.ID, e.Channel, v.CorrelationID)
		}
	}
}

// trace returns the trace ID of an event.
func trace(e schemas.Event) string {
	parts := strings.Split(e.TraceParent, "-")
	if len(parts) != 4 {
		return "none: " + e.TraceParent
	}
	return parts[1]
}
