package trace

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Variables of the OpenTelemetry specification that enable and select the exporter. The SDK reads the others, such as headers,
// certificates, and the length of the queue.
const (
	disabled       = "OTEL_SDK_DISABLED"
	exporter       = "OTEL_TRACES_EXPORTER"
	endpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// wanted reports whether the environment enables tracing: it sets an endpoint and does not disable the SDK. It returns an error
// for settings that this exporter does not support.
func wanted(getenv func(string) string) (bool, error) {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	if strings.EqualFold(get(disabled), "true") || get(exporter) == "none" {
		return false, nil
	}
	if get(endpoint) == "" && get(tracesEndpoint) == "" {
		return false, nil
	}
	var wrong []error
	if e := get(exporter); e != "" && e != "otlp" {
		wrong = append(wrong, fmt.Errorf("%s: want otlp or none, got %q", exporter, e))
	}
	for _, name := range []string{endpoint, tracesEndpoint} {
		if value := get(name); value != "" && !isEndpoint(value) {
			wrong = append(wrong, fmt.Errorf("%s: want a URL such as http://collector:4318, got %q", name, value))
		}
	}
	const spoken = "http/protobuf"
	if p := cmp.Or(get(tracesProtocol), get(protocol), spoken); p != spoken {
		name := protocol
		if get(tracesProtocol) != "" {
			name = tracesProtocol
		}
		wrong = append(wrong, fmt.Errorf("%s: want %s, got %q", name, spoken, p))
	}
	return len(wrong) == 0, errors.Join(wrong...)
}

func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
