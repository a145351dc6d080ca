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

// longestAnswer limits what is read of an answer, in bytes.
const longestAnswer = 64 << 10

func readyCommand() *cobra.Command {
	timeout, authority := 3*time.Second, ""
	c := &cobra.Command{
		Use: "ready [URL]", Short: "Ask a process whether it is ready, for the health check of a container",
		Long: "Ask a process whether it is ready, for the health check of a container without a shell. Without a URL it is the\n" +
			"process that serves at REHOME_HTTP_ADDRESS as REHOME_HTTP_TLS says; else any URL such as https://127.0.0.1:8642/readyz.\n" +
			"The certificate of a loopback address is not verified: no other machine can answer there.\n\n" +
			"The exit code is 0 when it is ready and 1 when not; then it says what is missing.",
		Example: "  rehome ready\n" +
			"  rehome ready http://127.0.0.1:8648/healthz\n" +
			"  rehome ready https://rehome.rehome.svc:8642/readyz --ca-file ca.crt",
		Args: cobra.MaximumNArgs(1),
	}
	c.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the answer")
	c.Flags().StringVar(&authority, "ca-file", "", "file with the authorities to trust; none: those of the system")
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

// ReadyURL is what is asked: the argument, or the address of the settings. An address without a host is this machine's.
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
		if inner, ok := errors.AsType[*url.Error](err); ok { // which says the URL once more
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
