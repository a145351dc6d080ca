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
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// mostBytes is the largest response: some hundred bytes per node, for more nodes than a cluster can have.
const mostBytes = 64 << 20

// Prometheus sends queries to a Prometheus server. Use [NewPrometheus] to make one. [Prometheus.Values] is safe for concurrent
// use; only one goroutine may call [Prometheus.Nodes].
type Prometheus struct {
	api       *url.URL
	client    *http.Client
	query     string
	now       func() time.Time
	log       *slog.Logger
	reported  map[string]string // errors of the last response, by node
	readToken Token

	mu        sync.Mutex
	token     string
	tokenGood time.Time // the cached token is read again at this time
}

// NewPrometheus returns a source for a query to the server whose API is below address. The system or the cluster of this process
// must trust its certificate. now is the clock of the sampler.
func NewPrometheus(address, query string, token Token, now func() time.Time, log *slog.Logger) (*Prometheus, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("prometheus %q: %w", address, err)
	}
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
		api: u.JoinPath("api", "v1", "query"), query: query, now: now, log: log, readToken: token,
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a redirect must not receive the token
		}},
	}, nil
}

// authorities returns the certificate authorities of the system, and of the file if it exists.
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

// Nodes implements [Source] with [schemas.LoadMetric] in whole percent, rounded down as in kubernetes-sigs/descheduler. It logs
// an invalid value once per node.
func (p *Prometheus) Nodes(ctx context.Context) (map[string]Sample, error) {
	series, err := p.ask(ctx, p.query)
	if err != nil {
		return nil, fmt.Errorf("query to Prometheus: %w", err)
	}
	percentages, wrong := nodePercentages(series)
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		if _, known := p.reported[name]; !known {
			p.log.Warn("the query gives no valid load of a node", "node", name, "gives", wrong[name], "query", p.query)
		}
	}
	p.reported = wrong
	samples := make(map[string]Sample, len(percentages))
	for name, percent := range percentages {
		samples[name] = Sample{Used: percents(percent), Good: p.now().Add(maxAge)}
	}
	return samples, nil
}

func percents(percent int64) corev1.ResourceList {
	return corev1.ResourceList{schemas.LoadMetric: *resource.NewQuantity(percent, resource.DecimalSI)}
}

// nodePercentages returns the percentages by node name, and the errors by node name. Series without a node name have the empty
// name.
func nodePercentages(all []series) (percentages map[string]int64, wrong map[string]string) {
	percentages, wrong = map[string]int64{}, map[string]string{}
	for _, s := range all {
		name := s.Metric["instance"]
		_, twice := percentages[name]
		text, why := s.text()
		value, err := strconv.ParseFloat(text, 64)
		if why == "" && (err != nil || !(value >= 0 && value <= 1)) { // also rejects NaN
			why = fmt.Sprintf("the value %s; want one from 0 to 1", text)
		}
		switch {
		case name == "":
			wrong[""] = "a value without the label instance, which must be the node name"
		case twice || wrong[name] != "":
			wrong[name] = "more than one value"
			delete(percentages, name)
		case why != "":
			wrong[name] = why
		default:
			percentages[name] = int64(value * 100)
		}
	}
	return percentages, wrong
}

// Values sends another query, and returns the values of the response in no particular order. It is safe for concurrent
// use. The error is a [url.Error] if there is no response.
func (p *Prometheus) Values(ctx context.Context, query string) ([]float64, error) {
	series, err := p.ask(ctx, query)
	if err != nil {
		return nil, err
	}
	values := make([]float64, 0, len(series))
	for _, s := range series {
		text, wrong := s.text()
		if wrong != "" {
			return nil, errors.New("the answer has " + wrong)
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("the answer has the value %q, which is not a number", text)
		}
		values = append(values, value)
	}
	return values, nil
}

// Pods implements [Source]. It returns nil, because a query has no usage of pods.
func (*Prometheus) Pods(context.Context) (map[types.NamespacedName]corev1.ResourceList, error) {
	return nil, nil
}

// Smooth implements [Source]. It returns false, because the query can smooth.
func (*Prometheus) Smooth() bool { return false }

// Close implements [Source].
func (p *Prometheus) Close() { p.client.CloseIdleConnections() }

// answer is a response of the Prometheus API.
type answer struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
}

// series is one element of a vector.
type series struct {
	Metric map[string]string `json:"metric"`
	// Value has a timestamp, and the value as a string. A histogram has none.
	Value []json.RawMessage `json:"value"`
}

// text returns the value, or the reason why it is invalid.
func (s series) text() (text, wrong string) {
	if len(s.Value) != 2 {
		return "", "a histogram instead of a value"
	}
	if err := json.Unmarshal(s.Value[1], &text); err != nil {
		return "", "a value that is not a string"
	}
	return text, ""
}

// ask returns the vector of a query. If the server rejects the token, it reads the token again and retries once.
func (p *Prometheus) ask(ctx context.Context, query string) ([]series, error) {
	data, status, err := p.get(ctx, query)
	if err == nil && (status == http.StatusUnauthorized || status == http.StatusForbidden) {
		p.mu.Lock()
		p.tokenGood = time.Time{}
		p.mu.Unlock()
		data, status, err = p.get(ctx, query)
	}
	if err != nil {
		return nil, err
	}
	return vector(data, status)
}

// vector parses a response.
func vector(data []byte, status int) (all []series, err error) {
	var a answer
	err = json.Unmarshal(data, &a)
	switch {
	case status != http.StatusOK:
		return nil, errors.New(strings.TrimSuffix(fmt.Sprintf("answered %d %s: %s", status, http.StatusText(status), a.Error), ": "))
	case err != nil:
	case a.Status == "error":
		return nil, errors.New(a.Error)
	case a.Status != "success":
		err = fmt.Errorf("its status is %q", a.Status)
	case a.Data.Type != "vector":
		return nil, fmt.Errorf("the result is a %s; want a vector with one value per node", a.Data.Type)
	default:
		err = json.Unmarshal(a.Data.Result, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("not an answer of a Prometheus server: %w", err)
	}
	return all, nil
}

// bearer returns the cached token, or reads it if it is too old.
func (p *Prometheus) bearer(ctx context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.now().Before(p.tokenGood) {
		token, err := p.readToken(ctx)
		if err != nil {
			return "", err
		}
		p.token, p.tokenGood = token, p.now().Add(tokenAge)
	}
	return p.token, nil
}

func (p *Prometheus) get(ctx context.Context, query string) (data []byte, status int, err error) {
	token, err := p.bearer(ctx)
	if err != nil {
		return nil, 0, err
	}
	u := *p.api
	u.RawQuery = url.Values{"query": {query}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
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
		return nil, 0, fmt.Errorf("the answer has more than %d bytes", mostBytes)
	}
	return data, response.StatusCode, nil
}
