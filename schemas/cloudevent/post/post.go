// Package post sends events to a URL in the HTTP binding of CloudEvents. Its errors are the errors of package delivery.
//
// # Status codes
//
//	200 with an event                     the answer
//	200 without a body, 202, other 2xx    accepted without an answer
//	404, 408, 409, 425, 429, 5xx          [delivery.Later]: retry after Retry-After
//	502, 503, 504                         also [delivery.ErrUnreachable]
//	401, 403                              [delivery.ErrUnauthorized]
//	any other status                      [schemas.ErrInvalid]: rejected permanently
//	no connection or no response          [delivery.ErrUnreachable]
//
// The client does not follow redirects, so an event never goes to another server.
//
// # Encoding
//
// Requests are not compressed. A response may be in binary or structured mode, and may be compressed.
package post

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// The defaults of [Config].
const (
	DefaultTimeout = 10 * time.Second
	// DefaultMaxReply is the largest message on the embedded bus.
	DefaultMaxReply    = 8 << 20
	DefaultConnections = 8
)

// idleFor is how long an idle connection is kept: less than most servers and load balancers keep it.
const idleFor = 50 * time.Second

// Mode is the encoding of an event.
type Mode int

const (
	// Binary has one header per attribute, and the data as the body.
	Binary Mode = iota
	// Structured has the whole event as the body.
	Structured
)

// Config configures a [Client].
type Config struct {
	// URL receives the events.
	URL string
	// Name is what errors call the URL. Empty means the URL without its password and its query.
	Name string
	// Mode is the encoding of requests. The zero value is [Binary].
	Mode Mode
	// Timeout limits one post, including the response. 0 means [DefaultTimeout].
	Timeout time.Duration
	// TokenFile has a bearer token. It is read for each request, because tokens rotate. Empty means no token.
	TokenFile string
	// Header is added to each request, except for headers of the event and of TokenFile. Names are in canonical form.
	Header http.Header
	// Extensions replace attributes of each event in both modes. [cloudevent.CheckExtension] must accept their
	// names.
	Extensions map[string]string
	// MaxReply is the largest response with an event, in uncompressed bytes. 0 means [DefaultMaxReply]. A larger event is an
	// error. Responses without an event may be longer.
	MaxReply int64
	// Connections is the number of idle connections to keep. 0 means [DefaultConnections].
	Connections int
	// Authorities are the trusted certificate authorities. nil means the authorities of the system.
	Authorities *x509.CertPool
}

// Client posts events to one URL. It is safe for concurrent use. Use [New] to make one.
type Client struct {
	config Config
	name   string // the URL without secrets
	client *http.Client
}

