package api

import (
	"fmt"
	"testing"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// MeasuredPolicy has a strategy that measures load with a query to a Prometheus server.
func MeasuredPolicy(server, query string) []byte {
	return fmt.Appendf(nil, `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
metricsProviders: [{source: Prometheus, prometheus: {url: %q}}]
profiles:
- name: default
  pluginConfig:
  - name: LowNodeUtilization
    args: {thresholds: {MetricResource: 10}, targetThresholds: {MetricResource: 20}, metricsUtilization: {source: Prometheus, prometheus: {query: %q}}}
  plugins: {balance: {enabled: [LowNodeUtilization]}}
`, server, query)
}

func TestConfined(t *testing.T) {
	measured := func(server, query string) policy.Policy {
		p, err := policy.Parse("policy", MeasuredPolicy(server, query), settings.Strategies())
		expect.Must(t, err)
		return p
	}
	const server = "https://prometheus:9090"
	inForce := measured(server, "instance:cpu")
	for name, c := range map[string]struct {
		asked policy.Policy
		want  string
	}{
		"its server and query": {measured(server, "instance:cpu"), ""},
		"nothing is measured":  {policy.Policy{}, ""},
		"another server": {measured("https://elsewhere", "instance:cpu"),
			`metricsProviders: the Prometheus server "https://elsewhere" is not the one of the policy in force; use its metricsProviders`},
		"another query": {measured(server, "secrets"),
			`metricsUtilization.prometheus.query: want a query of the policy in force, got "secrets"`},
		"a scheduler profile": {policy.Policy{Scheduler: policy.Scheduler{Profile: "/etc/passwd"}},
			`scheduler.profile: want LeastAllocated, MostAllocated, or the profile of the policy in force, got "/etc/passwd"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := confined(c.asked, inForce); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
