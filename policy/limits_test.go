package policy

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestLimitsAndMetrics(t *testing.T) {
	number := func(n uint) *uint { return &n }
	for _, c := range []struct {
		name, text string
		want       Policy
	}{
		{"a file that says nothing limits moves in flight", "", Policy{}},
		{"each limit is its own, and 0 is one",
			"maxNoOfPodsToEvictPerNode: 0\nmaxNoOfPodsToEvictPerNamespace: 1\nmaxNoOfPodsToEvictTotal: 2",
			Policy{Limits: Limits{PerNode: number(0), PerNamespace: number(1), Total: number(2)}}},
		{"the window can be set", "maxNoOfPodsToEvictTotal: 2\nlimits: {window: 1h}",
			Policy{Limits: Limits{Total: number(2), Window: time.Hour}}},
		{"moves in flight are limited one by one, and 0 is a limit",
			"limits: {inFlight: {perNode: 10, perNamespace: 0, perWorkload: 1, total: 50}}",
			Policy{Limits: Limits{InFlight: InFlight{
				PerNode: number(10), PerNamespace: number(0), PerWorkload: number(1), Total: number(50)}}}},
		{"and not what the file does not say", "limits: {inFlight: {perNode: 1}, window: null, unavailable: null, pause: null}",
			Policy{Limits: Limits{InFlight: InFlight{PerNode: number(1)}}}},
		{"how many may be unavailable is a number", "limits: {unavailable: 0}",
			Policy{Limits: Limits{Unavailable: new(intstr.FromInt32(0))}}},
		{"or a share", "limits: {unavailable: 100%}", Policy{Limits: Limits{Unavailable: new(intstr.FromString("100%"))}}},
		{"which is the same with zeros in front", "limits: {unavailable: 00%}",
			Policy{Limits: Limits{Unavailable: new(intstr.FromString("0%"))}}},
		{"a pause can be set", "limits: {pause: 24h}", Policy{Limits: Limits{Pause: 24 * time.Hour}}},
		{"failures can be told", "evictionFailureEventNotification: true", Policy{FailureEvents: true}},
		{"the older way to ask for the metrics API", "metricsCollector: {enabled: true}", Policy{Metrics: Metrics{{Source: LoadKubernetes}}}},
		{"the newer way to ask for the metrics API", "metricsProviders: [{source: KubernetesMetrics}]",
			Policy{Metrics: Metrics{{Source: LoadKubernetes}}}},
		{"Prometheus, with the token of the service account", "metricsProviders: [{source: Prometheus, prometheus: {url: http://p}}]",
			Policy{Metrics: Metrics{{Source: LoadPrometheus, Prometheus: &Prometheus{URL: "http://p"}}}}},
		{"Prometheus, with the token in a Secret",
			"metricsProviders: [{source: Prometheus, prometheus: {url: http://p, authToken: {secretReference: {namespace: a, name: b}}}}]",
			Policy{Metrics: Metrics{{Source: LoadPrometheus, Prometheus: &Prometheus{
				URL: "http://p", AuthToken: &AuthToken{&SecretRef{"a", "b"}}}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Rate, c.want.CircuitBreakers, c.want.Deltas = DefaultRate(), DefaultCircuitBreakers(), DeltasNeeded
			in := &c.want.Limits.InFlight
			in.PerNode, in.PerNamespace = cmp.Or(in.PerNode, number(50)), cmp.Or(in.PerNamespace, number(50))
			in.Total = cmp.Or(in.Total, number(100))
			if got := parse(t, start+c.text); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestInFlight(t *testing.T) {
	if got := parse(t, start+"limits: {inFlight: {total: null, perNode: null, perNamespace: null}}").Limits; got != (Limits{}) {
		t.Errorf("null: got %+v, want no limit", got)
	}
}

func TestWindow(t *testing.T) {
	if got := (Limits{}).Over(); got != 5*time.Minute {
		t.Errorf("got %v, want 5m", got)
	}
	if got := (Limits{Window: time.Hour}).Over(); got != time.Hour {
		t.Errorf("got %v, want 1h", got)
	}
}

func TestMaxUnavailable(t *testing.T) {
	wanted := []int{0, 1, 2, 3, 4, 10, 100}
	for _, c := range []struct {
		name   string
		limits Limits
		want   []int
	}{
		{"a quarter by default, rounded down, and always one", Limits{}, []int{1, 1, 1, 1, 1, 2, 25}},
		{"none, as a number", Limits{Unavailable: new(intstr.FromInt32(0))}, []int{0, 0, 0, 0, 0, 0, 0}},
		{"none, as a share", Limits{Unavailable: new(intstr.FromString("0%"))}, []int{0, 0, 0, 0, 0, 0, 0}},
		{"a number, whatever the workload wants", Limits{Unavailable: new(intstr.FromInt32(3))}, []int{3, 3, 3, 3, 3, 3, 3}},
		{"the smallest share is one pod", Limits{Unavailable: new(intstr.FromString("1%"))}, []int{1, 1, 1, 1, 1, 1, 1}},
		{"a half", Limits{Unavailable: new(intstr.FromString("50%"))}, []int{1, 1, 1, 1, 2, 5, 50}},
		{"nearly all", Limits{Unavailable: new(intstr.FromString("99%"))}, []int{1, 1, 1, 2, 3, 9, 99}},
		{"all", Limits{Unavailable: new(intstr.FromString("100%"))}, []int{1, 1, 2, 3, 4, 10, 100}},
		{"an invalid value allows none", Limits{Unavailable: new(intstr.FromString("many"))}, []int{0, 0, 0, 0, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []int
			for _, n := range wanted {
				got = append(got, c.limits.MayBeUnavailable(n))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("of %d pods\ngot  %d\nwant %d", wanted, got, c.want)
			}
		})
	}
}

// TestDefaultLimits compares the limits of a file that sets none with docs/security.md.
func TestDefaultLimits(t *testing.T) {
	p := parse(t, start)
	if want := (Rate{EvictionsPerSecond: 10, Burst: 10}); p.Rate != want {
		t.Errorf("rate: got %+v, want %+v", p.Rate, want)
	}
	want := InFlight{PerNode: new(uint(50)), PerNamespace: new(uint(50)), Total: new(uint(100))}
	if got := p.Limits.InFlight; !reflect.DeepEqual(got, want) {
		t.Errorf("in flight: got %+v, want %+v", got, want)
	}
	if got := p.Limits.MayBeUnavailable(100); got != 25 {
		t.Errorf("unavailable: got %d of 100 pods, want 25", got)
	}
}
