package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/run"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// served starts a server with these settings and without access to a cluster, and returns its URL.
func served(t *testing.T, s settings.Settings) (url string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	web, _, err := serving.ListenForStatus(s, nil, serving.NewMetrics(), log)
	expect.Must(t, err)
	expect.Background(t, web.Serve)
	return web.URL("")
}

// trusting returns a client that accepts any certificate and offers HTTP/2.
func trusting(t *testing.T) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// reply is a response.
type reply struct {
	status int
	proto  string
}

func see(t *testing.T, c *http.Client, url string) reply {
	t.Helper()
	r, err := c.Get(url)
	expect.Must(t, err)
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Fatal(err)
	}
	return reply{r.StatusCode, r.Proto}
}

func TestServingSettings(t *testing.T) {
	const one, two = "HTTP/1.1", "HTTP/2.0"
	for _, c := range []struct {
		name   string
		change func(*settings.Settings)
		scheme string
		want   map[string]reply
	}{
		{"by default over HTTP/1.1 without TLS and without profiles", func(*settings.Settings) {}, "http", map[string]reply{
			"/metrics": {200, one}, "/healthz": {200, one}, "/readyz": {200, one}, "/debug/pprof/": {404, one},
			"/debug/pprof/heap": {404, one},
		}},
		{"with TLS no HTTP/2", func(s *settings.Settings) { s.HTTPTLS = "self-signed" }, "https", map[string]reply{
			"/metrics": {200, one}, "/healthz": {200, one},
		}},
		{"HTTP/2 where it is wanted", func(s *settings.Settings) { s.HTTPTLS, s.HTTP2 = "self-signed", true }, "https", map[string]reply{
			"/metrics": {200, two}, "/readyz": {200, two},
		}},
		{"profiles where they are wanted", func(s *settings.Settings) { s.Profiles = true }, "http", map[string]reply{
			"/metrics": {200, one}, "/debug/pprof/": {200, one}, "/debug/pprof/goroutine": {200, one}, "/debug/pprof/cmdline": {200, one},
			"/debug/pprof/symbol": {200, one}, "/debug/pprof/profile?seconds=1": {200, one}, "/debug/pprof/none": {404, one},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := defaults(t)
			s.HTTPAddress = "127.0.0.1:0"
			c.change(&s)
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			url, client, got := served(t, s), trusting(t), map[string]reply{}
			for path := range c.want {
				got[path] = see(t, client, url+path)
			}
			if !reflect.DeepEqual(got, c.want) || url[:len(c.scheme)+1] != c.scheme+":" {
				t.Errorf("got  %v at %s\nwant %v over %s", got, url, c.want, c.scheme)
			}
		})
	}
}

func TestInvalidServingSettings(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	const noCluster = "REHOME_HTTP_AUTH: want false for a process without access to the cluster, got true: " +
		"only the roles watcher, actuator, maintenance, and api can check rights"
	const profiles = "REHOME_PROFILES: want REHOME_HTTP_AUTH=true with it, or a loopback address such as 127.0.0.1:8642, got "
	for _, c := range []struct {
		name   string
		change func(*settings.Settings)
		want   string // empty means that it starts
	}{
		{"public profiles", func(s *settings.Settings) { s.Profiles, s.HTTPAddress = true, ":8642" }, profiles + ":8642"},
		{"public profiles over TLS", func(s *settings.Settings) { s.Profiles, s.HTTPAddress, s.HTTPTLS = true, "10.0.0.1:1", "self-signed" },
			profiles + "10.0.0.1:1"},
		{"profiles where nothing is served", func(s *settings.Settings) { s.Profiles, s.HTTPAddress = true, "" }, ""},
		{"a guard without a cluster to ask", func(s *settings.Settings) { s.HTTPAuth, s.HTTPTLS = true, "self-signed" }, noCluster},
		{"missing certificate", func(s *settings.Settings) { s.HTTPTLS, s.HTTPCertFile, s.HTTPKeyFile = "files", missing, "main.go" },
			"REHOME_HTTP_CERT_FILE: open " + missing + ": no such file or directory"},
		{"missing key", func(s *settings.Settings) { s.HTTPTLS, s.HTTPCertFile, s.HTTPKeyFile = "files", "main.go", missing },
			"REHOME_HTTP_KEY_FILE: open " + missing + ": no such file or directory"},
		{"files that are no certificate", func(s *settings.Settings) { s.HTTPTLS, s.HTTPCertFile, s.HTTPKeyFile = "files", "main.go", "plugin.go" },
			"REHOME_HTTP_CERT_FILE: main.go with plugin.go: tls: failed to find any PEM data in certificate input"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := defaults(t)
			c.change(&s)
			err := s.Check()
			if err == nil {
				var web *serving.Server
				if web, _, err = serving.ListenForStatus(s, nil, serving.NewMetrics(), slog.New(slog.DiscardHandler)); err == nil {
					web.Close()
				}
			}
			if c.want == "" && err == nil {
				return
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestServeTLS(t *testing.T) {
	s := defaults(t)
	s.HTTPTLS = "self-signed"
	address := expect.Value(t, program.FreeAddress)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run.ServeFunction(ctx, s, functions.All()[0], address) }()
	client, got := trusting(t), map[string]int{}
	expect.Eventually(t, "it serves", func() bool {
		r, err := client.Get("https://" + address + "/healthz")
		return err == nil && r.Body.Close() == nil
	})
	for _, path := range []string{"/metrics", "/readyz", "/debug/pprof/"} {
		got[path] = see(t, client, "https://"+address+path).status
	}
	got["/"] = see(t, client, "https://"+address+"/").status // only POST is allowed
	if want := map[string]int{"/metrics": 200, "/readyz": 200, "/debug/pprof/": 404, "/": 405}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.HTTPAuth = true
	err := run.ServeFunction(t.Context(), s, functions.All()[0], "127.0.0.1:0")
	if want := "REHOME_HTTP_AUTH: want false for a process without access to the cluster, got true: " +
		"only the roles watcher, actuator, maintenance, and api can check rights"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestAPISelfSignedCertificate(t *testing.T) {
	for http2, want := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			r, err := serving.ListenForAPI(settings.Settings{APIAddress: "127.0.0.1:0", APITLS: "self-signed", HTTP2: http2}, slog.New(slog.DiscardHandler))
			expect.Must(t, err)
			r.Handler = http.NotFoundHandler()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Serve(ctx) }()
			client := trusting(t)
			if got := see(t, client, "https://"+r.Listener.Addr().String()+"/"); got != (reply{404, want}) {
				t.Errorf("got %v, want 404 over %s", got, want)
			}
			client.CloseIdleConnections()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSelfSignedCertificateHost(t *testing.T) {
	s := defaults(t)
	s.HTTPAddress, s.HTTPTLS = "127.0.0.1:0", "self-signed"
	host, err := os.Hostname()
	expect.Must(t, err)
	c, err := tls.Dial("tcp", served(t, s)[len("https://"):], &tls.Config{InsecureSkipVerify: true})
	expect.Must(t, err)
	defer c.Close()
	leaf := c.ConnectionState().PeerCertificates[0]
	for _, name := range []string{host, "localhost", "127.0.0.1", "::1"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}
