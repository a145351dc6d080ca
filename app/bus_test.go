package app

import (
	"context"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/tracetest"
	"github.com/rehome-dev/rehome/trace"
)

// participant is the bus of a separate process and, if the environment enables it, its exporter.
type participant struct {
	*bus.Bus
	spans *trace.Exporter
}

func oneProcess(t *testing.T, server *embed.Server) participant {
	t.Helper()
	spans, err := trace.New("test", slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	t.Cleanup(spans.Close)
	options := bus.Options{Server: server}
	if spans != nil {
		options.Stored = spans.Emitted
	}
	return participant{bustest.Connect(t, options), spans}
}

// made returns the event that a role emits because of a cause.
func made(t *testing.T, role string, p schemas.Payload, cause schemas.Event) schemas.Event {
	t.Helper()
	e, err := schemas.NewEvent("/clusters/test/"+role, p, time.Now(), cause)
	if err != nil {
		t.Error(err) // not in the goroutine of the test
	}
	return e
}

// story sends a chain of events through a real bus, as if each role were a separate process: a taint, its scope, the
// answer, the verdict, and the end of the move. It returns them as emitted.
func story(t *testing.T) (watcher, function, actuator participant, events []schemas.Event) {
	t.Helper()
	server := bustest.Server(t, embed.Options{})
	watcher, function, actuator = oneProcess(t, server), oneProcess(t, server), oneProcess(t, server)
	bustest.SetUp(t, watcher.Bus, bus.Setup{Strategies: []string{"Taints"}})
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()

	ref := schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"}
	intent := schemas.Intent{ID: "i", Pod: schemas.PodRef{Namespace: "web", Name: "api-0", UID: "u"}, Node: "n1"}
	verdict := schemas.Verdict{
		Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Profile: "p", Strategy: "Taints", Scope: ref, Intent: intent,
	}
	answers, moves, ends := make(chan schemas.Event, 1), make(chan []schemas.Event, 1), make(chan error, 2)
	go func() {
		ends <- function.Work(ctx, bus.Work{Strategy: "Taints"}, func(ctx context.Context, scope schemas.Event) error {
			answer := schemas.Intents{Profile: "p", Strategy: "Taints", Scope: ref, Intents: []schemas.Intent{intent}}
			answer.Scope.Sequence = scope.Sequence
			e := made(t, "functions", answer, scope)
			answers <- e
			return function.Answer(ctx, e, answer)
		})
	}()
	go func() {
		ends <- actuator.FollowIntents(ctx, func(ctx context.Context, answer schemas.Event) error {
			begun := made(t, "actuator", verdict, answer)
			settled := verdict
			settled.Outcome, settled.Reason = schemas.Settled, schemas.ReasonReplaced
			over := made(t, "actuator", settled, begun)
			for _, e := range []schemas.Event{begun, over} {
				if _, err := actuator.Publish(ctx, e); err != nil {
					return err
				}
			}
			moves <- []schemas.Event{begun, over}
			return nil
		})
	}()
	delta := made(t, "watcher", schemas.Delta{
		Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "n1"},
	}, schemas.Event{})
	scope := made(t, "watcher", schemas.NodeScope{ScopeHead: schemas.ScopeHead{
		Kind: schemas.NodeKind, Key: "n1", Profile: "p", Strategy: "Taints",
	}}, delta)
	if err := watcher.PublishAll(ctx, []schemas.Event{delta, scope}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
		t.Fatal("the chain does not come to its end")
	case over := <-moves:
		events = append([]schemas.Event{delta, scope, <-answers}, over...)
	}
	cancel()
	for range 2 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	return watcher, function, actuator, events
}

func TestSpanTreeAcrossProcesses(t *testing.T) {
	collector := tracetest.New(t)
	before := time.Now()
	watcher, function, actuator, events := story(t)
	for _, process := range []participant{watcher, function, actuator} {
		process.spans.Close()
	}
	type place struct{ trace, parent, name, source string }
	got, spans := map[string]place{}, map[string]tracetest.Span{}
	for _, s := range collector.Spans() {
		got[s.ID] = place{s.Trace, s.Parent, s.Name, s.Attributes["cloudevents.event_source"]}
		spans[s.ID] = s
	}
	want, parent, earliest := map[string]place{}, "", before
	for i, name := range []string{"delta.v1 node", "scope.v1 node", "intents.v1 node", "verdict.v1 pod", "verdict.v1 pod"} {
		e := events[i]
		id := e.TraceParent[36:52]
		want[id] = place{events[0].TraceParent[3:35], parent, "dev.rehome." + name, e.Source}
		parent = id
		// The spans share one clock: each starts when the previous one ends, includes the emission of the event, and
		// ends.
		s := spans[id]
		if s.Began.Before(earliest) || s.Began.After(e.Time) || s.Ended.Before(e.Time) || s.Ended.After(time.Now()) {
			t.Errorf("%s of %v is from %v to %v, want it to begin after %v and to include that", s.Name, e.Time, s.Began, s.Ended, earliest)
		}
		earliest = s.Began
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	// An event from another process is received after it was emitted: time on the bus belongs to no span.
	for _, i := range []int{2, 3} {
		if s := spans[events[i].TraceParent[36:52]]; !s.Began.After(events[i-1].Time) {
			t.Errorf("%s began at %v, want it after %v, when its cause was made elsewhere", s.Name, s.Began, events[i-1].Time)
		}
	}
}

func TestTracingWithoutEndpoint(t *testing.T) {
	collector := tracetest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	_, _, _, events := story(t)
	if n := collector.Requests(); len(events) != 5 || n != 0 {
		t.Errorf("%d events and %d requests to the collector, want 5 and none", len(events), n)
	}
}

func TestVerdictsReceivedTime(t *testing.T) {
	tracetest.New(t)
	server := bustest.Server(t, embed.Options{})
	watcher, actuator := oneProcess(t, server), oneProcess(t, server)
	bustest.SetUp(t, watcher.Bus, bus.Setup{Strategies: []string{"Taints"}})
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	verdict := made(t, "actuator", schemas.Verdict{
		Outcome: schemas.Deferred, Reason: schemas.ReasonThrottled, Strategy: "Taints",
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "api-0"}},
	}, schemas.Event{})
	if _, err := actuator.Publish(ctx, verdict); err != nil {
		t.Fatal(err)
	}
	var read schemas.Event
	err := watcher.FollowVerdicts(ctx, time.Unix(0, 0), func(e schemas.Event) {
		read = e
		cancel()
	})
	if err != nil || read.ID != verdict.ID || !read.Taken.After(verdict.Time) {
		t.Errorf("got event %s, taken at %v, error %v; want %s, taken after %v", read.ID, read.Taken, err, verdict.ID, verdict.Time)
	}
}
