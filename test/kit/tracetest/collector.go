// Package tracetest receives spans over HTTP in tests, like a collector.
package tracetest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a received span.
type Span struct {
	// Trace, ID, and Parent are hexadecimal. Parent is empty for the root of a trace.
	Trace, ID, Parent string
	Name              string
	Began, Ended      time.Time
	// Attributes and Resource are by name. Numbers and booleans are text.
	Attributes, Resource map[string]string
	// Failed is the message of a span with the status error.
	Failed string
}

// Collector receives spans over OTLP/HTTP. It is safe for concurrent use.
type Collector struct {
	// URL is the address of the collector.
	URL string

	mu       sync.Mutex
	spans    []Span
	requests int
}

// New starts a collector on loopback until the end of the test, and sets the environment of the test to it.
func New(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.URL = server.URL
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	return c
}

// Spans returns the received spans in order.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Requests returns the number of received requests.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "this is not /v1/traces with protobuf", http.StatusBadRequest)
		return
	}
	for _, resource := range sent.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, read(s, resource.GetResource().GetAttributes()))
			}
		}
	}
}

func read(s *otlp.Span, resource []*common.KeyValue) Span {
	span := Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()),
		Parent: hex.EncodeToString(s.GetParentSpanId()), Name: s.GetName(),
		Began: timeOf(s.GetStartTimeUnixNano()), Ended: timeOf(s.GetEndTimeUnixNano()),
		Attributes: texts(s.GetAttributes()), Resource: texts(resource),
	}
	if s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR {
		span.Failed = s.GetStatus().GetMessage()
	}
	return span
}

func timeOf(nanoseconds uint64) time.Time { return time.Unix(0, int64(nanoseconds)).UTC() }

func texts(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		default:
			all[a.GetKey()] = a.GetValue().String()
		}
	}
	return all
}
