package policy

import (
	"net/url"
	"slices"
)

// Metrics lists the sources of real usage. Without providers strategies use the requests of pods.
type Metrics []MetricsProvider

// MetricsProvider is one source of real usage.
type MetricsProvider struct {
	// The source of node load.
	Source LoadSource `json:"source" enum:"KubernetesMetrics,Prometheus" required:"true"`
	// The server; only with the source Prometheus.
	Prometheus *Prometheus `json:"prometheus"`
}

// Prometheus is the access to a Prometheus server.
type Prometheus struct {
	// The address of Prometheus, with the scheme http or https.
	URL string `json:"url" required:"write one such as https://prometheus.monitoring:9090"`
	// The bearer token. Without it, Rehome uses the token of its service account.
	AuthToken *AuthToken `json:"authToken"`
}

// AuthToken names a Secret that holds a token under the key prometheusAuthToken.
type AuthToken struct {
	// The Secret with the token.
	SecretReference *SecretRef `json:"secretReference" required:"name a Secret, or remove authToken"`
}

// SecretRef names a Secret.
type SecretRef struct {
	// The namespace of the Secret with the token, under the key `prometheusAuthToken`.
	Namespace string `json:"namespace" required:"name the namespace of the Secret"`
	// The name of the Secret.
	Name string `json:"name" required:"name the Secret"`
}

// metricsCollector is the older form of [LoadKubernetes].
type metricsCollector struct {
	// The older way to name the provider KubernetesMetrics.
	Enabled bool `json:"enabled"`
}

// Kubernetes reports whether the metrics API of the cluster is a source.
func (m Metrics) Kubernetes() bool {
	_, is := m.provider(LoadKubernetes)
	return is
}

// Prometheus returns the server for queries, or nil.
func (m Metrics) Prometheus() *Prometheus {
	p, _ := m.provider(LoadPrometheus)
	return p.Prometheus
}

// TokenSecret returns the Secret with the token. nil means the token of the service account.
func (p Prometheus) TokenSecret() *SecretRef {
	if p.AuthToken == nil {
		return nil
	}
	return p.AuthToken.SecretReference
}

func (m Metrics) provider(s LoadSource) (MetricsProvider, bool) {
	return first(m, func(p MetricsProvider) bool { return p.Source == s })
}

// Validate checks the values; each error is a *[FieldError].
func (m Metrics) Validate() error {
	var found Findings
	for i, p := range m {
		if slices.ContainsFunc(m[:i], func(o MetricsProvider) bool { return o.Source == p.Source }) && p.Source != "" {
			found.Add(Item(i)+".source", p.Source, "is given twice", "keep one")
		}
	}
	return found.Err()
}

// Validate checks the values; each error is a *[FieldError].
func (p MetricsProvider) Validate() error {
	switch {
	case p.Source == LoadKubernetes && p.Prometheus != nil:
		return &FieldError{Field: "prometheus", Reason: "goes only with the source " + string(LoadPrometheus)}
	case p.Source == LoadPrometheus && p.Prometheus == nil:
		return &FieldError{Field: "prometheus", Reason: "is missing",
			Right: "add the server, as in prometheus: {url: https://HOST}"}
	}
	return nil
}

// Validate checks the values; each error is a *[FieldError].
func (p Prometheus) Validate() error {
	if u, err := url.Parse(p.URL); p.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return &FieldError{Field: "url", Value: p.URL, Reason: "is not the URL of a server",
			Right: "write one such as https://prometheus.monitoring:9090"}
	}
	return nil
}

// needsPrometheus returns the error of a setting that measures nodes by a query if the file has no server for it.
func needsPrometheus(value any) *FieldError {
	return &FieldError{Value: value, Reason: "needs a metrics provider of source Prometheus",
		Right: "add the provider {source: Prometheus, prometheus: {url: https://HOST}} to metricsProviders"}
}

// measurable reports a strategy that measures load by a source that the file does not have. path is the path of its
// arguments.
func (r *reader) measurable(e Enabled, path string) {
	values, err := e.Values()
	gauged, isGauged := values.(Gauged)
	if err != nil || !isGauged || r.Unread(path) || r.Unread("metricsProviders") || r.Unread("metricsCollector") {
		return
	}
	switch source := gauged.Load().Source; {
	case source == LoadKubernetes && !r.metrics.Kubernetes():
		r.wrong(path+".metricsUtilization", nil, "needs a metrics provider of source KubernetesMetrics",
			"add the provider {source: KubernetesMetrics} to metricsProviders")
	case source == LoadPrometheus && r.metrics.Prometheus() == nil:
		r.check(path+".metricsUtilization", needsPrometheus(nil))
	}
}
