// Package tracetest receives spans in tests, over HTTP as a collector does.
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

// Span is a span as it arrived.
type Span struct {
	// Trace, ID and Parent are in hexadecimal digits. Parent is empty for the root of a trace.
	Trace, ID, Parent string
	Name              string
	Began, Ended      time.Time
	// Attributes and Resource are by name; true and numbers are written as text.
	Attributes, Resource map[string]string
	// Failed is the message of a span whose status is an error.
	Failed string
}

// Collector takes spans over OTLP/HTTP. It may be asked while they arrive.
type Collector struct {
	// URL is where it listens.
	URL string

	mu       sync.Mutex
	spans    []Span
	requests int
}

// New starts a collector on loopback, which ends with the test, and makes the environment of the test say so.
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

// Spans are those that have arrived, in the order in which they did.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Requests is how many requests have arrived, whatever was in them.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// ServeHTTP takes one request of spans.
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
