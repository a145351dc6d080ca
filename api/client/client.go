package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

const (
	// answerWithin limits the wait for the first byte of an answer. A simulation takes at most half a minute.
	answerWithin = 45 * time.Second
	// mostBytes bounds an answer: the state of 5,000 nodes with its deferred pods is below it.
	mostBytes = 256 << 20
)

// LocalPort is the default port of the loopback address in the pod.
const LocalPort = 8644

// Config says where the API is.
type Config struct {
	// Server is the URL of the API, such as https://rehome.example:8645. A path before /v1 is kept.
	Server string
	// TokenFile has the bearer token. It is read for each request, because tokens rotate. Empty: no token is sent.
	TokenFile string
	// CAFile has the trusted certificate authorities. Empty: the authorities of the system.
	CAFile string
	// Dial replaces the dialer of the network, for example with [PodDialer.Dial].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Notes receives what a user should know and is no error: a connection that was lost, and events that were missed. nil: nothing.
	Notes func(string)
}

// Client calls the API. Use [New] to make one. It is safe for concurrent use.
type Client struct {
	base   *url.URL
	config Config
	http   *http.Client
}

// New returns a client. It does not connect.
func New(c Config) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(c.Server, "/"))
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, fmt.Errorf("server: want a URL such as https://rehome.example:8645, got %q", c.Server)
	}
	if base.Scheme == "http" && c.TokenFile != "" && !settings.IsLoopback(base.Hostname()) {
		return nil, fmt.Errorf("server: want https with a token, got %q", c.Server)
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities of the server: %w", err)
		}
		if trust.RootCAs = x509.NewCertPool(); !trust.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificate authorities of the server: %s: want certificates in PEM", c.CAFile)
		}
	}
	if c.Notes == nil {
		c.Notes = func(string) {}
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: answerWithin,
	}
	if c.Dial != nil {
		transport.DialContext, transport.Proxy = c.Dial, nil
	}
	return &Client{base: base, config: c, http: &http.Client{
		Transport: transport,
		// The token is for this server only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// State is the answer of GET /v1/state.
type State = api.State

// NodeRow is a node of a [State].
type NodeRow = feed.NodeRow

// State reads what Rehome does now, and the nodes that the user may see.
func (c *Client) State(ctx context.Context, state *State) error {
	return c.get(ctx, "v1/state", nil, state)
}

// ExplainPod reads what is known about a pod. The zero time means all of its history.
func (c *Client) ExplainPod(ctx context.Context, pod types.NamespacedName, since time.Time) (x explain.Explanation, err error) {
	query := url.Values{}
	if !since.IsZero() {
		query.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	err = c.get(ctx, path("v1/pods", pod.Namespace, pod.Name), query, &x)
	return x, err
}

// ExplainNode reads what keeps pods on a node.
func (c *Client) ExplainNode(ctx context.Context, node string) (x explain.NodeExplanation, err error) {
	err = c.get(ctx, path("v1/nodes", node), nil, &x)
	return x, err
}

// ExplainWorkload reads where the pods of a workload could go, and the limits that apply to them.
func (c *Client) ExplainWorkload(
	ctx context.Context, kind string, workload types.NamespacedName,
) (x explain.WorkloadExplanation, err error) {
	err = c.get(ctx, path("v1/workloads", kind, workload.Namespace, workload.Name), nil, &x)
	return x, err
}

// Send sends the event of a request. The receipt is the zero Event if no role has answered within some seconds. A rejected
// request has a receipt and no error.
func (c *Client) Send(ctx context.Context, request schemas.Event) (receipt schemas.Event, err error) {
	body, err := cloudevent.WriteStructured(request)
	if err != nil {
		return receipt, err
	}
	header := http.Header{"Content-Type": {cloudevent.StructuredJSON}}
	r, err := c.open(ctx, http.MethodPost, "v1/requests", nil, header, body)
	if err != nil {
		return receipt, err
	}
	defer func() { _ = r.Body.Close() }()
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case media == cloudevent.StructuredJSON:
		document, err := io.ReadAll(io.LimitReader(r.Body, mostBytes))
		if err != nil {
			return receipt, fmt.Errorf("receipt of %s: %w", c.base.Host, err)
		}
		return cloudevent.ReadStructured(document)
	case r.StatusCode >= 400:
		return receipt, c.failed(problemOf(r))
	}
	return receipt, nil
}

// path joins words that may contain any character.
func path(first string, words ...string) string {
	for _, w := range words {
		first += "/" + url.PathEscape(w)
	}
	return first
}

func (c *Client) get(ctx context.Context, path string, query url.Values, into any) error {
	r, err := c.do(ctx, path, query, nil)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(r.Body, mostBytes)).Decode(into); err != nil {
		return fmt.Errorf("answer of %s: %w", c.name(), err)
	}
	return nil
}

// do sends a GET request. An answer with an error status becomes an error, which wraps a [Problem].
func (c *Client) do(ctx context.Context, path string, query url.Values, header http.Header) (*http.Response, error) {
	r, err := c.open(ctx, http.MethodGet, path, query, header, nil)
	if err != nil {
		return nil, err
	}
	if r.StatusCode < 200 || r.StatusCode > 299 {
		defer func() { _ = r.Body.Close() }()
		return nil, c.failed(problemOf(r))
	}
	return r, nil
}

func (c *Client) open(
	ctx context.Context, method, path string, query url.Values, header http.Header, body []byte,
) (*http.Response, error) {
	address := c.base.String() + "/" + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, header)
	if c.config.TokenFile != "" {
		token, err := os.ReadFile(c.config.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("token for %s: %w", c.name(), err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	r, err := c.http.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name(), err)
	}
	return r, nil
}

func (c *Client) failed(err error) error { return fmt.Errorf("%s: %w", c.name(), err) }

// name is what errors call the server.
func (c *Client) name() string {
	if c.config.Dial != nil {
		return "the API of Rehome"
	}
	return "the API at " + c.base.Host
}
