package policy

import (
	"reflect"
	"testing"
	"time"
)

func TestLimitsAndMetricsAreRead(t *testing.T) {
	number := func(n uint) *uint { return &n }
	for _, c := range []struct {
		name, text string
		want       Policy
	}{
		{"a file that says nothing limits nothing", "", Policy{}},
		{"each limit is its own, and 0 is one",
			"maxNoOfPodsToEvictPerNode: 0\nmaxNoOfPodsToEvictPerNamespace: 1\nmaxNoOfPodsToEvictTotal: 2",
			Policy{Limits: Limits{PerNode: number(0), PerNamespace: number(1), Total: number(2)}}},
		{"the window can be set", "maxNoOfPodsToEvictTotal: 2\nlimits: {window: 1h}",
			Policy{Limits: Limits{Total: number(2), Window: time.Hour}}},
		{"failures can be told", "evictionFailureEventNotification: true", Policy{FailureEvents: true}},
		{"the older way to ask for the metrics API", "metricsCollector: {enabled: true}", Policy{Metrics: Metrics{Kubernetes: true}}},
		{"the newer way to ask for the metrics API", "metricsProviders: [{source: KubernetesMetrics}]",
			Policy{Metrics: Metrics{Kubernetes: true}}},
		{"Prometheus, with the token of the service account", "metricsProviders: [{source: Prometheus, prometheus: {url: http://p}}]",
			Policy{Metrics: Metrics{Prometheus: &Prometheus{URL: "http://p"}}}},
		{"Prometheus, with the token in a Secret",
			"metricsProviders: [{source: Prometheus, prometheus: {url: http://p, authToken: {secretReference: {namespace: a, name: b}}}}]",
			Policy{Metrics: Metrics{Prometheus: &Prometheus{URL: "http://p", TokenSecret: &SecretRef{"a", "b"}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Rate, c.want.Deltas = DefaultRate(), DeltasNeeded
			if got := parse(t, start+c.text); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestTheWindowOfLimitsIsFiveMinutesUnlessTheFileSaysElse(t *testing.T) {
	if got := (Limits{}).Over(); got != 5*time.Minute {
		t.Errorf("got %v, want 5m", got)
	}
	if got := (Limits{Window: time.Hour}).Over(); got != time.Hour {
		t.Errorf("got %v, want 1h", got)
	}
}
