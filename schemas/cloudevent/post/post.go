// Package post sends events to a URL, after the binding of CloudEvents to HTTP, and says what came of it in errors of
// package delivery.
//
// # What the status means
//
//	200 with an event                     the answer
//	200 without a body, 202, other 2xx    taken; there is no answer
//	404, 408, 409, 425, 429, 5xx          try again: [delivery.Later], after what Retry-After says
//	  of these 502, 503, 504              nobody is there: [delivery.ErrUnreachable], too
//	401, 403                              [delivery.ErrUnauthorized]
//	every other one                       refused for good: [schemas.ErrInvalid]
//	none: no connection, no answer        [delivery.ErrUnreachable]
//
// Redirects are not followed: an event goes where it was sent or nowhere.
//
// # What travels
//
// A body is sent as it is, never compressed. An answer may be in binary or in structured mode, and compressed if it says so.
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
	// DefaultMaxReply is what a message on the embedded bus may have at most.
	DefaultMaxReply    = 8 << 20
	DefaultConnections = 8
)

// idleFor is how long a connection that nobody uses is kept: less than most servers and balancers keep it.
const idleFor = 50 * time.Second

// Mode is how an event is written.
type Mode int

const (
	// Binary is one header for each attribute, and the data as the body.
	Binary Mode = iota
	// Structured is the whole event as the body.
	Structured
)

// Config is what a [Client] is made of.
type Config struct {
	// URL is where events are posted.
	URL string
	// Mode is how. The zero value is [Binary].
	Mode Mode
	// Timeout bounds one post, from the connection to the last byte of the answer. 0: [DefaultTimeout].
	Timeout time.Duration
	// TokenFile holds the bearer token of each request; it is read anew for each, since tokens are replaced. Empty: none.
	TokenFile string
	// Header is added to each request, but for what the event and TokenFile set themselves. Names are in canonical form.
	Header http.Header
	// Extensions are attributes that each event gets, in place of its own of these names, in both modes. Each name is one
	// that [cloudevent.CheckExtension] lets through.
	Extensions map[string]string
	// MaxReply bounds what is read of an answer, in bytes as it is unpacked. 0: [DefaultMaxReply]. An event that came back
	// in more is refused; whatever else comes back may be longer.
	MaxReply int64
	// Connections is how many connections are kept when nobody uses them. 0: [DefaultConnections].
	Connections int
	// Authorities are those that may vouch for an https server. nil: those that the machine trusts.
	Authorities *x509.CertPool
}

// Client posts events to one URL. [New] makes it. Its methods may be called from many goroutines.
type Client struct {
	config Config
	name   string // of the URL, without what is secret
	client *http.Client
}

// New makes a client. It fails when the URL is none of http or https; it does not look whether anybody is there.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", withoutURL(err))
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("url %q: want http://HOST/PATH or https://HOST/PATH", withoutSecrets(u))
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxReply = cmp.Or(c.MaxReply, DefaultMaxReply)
	c.Connections = cmp.Or(c.Connections, DefaultConnections)
	trust := &tls.Config{RootCAs: c.Authorities, MinVersion: tls.VersionTLS12}
	return &Client{config: c, name: withoutSecrets(u), client: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSClientConfig: trust,
			MaxIdleConns: c.Connections, MaxIdleConnsPerHost: c.Connections, IdleConnTimeout: idleFor,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// withoutSecrets is the URL without its password and its query, which often holds a token.
func withoutSecrets(u *url.URL) string {
	shown := *u
	if shown.RawQuery != "" {
		shown.RawQuery = "…"
	}
	return shown.Redacted()
}

// withoutURL is an error without the URL, which holds secrets.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// Close closes the connections that nobody uses.
func (c *Client) Close() { c.client.CloseIdleConnections() }

// Send posts e, and does not look at what comes back with a status of success, however much that is. Its errors are those
// of the package; when ctx ended, its own.
func (c *Client) Send(ctx context.Context, e schemas.Event) error {
	_, err := c.post(ctx, e)
	return err
}

// Ask posts e and returns the event that came back, if there was one. Its errors are those of the package; when ctx ended,
// its own. An answer that is no event, or has more than MaxReply bytes, is an error that wraps [schemas.ErrInvalid].
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

// post sends e and returns the answer, if its status is one of success.
func (c *Client) post(ctx context.Context, e schemas.Event) (answer, error) {
	within, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	r, err := c.request(within, e)
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

// do sends a request and reads all of the answer.
func (c *Client) do(r *http.Request) (answer, error) {
	response, err := c.client.Do(r)
	if err != nil {
		return answer{}, withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }() // all of it that matters has been read
	a := answer{status: response.StatusCode, header: response.Header}
	a.body, err = io.ReadAll(io.LimitReader(response.Body, c.config.MaxReply+1))
	if int64(len(a.body)) > c.config.MaxReply {
		a.body, a.beyond = a.body[:c.config.MaxReply], c.config.MaxReply
	}
	return a, err
}

// request writes e in the mode of the client.
func (c *Client) request(ctx context.Context, e schemas.Event) (*http.Request, error) {
	header := make(http.Header, 16)
	maps.Copy(header, c.config.Header)
	body, err := c.write(e, header)
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
	// To ask twice does no harm. Without a value the header is not sent, and tells the client that it may use another
	// connection when the server has just closed the one it took.
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
