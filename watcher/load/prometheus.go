package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mostBytes bounds an answer: some hundred bytes for each of more nodes than a cluster has.
const mostBytes = 64 << 20

// Prometheus puts one query to a Prometheus server. [NewPrometheus] makes one.
type Prometheus struct {
	api    *url.URL
	client *http.Client
	login  login
	now    func() time.Time
	oddities
}

// NewPrometheus makes the source for a query to the server whose API begins at address. Its certificate must be signed by
// an authority of the system or by that of the cluster that this process runs in. now is the clock of the sampler.
func NewPrometheus(address, query string, token Token, now func() time.Time, log *slog.Logger) (*Prometheus, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("prometheus %q: %w", address, err)
	}
	u = u.JoinPath("api", "v1", "query")
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute}
	if u.Scheme == "https" {
		roots, err := authorities(account + "ca.crt")
		if err != nil {
			return nil, fmt.Errorf("prometheus %s: %w", address, err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		transport.ForceAttemptHTTP2 = true
	}
	return &Prometheus{
		api: u, now: now, login: login{read: token, now: now},
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the token is for this server
		}},
		oddities: oddities{log: log, query: query},
	}, nil
}

// authorities are those of the system and those in the file, if there is one.
func authorities(file string) (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return roots, nil
	case err != nil:
		return nil, err
	case !roots.AppendCertsFromPEM(data):
		return nil, fmt.Errorf("%s: no certificate in it", file)
	}
	return roots, nil
}

// Nodes implements [Source] with [schemas.LoadMetric] in percent, cut off to whole ones as in the peer.
func (p *Prometheus) Nodes(ctx context.Context) (map[string]Sample, error) {
	data, err := p.ask(ctx, p.query)
	if err != nil {
		return nil, fmt.Errorf("query to Prometheus: %w", err)
	}
	series, err := vector(data)
	if err != nil {
		return nil, fmt.Errorf("query to Prometheus: %w", err)
	}
	shares, odd := shares(series)
	p.tell(odd)
	good := p.now().Add(maxAge)
	samples := make(map[string]Sample, len(shares))
	for name, percent := range shares {
		samples[name] = Sample{Used: percents(percent), Good: good}
	}
	return samples, nil
}

// Values puts another query to the server, and returns the values of the samples of its answer, in no order. One goroutine at
// a time may call it. When there is no answer, the error is a [url.Error]; it is another one when there is an answer that says
// no values.
func (p *Prometheus) Values(ctx context.Context, query string) ([]float64, error) {
	data, err := p.ask(ctx, query)
	if err != nil {
		return nil, err
	}
	series, err := vector(data)
	if err != nil {
		return nil, err
	}
	values := make([]float64, 0, len(series))
	for _, s := range series {
		value, err := s.value()
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// Pods implements [Source]: what a pod causes of the result of a query is not known.
func (*Prometheus) Pods(context.Context) (map[types.NamespacedName]corev1.ResourceList, error) {
	return nil, nil
}

// Smooth implements [Source]: a query can smooth by itself.
func (*Prometheus) Smooth() bool { return false }

// Close implements [Source].
func (p *Prometheus) Close() { p.client.CloseIdleConnections() }

// ask returns the answer to the query. A token that the server does not take is read again, and tried once more.
func (p *Prometheus) ask(ctx context.Context, query string) ([]byte, error) {
	data, status, err := p.get(ctx, query)
	if err == nil && (status == http.StatusUnauthorized || status == http.StatusForbidden) {
		p.login.forget()
		data, status, err = p.get(ctx, query)
	}
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("answered %d %s%s", status, http.StatusText(status), complaint(data))
	}
	return data, nil
}

func (p *Prometheus) get(ctx context.Context, query string) (data []byte, status int, err error) {
	u := *p.api
	u.RawQuery = url.Values{"query": {query}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, 0, err
	}
	token, err := p.login.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	data, err = io.ReadAll(io.LimitReader(response.Body, mostBytes+1))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, 0, err
	}
	if len(data) > mostBytes {
		return nil, 0, fmt.Errorf("answered with more than %d bytes", mostBytes)
	}
	return data, response.StatusCode, nil
}

// complaint is what a server says about a query that it refuses; empty if it says nothing.
func complaint(data []byte) string {
	var a answer
	if json.Unmarshal(data, &a) != nil || a.Error == "" {
		return ""
	}
	return ": " + strings.TrimSpace(a.Error)
}
