package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
)

// longestAnswer limits the part of a response that is read, in bytes.
const longestAnswer = 64 << 10

func readyCommand() *cobra.Command {
	timeout, authority := 3*time.Second, ""
	c := &cobra.Command{
		Use: "ready [URL]", Short: "Check whether a process is ready, for the health check of a container",
		Long: "Check whether a process is ready, for the health check of a container without a shell. The default URL is /readyz at\n" +
			"REHOME_HTTP_ADDRESS, with https unless REHOME_HTTP_TLS is off. Another URL can be given, such as\n" +
			"https://127.0.0.1:8642/readyz. The certificate of a loopback address is not verified, because no other machine can\n" +
			"answer there.\n\n" +
			"The exit code is 0 if the process is ready. Otherwise it is 1, and the command prints the reason.",
		Example: "  rehome ready\n" +
			"  rehome ready http://127.0.0.1:8648/healthz\n" +
			"  rehome ready https://rehome.rehome.svc:8642/readyz --ca-file ca.crt",
		Args: cobra.MaximumNArgs(1),
	}
	c.Flags().DurationVar(&timeout, "timeout", timeout, "time limit for the response")
	c.Flags().StringVar(&authority, "ca-file", "", "file with trusted authorities; the default is the authorities of the system")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		target, err := ReadyURL(arguments)
		if err != nil {
			return err
		}
		client, err := readyClient(target, authority)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), timeout)
		defer cancel()
		return askReady(ctx, client, target)
	}
	return c
}

// ReadyURL returns the URL to request: the argument, or the address in the settings. An address without a host means this
// machine.
func ReadyURL(arguments []string) (*url.URL, error) {
	if len(arguments) == 0 {
		s, err := settings.Read()
		if err != nil {
			return nil, err
		}
		host, port, err := net.SplitHostPort(s.HTTPAddress)
		if err != nil {
			return nil, fmt.Errorf("REHOME_HTTP_ADDRESS: want HOST:PORT, got %q; or give a URL", s.HTTPAddress)
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		scheme := "http"
		if s.HTTPTLS != settings.TLSOff {
			scheme = "https"
		}
		return &url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port), Path: "/readyz"}, nil
	}
	u, err := url.Parse(arguments[0])
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("want a URL such as http://127.0.0.1:8642/readyz, got %q", arguments[0])
	}
	return u, nil
}

// readyClient follows no redirects, and does not verify the certificate of a loopback address.
func readyClient(target *url.URL, authority string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if settings.IsLoopback(target.Hostname()) {
		config.InsecureSkipVerify = authority == ""
	}
	if authority != "" {
		text, err := os.ReadFile(authority)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--ca-file: want certificates in PEM, got none in %s", authority)
		}
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// askReady returns an error with the answer unless it is 200.
func askReady(ctx context.Context, client *http.Client, target *url.URL) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	response, err := client.Do(request)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok { // which repeats the URL
			err = inner.Err
		}
		return fmt.Errorf("%s does not answer: %w", target, err)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s is not ready: %s: %s", target, response.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
