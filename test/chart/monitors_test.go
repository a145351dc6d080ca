package chart

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// serviceMonitor has the fields of a ServiceMonitor that decide which pods get the token of Prometheus.
type serviceMonitor struct {
	Spec struct {
		Selector  metav1.LabelSelector
		Endpoints []struct{ BearerTokenFile string }
	}
}

// TestServiceMonitorToken: Prometheus sends its token only to parts that check it. A part that does not check the token could
// collect it.
func TestServiceMonitorToken(t *testing.T) {
	t.Parallel()
	type scrape struct {
		parts []string
		token string
	}
	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	guarded := []string{"--set", "metrics.tls=self-signed,metrics.auth=true"}
	distributed := []string{"--set", "mode=distributed,nats.enabled=true,dispatcher.enabled=true,requests.enabled=true,requests.tls=self-signed"}
	for name, c := range map[string]struct {
		args []string
		want map[string]scrape
	}{
		"one_process":         {nil, map[string]scrape{"rehome": {[]string{"all"}, ""}}},
		"one_process_guarded": {guarded, map[string]scrape{"rehome": {[]string{"all"}, token}}},
		"each_role": {distributed, map[string]scrape{
			"rehome": {[]string{"watcher", "actuator", "maintenance", "functions", "dispatcher", "api"}, ""},
		}},
		"each_role_guarded": {append(distributed, guarded...), map[string]scrape{
			"rehome":           {[]string{"watcher", "actuator", "maintenance", "api"}, token},
			"rehome-unguarded": {[]string{"functions", "dispatcher"}, ""},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[string]scrape{}
			for _, o := range rendered(t, "rehome", append(c.args, "--set", "serviceMonitor.enabled=true")...) {
				if o.GetKind() == "ServiceMonitor" {
					m := expect.FromJSON[serviceMonitor](t, expect.ToJSON(t, o))
					got[o.GetName()] = scrape{m.Spec.Selector.MatchExpressions[0].Values, m.Spec.Endpoints[0].BearerTokenFile}
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}
