package monitoring

import (
	"bytes"
	"reflect"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestServiceMonitorRoles(t *testing.T) {
	m := readMonitor(t)
	if m.APIVersion != "monitoring.coreos.com/v1" || m.Kind != "ServiceMonitor" || m.Name != "rehome" || m.Spec.JobLabel != "app.kubernetes.io/name" {
		t.Errorf("got %s %s %s, job by %s", m.APIVersion, m.Kind, m.Name, m.Spec.JobLabel)
	}
	if want := (metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "rehome"}}); !reflect.DeepEqual(m.Spec.Selector, want) {
		t.Errorf("selects %+v, want %+v", m.Spec.Selector, want)
	}
	want := []monitoringv1.Endpoint{{Port: "http", Path: "/metrics", Interval: "30s", ScrapeTimeout: "10s", HonorLabels: true}}
	if !reflect.DeepEqual(m.Spec.Endpoints, want) {
		t.Errorf("got %+v, want %+v", m.Spec.Endpoints, want)
	}
}

// TestInstallPageServiceMonitors: Prometheus sends its token only to parts that check it. A part that does not check the token could
// collect it.
func TestInstallPageServiceMonitors(t *testing.T) {
	documents := bytes.Split(yamlBlock(t, "install.md", "### Over TLS"), []byte("\n---\n"))
	for i, want := range []struct {
		name  string
		parts []string
		token bool
	}{
		{"rehome", []string{"all", "watcher", "actuator", "maintenance", "api"}, true},
		{"rehome-unguarded", []string{"functions", "dispatcher"}, false},
	} {
		t.Run(want.name, func(t *testing.T) {
			if len(documents) != 2 {
				t.Fatalf("the page has %d ServiceMonitors, want 2", len(documents))
			}
			got, plain := manifest[monitoringv1.ServiceMonitor](t, documents[i]), readMonitor(t)
			e := &got.Spec.Endpoints[0]
			if e.Scheme == nil || *e.Scheme != "https" || e.TLSConfig == nil || (e.Authorization != nil) != want.token {
				t.Errorf("got %+v, want https, a TLS configuration, and an authorization: %t", e, want.token)
			}
			e.Scheme, e.HTTPConfigWithProxyAndTLSFiles = nil, plain.Spec.Endpoints[0].HTTPConfigWithProxyAndTLSFiles
			plain.Name = want.name
			plain.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{
				{Key: "app.kubernetes.io/component", Operator: metav1.LabelSelectorOpIn, Values: want.parts},
			}
			if !reflect.DeepEqual(got, plain) {
				t.Errorf("but for TLS: got %+v, want %+v", got, plain)
			}
		})
	}
}

func TestDashboardLabel(t *testing.T) {
	got := manifest[map[string]any](t, read(t, component, "kustomization.yaml"))
	want := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component",
		"resources": []any{"servicemonitor.yaml", "alerts.yaml"},
		"configMapGenerator": []any{map[string]any{
			"name": "rehome-dashboard", "namespace": "rehome", "files": []any{"dashboard.json"},
			"options": map[string]any{"disableNameSuffixHash": true, "labels": map[string]any{
				"app.kubernetes.io/name": "rehome", "app.kubernetes.io/part-of": "rehome", "grafana_dashboard": "1",
			}},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if size := len(read(t, component, "dashboard.json")); size > 1<<20 {
		t.Errorf("the dashboard has %d bytes, more than a ConfigMap holds", size)
	}
}
