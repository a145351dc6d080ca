package e2e

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/filetest"
	"github.com/rehome-dev/rehome/test/schematest"
)

// masked replaces the parts of lines that differ between runs, and sorts the lines, because two of them can come in either order.
func (s *scene) masked(text string) []string {
	replace := []string{s.namespace, "SCENE"}
	for i, n := range s.nodes {
		replace = append(replace, n, "NODE-"+string(rune('0'+i)))
	}
	names := strings.NewReplacer(replace...)
	var lines []string
	for line := range strings.Lines(text) {
		line = names.Replace(strings.TrimSpace(line))
		line = regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d\d\d`).ReplaceAllString(line, "TIME")
		line = regexp.MustCompile(`api-[0-9a-z]+-[0-9a-z]{5}`).ReplaceAllString(line, "POD")
		line = regexp.MustCompile(`after \d+\.\ds`).ReplaceAllString(line, "after SECONDS")
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(lines)
	return lines
}

func TestEventsCommand(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 1, preferring(s.nodes[0]))
	dir := filetest.ShortDir(t)
	s.rehome(s.policy(), dir).evaluated(s)
	here := "REHOME_STORE_DIR=" + dir
	s.handles(1)
	s.running("app=api", 1)

	const (
		delta     = "TIME delta node/NODE-0 taints: none → dedicated:NoSchedule"
		scheduled = "TIME delta pod/SCENE/POD scheduled"
		intents   = "TIME intents node/NODE-0 RemovePodsViolatingNodeTaints: move 1: SCENE/POD"
		verdict   = "TIME verdict pod/SCENE/POD evicted from NODE-0: does not tolerate dedicated:NoSchedule"
		settled   = "TIME verdict pod/SCENE/POD settled Replaced SCENE/POD on NODE-1 after SECONDS: replacement POD"
	)
	all := []string{delta, scheduled, intents, verdict, settled}
	expect.EventuallyWithState(t, "the history has all events", func() (bool, string) {
		got := s.run([]string{"events"}, here)
		return len(s.masked(got.stdout)) >= len(all), got.String()
	})
	for _, c := range []struct {
		arguments []string
		want      []string
	}{
		{nil, all},
		{[]string{"--since", "1h"}, all},
		{[]string{"--since", "1ns"}, nil},
		{[]string{"--type", "delta"}, []string{delta, scheduled}},
		{[]string{"--type", "verdict"}, []string{verdict, settled}},
		{[]string{"--type", "verdict,intents", "--type", "verdict"}, []string{intents, verdict, settled}},
	} {
		t.Run(strings.Join(c.arguments, " "), func(t *testing.T) {
			got := s.run(append([]string{"events"}, c.arguments...), here)
			if lines := s.masked(got.stdout); got.code != 0 || !reflect.DeepEqual(lines, c.want) {
				t.Errorf("got  code %d, %q\nwant %q", got.code, lines, c.want)
			}
		})
	}

	var nouns []string
	validator, err := schematest.New()
	s.t.Must(err)
	for line := range strings.Lines(s.run([]string{"events", "-o", "json"}, here).stdout) {
		if !strings.Contains(line, `"specversion":"1.0"`) {
			t.Errorf("no CloudEvent in structured mode: %s", line)
		}
		e, err := schematest.Parse([]byte(line))
		s.t.Must(err)
		s.t.Must(validator.Validate(e))
		nouns = append(nouns, e.Type)
	}
	slices.Sort(nouns)
	want := []string{schemas.DeltaType, schemas.DeltaType, schemas.IntentsType, schemas.VerdictType, schemas.VerdictType}
	if !reflect.DeepEqual(nouns, want) {
		t.Errorf("as JSON: got %q, want %q", nouns, want)
	}
}

func TestEventsCommandShowsScopes(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 1, preferring(s.nodes[0]))
	dir := filetest.ShortDir(t)
	s.rehome(s.policy(), dir, "REHOME_DRY_RUN=true") // the pod stays, so each change of the taint can have an answer
	p := s.start([]string{"events", "--type", "scope", "--type", "delta", "--follow"}, "REHOME_STORE_DIR="+dir)
	n := 0
	p.eventually("a scope was shown, and the delta that led to it", func() (bool, string) {
		s.changeNode(s.nodes[0], func(node *corev1.Node) { // until the command has subscribed
			node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: fmt.Sprint(n), Effect: corev1.TaintEffectNoSchedule}}
		})
		n++
		got := s.masked(p.Log.String())
		scope := slices.Contains(got, "TIME scope node/NODE-0 RemovePodsViolatingNodeTaints: because of node.taints")
		delta := slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, "TIME delta node/NODE-0 taints: ") })
		return scope && delta, p.Log.String()
	})
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
}

func TestVerdictCauses(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 3, preferring(s.nodes[0]))
	dir := filetest.ShortDir(t)
	s.rehome(s.policy(), dir).evaluated(s)
	events := record(t, at(dir))
	s.handles(3)
	expect.EventuallyWithState(t, "all three moves are settled", func() (bool, string) {
		return len(events.settlements()) == 3, fmt.Sprint(len(events.settlements()))
	})

	byID := map[string]schemas.Event{}
	var verdicts []schemas.Event
	expect.EventuallyWithState(t, "the answer is in the history", func() (bool, string) {
		verdicts = nil
		for _, e := range events.all() {
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