// New returns a client. It fails if the URL is not an http or https URL. It does not connect.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", withoutURL(err))
	}
	if (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") && c.Name != "" {
		return nil, fmt.Errorf("url of %s: want http://HOST/PATH or https://HOST/PATH", c.Name)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("url %q: want http://HOST/PATH or https://HOST/PATH", withoutSecrets(u))
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxReply = cmp.Or(c.MaxReply, DefaultMaxReply)
	c.Connections = cmp.Or(c.Connections, DefaultConnections)
	trust := &tls.Config{RootCAs: c.Authorities, MinVersion: tls.VersionTLS12}
	return &Client{config: c, name: cmp.Or(c.Name, withoutSecrets(u)), client: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSClientConfig: trust,
			MaxIdleConns: c.Connections, MaxIdleConnsPerHost: c.Connections, IdleConnTimeout: idleFor,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// withoutSecrets returns the URL without its password and its query, which often has a token.
func withoutSecrets(u *url.URL) string {
	shown := *u
	if shown.RawQuery != "" {
		shown.RawQuery = "…"
	}
	return shown.Redacted()
}

// withoutURL returns an error without the URL, which may have secrets.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// Close closes idle connections.
func (c *Client) Close() { c.client.CloseIdleConnections() }

// Send posts e and ignores the body of a successful response. Its errors are listed in the package comment, or come from ctx.
func (c *Client) Send(ctx context.Context, e schemas.Event) error {
	_, err := c.post(ctx, e)
	return err
}

// SendBody posts a document that is not an event, with the content type. Its errors are the errors of [Client.Send].
func (c *Client) SendBody(ctx context.Context, contentType string, body []byte) error {
	_, err := c.postBody(ctx, func(header http.Header) ([]byte, error) {
		header.Set("Content-Type", contentType)
		return body, nil
	})
	return err
}

// Ask posts e and returns the event in the response, if any. Its errors are listed in the package comment, or come from ctx. A
// response that is not an event, or that exceeds MaxReply, is an error that wraps [schemas.ErrInvalid].
func (c *Client) Ask(ctx context.Context, e schemas.Event) (reply schemas.Event, has bool, err error) {
	a, err := c.post(ctx, e)
	if err != nil || a.status != http.StatusOK {
		return schemas.Event{}, false, err
	}
	if reply, has, err = a.event(); err != nil {
		return schemas.Event{}, false, fmt.Errorf("answer of %s: %w", c.name, err)
	}
	return reply, has, nil
}

// post sends e and returns a successful response.
func (c *Client) post(ctx context.Context, e schemas.Event) (answer, error) {
	return c.postBody(ctx, func(header http.Header) ([]byte, error) { return c.write(e, header) })
}

// postBody sends what write returns, with the headers that it sets, and returns a successful response.
func (c *Client) postBody(ctx context.Context, write func(http.Header) ([]byte, error)) (answer, error) {
	within, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	r, err := c.request(within, write)
	if err != nil {
		return answer{}, fmt.Errorf("post to %s: %w", c.name, err)
	}
	a, err := c.do(r)
	if ctx.Err() != nil && err != nil {
		return answer{}, fmt.Errorf("post to %s: %w", c.name, ctx.Err())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", c.config.Timeout)
	}
	if err := verdict(a, err, time.Now()); err != nil {
		return answer{}, fmt.Errorf("post to %s: %w", c.name, err)
	}
	return a, nil
}

// do sends a request and reads the response.
func (c *Client) do(r *http.Request) (answer, error) {
	response, err := c.client.Do(r)
	if err != nil {
		return answer{}, withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }() // the body has been read
	a := answer{status: response.StatusCode, header: response.Header}
	a.body, err = io.ReadAll(io.LimitReader(response.Body, c.config.MaxReply+1))
	if int64(len(a.body)) > c.config.MaxReply {
		a.body, a.beyond = a.body[:c.config.MaxReply], c.config.MaxReply
	}
	return a, err
}

// request makes a request with what write returns.
func (c *Client) request(ctx context.Context, write func(http.Header) ([]byte, error)) (*http.Request, error) {
	header := make(http.Header, 16)
	maps.Copy(header, c.config.Header)
	body, err := write(header)
	if err != nil {
		return nil, err
	}
	if c.config.TokenFile != "" {
		token, err := os.ReadFile(c.config.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("token: %w: %w", delivery.ErrUnauthorized, err)
		}
		header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	// Retries are safe. The nil value is not sent, but allows net/http to retry on a new connection when the server has just
	// closed an idle one.
	header["Idempotency-Key"] = nil
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header
	return r, nil
}

// write sets the headers of e and returns the body.
func (c *Client) write(e schemas.Event, header http.Header) ([]byte, error) {
	if c.config.Mode == Structured {
		header.Set("Content-Type", cloudevent.StructuredJSON)
		document, err := cloudevent.WriteStructured(e)
		if err != nil || len(c.config.Extensions) == 0 {
			return document, err
		}
		return cloudevent.Extend(document, c.config.Extensions)
	}
	err := cloudevent.SetHeaders(e, header)
	for name, value := range c.config.Extensions {
		header.Set(cloudevent.HeaderPrefix+name, cloudevent.HeaderValue(value))
	}
	return e.Data, err
}
