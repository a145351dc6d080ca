package trace_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/schematest"
	"github.com/rehome-dev/rehome/test/kit/tracetest"
	"github.com/rehome-dev/rehome/trace"
)

// exporter requires that the environment enables tracing.
func exporter(t *testing.T) (*trace.Exporter, *program.Log) {
	t.Helper()
	log := &program.Log{}
	x, err := trace.New("v1.2.3", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil || x == nil {
		t.Fatalf("got exporter %v, error %v", x, err)
	}
	t.Cleanup(x.Close)
	return x, log
}

// at returns a time in the past.
func at(ms int) time.Time {
	return time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

func emit(t *testing.T, source string, p schemas.Payload, now time.Time, cause schemas.Event) schemas.Event {
	t.Helper()
	return schematest.Event(t, "/clusters/test/"+source, p, now, cause)
}

// sent returns the event as another process receives it at this time.
func sent(t *testing.T, e schemas.Event, taken time.Time) schemas.Event {
	t.Helper()
	document, err := cloudevent.WriteStructured(e)
	expect.Must(t, err)
	read, err := schematest.Parse(document)
	expect.Must(t, err)
	read.Taken = taken
	return read
}

// chain returns a causal chain over three processes, from a taint to the replacement.
func chain(t *testing.T) []schemas.Event {
	t.Helper()
	pod := schemas.PodRef{Namespace: "web", Name: "api-0", UID: "u"}
	intent := schemas.Intent{ID: "i", Pod: pod, Node: "n1", Reason: "does not tolerate it", Expires: at(600_000)}
	scope := schemas.NodeScope{ScopeHead: schemas.ScopeHead{
		Kind: schemas.NodeKind, Key: "n1", Profile: "my profile", Strategy: "Taints", Now: at(12), Since: at(0),
		Causes: []schemas.Cause{{Kind: schemas.CauseResync, Time: at(0)}},
	}}
	verdict := schemas.Verdict{
		Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Profile: "my profile", Strategy: "Taints",
		Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"}, Intent: intent, Method: schemas.MethodEviction,
	}
	settled := verdict
	settled.Outcome, settled.Reason = schemas.Settled, schemas.ReasonReplaced
	settled.Settlement = &schemas.Settlement{Node: "n2", Seconds: 3}

	delta := emit(t, "watcher", schemas.Delta{
		Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "n1"},
	}, at(0), schemas.Event{})
	asked := emit(t, "watcher", scope, at(12), delta)
	answer := emit(t, "functions", schemas.Intents{
		Profile: "my profile", Strategy: "Taints", Scope: verdict.Scope, Intents: []schemas.Intent{intent},
	}, at(22), sent(t, asked, at(20)))
	begun := emit(t, "actuator", verdict, at(130), sent(t, answer, at(30)))
	return []schemas.Event{delta, asked, answer, begun, emit(t, "actuator", settled, at(3130), begun)}
}

// own returns the IDs in the traceparent of an event.
func own(e schemas.Event) (traceID, span string) { return e.TraceParent[3:35], e.TraceParent[36:52] }

func TestChainOfThreeProcesses(t *testing.T) {
	collector := tracetest.New(t)
	events := chain(t)
	before := time.Now()
	for _, part := range [][]schemas.Event{events[:2], events[2:3], events[3:]} { // one process each
		x, _ := exporter(t)
		x.Emitted(part...)
		x.Close()
	}
	got := map[string]tracetest.Span{}
	for _, s := range collector.Spans() {
		if s.Ended.Before(before) || s.Ended.After(time.Now()) {
			t.Errorf("%s ended at %v, want when the event was stored, from %v on", s.Name, s.Ended, before)
		}
		s.Ended, s.Resource = time.Time{}, nil
		got[s.ID] = s
	}
	base := func(e schemas.Event, more ...string) map[string]string {
		all := map[string]string{
			"cloudevents.event_id": e.ID, "cloudevents.event_source": e.Source, "cloudevents.event_type": e.Type,
			"cloudevents.event_subject": e.Subject,
		}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	want := map[string]tracetest.Span{}
	add := func(e schemas.Event, parent, name string, began time.Time, more ...string) string {
		traceID, id := own(e)
		want[id] = tracetest.Span{Trace: traceID, ID: id, Parent: parent, Name: name, Began: began, Attributes: base(e, more...)}
		return id
	}
	delta := add(events[0], "", "dev.rehome.delta.v1 node", at(0), "k8s.node.name", "n1")
	scope := add(events[1], delta, "dev.rehome.scope.v1 node", at(0), "k8s.node.name", "n1", "rehome.strategy", "Taints")
	answer := add(events[2], scope, "dev.rehome.intents.v1 node", at(20), "k8s.node.name", "n1", "rehome.strategy", "Taints")
	pod := []string{
		"k8s.namespace.name", "web", "k8s.pod.name", "api-0", "k8s.node.name", "n1", "rehome.strategy", "Taints",
		"rehome.method", "eviction",
	}
	verdict := add(events[3], answer, "dev.rehome.verdict.v1 pod", at(30),
		append(pod, "rehome.outcome", "evicted", "rehome.reason", "EvictionAccepted")...)
	add(events[4], verdict, "dev.rehome.verdict.v1 pod", at(130),
		append(pod, "rehome.outcome", "settled", "rehome.reason", "Replaced")...)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func TestSpanAttributes(t *testing.T) {
	collector := tracetest.New(t)
	x, _ := exporter(t)
	intent := schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "api-0"}, Node: "n1"}
	want := map[string]tracetest.Span{}
	for _, c := range []struct {
		payload schemas.Payload
		name    string
		failed  string
		more    map[string]string
	}{
		{
			schemas.Delta{Kind: schemas.PodDeleted, Object: schemas.ObjectRef{Kind: "Pod", Namespace: "web", Name: "api-0"}, Node: "n1"},
			"dev.rehome.delta.v1 pod", "",
			map[string]string{"k8s.namespace.name": "web", "k8s.pod.name": "api-0", "k8s.node.name": "n1"},
		},
		{
			schemas.PodScope{ScopeHead: schemas.ScopeHead{Kind: schemas.PodKind, Key: "web/api.0", Strategy: "my strategy"}},
			"dev.rehome.scope.v1 pod", "",
			map[string]string{"k8s.namespace.name": "web", "k8s.pod.name": "api.0", "rehome.strategy": "my strategy"},
		},
		{
			schemas.WorkloadScope{ScopeHead: schemas.ScopeHead{Kind: schemas.WorkloadKind, Key: "web/Deployment/api", Strategy: "S"}},
			"dev.rehome.scope.v1 workload", "", map[string]string{"rehome.strategy": "S"},
		},
		{
			schemas.Verdict{
				Outcome: schemas.Failed, Reason: schemas.ReasonForbidden, Message: "not allowed", Strategy: "S", Intent: intent, DryRun: true,
			},
			"dev.rehome.verdict.v1 pod", "not allowed",
			map[string]string{
				"k8s.namespace.name": "web", "k8s.pod.name": "api-0", "k8s.node.name": "n1", "rehome.strategy": "S",
				"rehome.outcome": "failed", "rehome.reason": "Forbidden", "rehome.dry_run": "bool_value:true",
			},
		},
	} {
		e := emit(t, "watcher", c.payload, at(0), schemas.Event{})
		traceID, id := own(e)
		c.more["cloudevents.event_id"], c.more["cloudevents.event_source"] = e.ID, e.Source
		c.more["cloudevents.event_type"], c.more["cloudevents.event_subject"] = e.Type, e.Subject
		want[id] = tracetest.Span{Trace: traceID, ID: id, Name: c.name, Began: at(0), Attributes: c.more, Failed: c.failed}
		x.Emitted(e)
	}
	x.Close()
	got := map[string]tracetest.Span{}
	for _, s := range collector.Spans() {
		s.Ended, s.Resource = time.Time{}, nil
		got[s.ID] = s
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func TestRootSpans(t *testing.T) {
	collector := tracetest.New(t)
	x, _ := exporter(t)
	delta := schemas.Delta{Kind: schemas.NodeAdded, Object: schemas.ObjectRef{Kind: "Node", Name: "n1"}}
	first := emit(t, "watcher", delta, at(0), schemas.Event{})
	for name, parent := range map[string]string{
		"another trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "malformed": "00-1-2-01", "none": "",
	} {
		e := emit(t, name, delta, at(1), first)
		e.Parent = parent
		x.Emitted(e)
	}
	noTrace := first
	noTrace.TraceParent = "00-00000000000000000000000000000000-0000000000000000-01"
	x.Emitted(noTrace)
	x.Close()
	var parents []string
	for _, s := range collector.Spans() {
		parents = append(parents, s.Parent)
	}
	if want := []string{"", "", ""}; !reflect.DeepEqual(parents, want) {
		t.Errorf("parents are %q, want %q: three roots, and nothing for an event without a trace", parents, want)
	}
}

func TestFutureStart(t *testing.T) {
	collector := tracetest.New(t)
	x, _ := exporter(t)
	x.Emitted(emit(t, "watcher", schemas.Delta{Object: schemas.ObjectRef{Kind: "Node", Name: "n1"}},
		time.Now().Add(time.Hour), schemas.Event{}))
	x.Close()
	if spans := collector.Spans(); len(spans) != 1 || !spans[0].Began.Equal(spans[0].Ended) {
		t.Errorf("got %v, want one span without duration", spans)
	}
}

func TestServiceAttributes(t *testing.T) {
	for name, c := range map[string]struct {
		environment map[string]string
		want        map[string]string
	}{
		"defaults": {nil, map[string]string{"service.name": "rehome", "service.version": "v1.2.3"}},
		"another name": {
			map[string]string{"OTEL_SERVICE_NAME": "mover"}, map[string]string{"service.name": "mover", "service.version": "v1.2.3"},
		},
		"attributes": {
			map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=prod,service.version=2"},
			map[string]string{"service.name": "rehome", "service.version": "2", "k8s.cluster.name": "prod"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			collector := tracetest.New(t)
			for key, value := range c.environment {
				t.Setenv(key, value)
			}
			x, _ := exporter(t)
			x.Emitted(chain(t)[0])
			x.Close()
			spans := collector.Spans()
			if len(spans) != 1 {
				t.Fatalf("got %v, want one span", spans)
			}
			got := spans[0].Resource
			for key := range got {
				if strings.HasPrefix(key, "telemetry.sdk.") {
					delete(got, key)
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestTracingDisabled(t *testing.T) {
	for name, environment := range map[string]map[string]string{
		"no endpoint":        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
		"SDK disabled":       {"OTEL_SDK_DISABLED": "true"},
		"no traces exporter": {"OTEL_TRACES_EXPORTER": "none"},
	} {
		t.Run(name, func(t *testing.T) {
			collector := tracetest.New(t)
			for key, value := range environment {
				t.Setenv(key, value)
			}
			x, err := trace.New("v1", slog.New(slog.DiscardHandler))
			if x != nil || err != nil {
				t.Fatalf("got exporter %v, error %v, want neither", x, err)
			}
			x.Emitted(chain(t)...) // a nil exporter is valid
			x.Close()
			if n := collector.Requests(); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
		})
	}
}

func TestEnvironmentErrors(t *testing.T) {
	for name, c := range map[string]struct {
		environment map[string]string
		want        string
	}{
		"endpoint without scheme": {
			map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
			`OTEL_EXPORTER_OTLP_ENDPOINT: want a URL such as http://collector:4318, got "collector:4318"`,
		},
		"traces endpoint without host": {
			map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://"},
			`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: want a URL such as http://collector:4318, got "http://"`,
		},
		"unsupported protocol": {
			map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, `OTEL_EXPORTER_OTLP_PROTOCOL: want http/protobuf, got "grpc"`,
		},
		"unsupported exporter": {
			map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, `OTEL_TRACES_EXPORTER: want otlp or none, got "zipkin"`,
		},
		"malformed attributes": {
			map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "prod"}, `OTEL_RESOURCE_ATTRIBUTES: `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tracetest.New(t)
			for key, value := range c.environment {
				t.Setenv(key, value)
			}
			x, err := trace.New("v1", slog.New(slog.DiscardHandler))
			if x != nil || err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got exporter %v, error %v, want one that begins with %s", x, err, c.want)
			}
		})
	}
}

// hanging starts a collector that accepts requests and never answers.
func hanging(t *testing.T) (arrived chan struct{}) {
	t.Helper()
	arrived = make(chan struct{}, 100)
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(end) })
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000") // one hour
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	return arrived
}

func TestHangingCollector(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("exporter", func(t *testing.T) {
		arrived := hanging(t)
		x, log := exporter(t)
		events := chain(t)
		x.Emitted(events...)
		<-arrived        // the queue has no reader from now on
		for range 2000 { // 10000 spans, five times the length of the queue
			x.Emitted(events...)
		}
		began := time.Now()
		x.Close()
		if took := time.Since(began); took < time.Second {
			t.Errorf("Close took %v, want the 2 seconds for the remaining spans", took)
		}
		if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), "traces cannot be sent") {
			t.Errorf("log is\n%swant one line: traces cannot be sent", log)
		}
	})
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

func TestUnavailableCollectorLog(t *testing.T) {
	address := expect.Value(t, program.FreeAddress)
	collector := tracetest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+address)
	x, log := exporter(t)
	says := func(text string) func() bool { return func() bool { return strings.Contains(log.String(), text) } }
	x.Emitted(chain(t)...)
	expect.Eventually(t, "a log line about traces that cannot be sent", says("traces cannot be sent"))
	for range 3 {
		x.Emitted(chain(t)...)
		<-time.After(50 * time.Millisecond) // several more batches
	}

	server := &http.Server{Handler: collector}
	listener, err := net.Listen("tcp", address)
	expect.Must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	expect.Eventually(t, "a log line about traces that are sent again", func() bool {
		x.Emitted(chain(t)...)
		return says("traces are sent again")()
	})
	x.Close()
	if err := errors.Join(server.Close(), ignoreClosed(<-served)); err != nil {
		t.Error(err)
	}
	var levels []string
	for line := range strings.Lines(log.String()) {
		_, level, _ := strings.Cut(line, "level=")
		level, _, _ = strings.Cut(level, " ")
		levels = append(levels, level)
	}
	if want := []string{"WARN", "INFO"}; !reflect.DeepEqual(levels, want) {
		t.Errorf("log is\n%swant one line each, %v", log, want)
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}
