package policy

import (
	"fmt"
	"net/url"
	"slices"
)

// Metrics says where real usage can be read. The zero value is nowhere: strategies then go by what pods request.
type Metrics struct {
	// Kubernetes: from the metrics API of the cluster.
	Kubernetes bool
	// Prometheus is the server that queries are put to. nil: none.
	Prometheus *Prometheus
}

// Prometheus is how a Prometheus server is reached.
type Prometheus struct {
	// URL is where its API begins, with the scheme http or https.
	URL string
	// TokenSecret holds the token to log in with, under the key prometheusAuthToken. nil: the token of the service account.
	TokenSecret *SecretRef
}

// SecretRef names a Secret.
type SecretRef struct{ Namespace, Name string }

// The sources that metrics may come from, as a file names them.
const (
	sourceKubernetes = "KubernetesMetrics"
	sourcePrometheus = "Prometheus"
)

// metricsCollector is the older way to ask for sourceKubernetes.
type metricsCollector struct {
	Enabled bool `json:"enabled"`
}

type metricsProvider struct {
	Source     string          `json:"source"`
	Prometheus *filePrometheus `json:"prometheus,omitzero"`
}

type filePrometheus struct {
	URL       string     `json:"url"`
	AuthToken *authToken `json:"authToken,omitzero"`
}

type authToken struct {
	SecretReference *fileSecret `json:"secretReference,omitzero"`
}

type fileSecret struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// metrics is what the file says about metrics; of a file that is wrong, as much as can be used.
func (f file) metrics() Metrics {
	m := Metrics{Kubernetes: f.MetricsCollector.Enabled}
	for _, p := range f.MetricsProviders {
		switch {
		case p.Source == sourceKubernetes:
			m.Kubernetes = true
		case p.Source == sourcePrometheus && p.Prometheus != nil:
			m.Prometheus = &Prometheus{URL: p.Prometheus.URL}
			if t := p.Prometheus.AuthToken; t != nil && t.SecretReference != nil {
				secret := SecretRef(*t.SecretReference)
				m.Prometheus.TokenSecret = &secret
			}
		}
	}
	return m
}

// written is the way back to a file.
func (m Metrics) written() []metricsProvider {
	var all []metricsProvider
	if m.Kubernetes {
		all = append(all, metricsProvider{Source: sourceKubernetes})
	}
	if m.Prometheus != nil {
		p := &filePrometheus{URL: m.Prometheus.URL}
		if m.Prometheus.TokenSecret != nil {
			secret := fileSecret(*m.Prometheus.TokenSecret)
			p.AuthToken = &authToken{&secret}
		}
		all = append(all, metricsProvider{sourcePrometheus, p})
	}
	return all
}

func (f file) validateMetrics() error {
	var found Findings
	var seen []string
	for i, p := range f.MetricsProviders {
		at := "metricsProviders" + Item(i)
		switch {
		case p.Source != "" && slices.Contains(seen, p.Source):
			found.Add(at+".source", p.Source, "is given twice", "keep one")
		case p.Source == sourceKubernetes && f.MetricsCollector.Enabled:
			found.Add(at+".source", p.Source, "cannot be used together with metricsCollector.enabled, which asks for the same",
				"remove metricsCollector")
		}
		seen = append(seen, p.Source)
		found.Join(at, p.validate())
	}
	return found.Err()
}

// measurable reports a strategy that measures load by a source that the file does not have. path is that of its arguments.
func (r *reader) measurable(e Enabled, path string) {
	values, err := e.Values()
	gauged, isGauged := values.(Gauged)
	if err != nil || !isGauged || r.unread(path) || r.unread("metricsProviders") || r.unread("metricsCollector") {
		return
	}
	var wrong FieldError
	switch source := gauged.Load().Source; {
	case source == LoadKubernetes && !r.metrics.Kubernetes:
		wrong.Reason = "needs a metrics provider of source " + sourceKubernetes
		wrong.Right = "add the provider {source: KubernetesMetrics} to metricsProviders"
	case source == LoadPrometheus && r.metrics.Prometheus == nil:
		wrong.Reason = "needs a metrics provider of source " + sourcePrometheus
		wrong.Right = "add the provider {source: Prometheus, prometheus: {url: https://HOST}} to metricsProviders"
	default:
		return
	}
	r.check(path+".metricsUtilization", &wrong)
}

func (p metricsProvider) validate() error {
	var found Findings
	wanted := fmt.Sprintf("want %s or %s", sourceKubernetes, sourcePrometheus)
	switch p.Source {
	case sourceKubernetes:
		if p.Prometheus != nil {
			found.Add("prometheus", nil, "goes only with the source "+sourcePrometheus, "")
		}
	case sourcePrometheus:
		if p.Prometheus == nil {
			found.Add("prometheus", nil, "is missing", "say where the server is, as in prometheus: {url: https://HOST}")
			break
		}
		found.Join("prometheus", p.Prometheus.validate())
	default:
		found.Add("source", given(p.Source), missingOr(p.Source == "", "is not known"), wanted)
	}
	return found.Err()
}

func (p filePrometheus) validate() error {
	const example = "write one such as https://prometheus.monitoring:9090"
	var found Findings
	if u, err := url.Parse(p.URL); p.URL == "" {
		found.Add("url", nil, "is missing", example)
	} else if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		found.Add("url", p.URL, "is not the URL of a server", example)
	}
	switch t := p.AuthToken; {
	case t == nil:
	case t.SecretReference == nil:
		found.Add("authToken.secretReference", nil, "is missing", "name a Secret, or remove authToken")
	default:
		found.Join("authToken.secretReference", t.SecretReference.validate())
	}
	return found.Err()
}

func (s fileSecret) validate() error {
	var found Findings
	if s.Namespace == "" {
		found.Add("namespace", nil, "is missing", "name the namespace of the Secret")
	}
	if s.Name == "" {
		found.Add("name", nil, "is missing", "name the Secret")
	}
	return found.Err()
}
