package cli

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/cli/run"
)

func TestReady(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /missing", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no bus\nno API server", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET /elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/readyz", http.StatusFound) })
	mux.HandleFunc("GET /never", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REHOME_HTTP_ADDRESS", strings.TrimPrefix(plain.URL, "http://"))
	for _, c := range []struct {
		name      string
		arguments []string
		complaint string // "" if it is ready
	}{
		{"without a URL the process of the settings is asked", nil, ""},
		{"200 is ready", []string{plain.URL + "/readyz"}, ""},
		{
			"503 is not, and says why", []string{plain.URL + "/missing"},
			plain.URL + "/missing is not ready: 503 Service Unavailable: no bus\nno API server",
		},
		{"a redirect is not", []string{plain.URL + "/elsewhere"}, plain.URL + "/elsewhere is not ready: 302 Found: <a href=\"/readyz\">Found</a>."},
		{
			"not in time", []string{plain.URL + "/never", "--timeout", "20ms"},
			plain.URL + "/never does not answer: context deadline exceeded",
		},
		{"the certificate of a loopback address is not verified", []string{secure.URL + "/readyz"}, ""},
		{"unless an authority is given, here the right one", []string{secure.URL + "/readyz", "--ca-file", authority}, ""},
		{"an authority that is no file is wrong", []string{secure.URL, "--ca-file", "nope"}, "--ca-file: open nope: no such file or directory"},
		{"an address is no URL", []string{"127.0.0.1:8642"}, `want a URL such as http://127.0.0.1:8642/readyz, got "127.0.0.1:8642"`},
		{"two URLs are one too many", []string{"http://a", "http://b"}, "accepts at most 1 arg(s), received 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := execute(t, append([]string{"ready"}, c.arguments...)...)
			if (err != nil) != (c.complaint != "") || err != nil && err.Error() != c.complaint {
				t.Errorf("got  %v\nwant %q", err, c.complaint)
			}
		})
	}
}

func TestReadyAddress(t *testing.T) {
	for _, c := range []struct{ address, tls, want string }{
		{":8642", "off", "http://127.0.0.1:8642/readyz"},
		{"0.0.0.0:8642", "off", "http://127.0.0.1:8642/readyz"},
		{"[::]:8642", "off", "http://127.0.0.1:8642/readyz"},
		{"10.0.0.1:8642", "off", "http://10.0.0.1:8642/readyz"},
		{"[::1]:8642", "off", "http://[::1]:8642/readyz"},
		{":8642", "self-signed", "https://127.0.0.1:8642/readyz"},
		{"10.0.0.1:8642", "files", "https://10.0.0.1:8642/readyz"},
	} {
		t.Setenv("REHOME_HTTP_ADDRESS", c.address)
		t.Setenv("REHOME_HTTP_TLS", c.tls)
		if got, err := run.ReadyURL(nil); err != nil || got.String() != c.want {
			t.Errorf("%s: got %v, %v, want %s", c.address, got, err, c.want)
		}
	}
	t.Setenv("REHOME_HTTP_ADDRESS", "8642")
	if _, err := run.ReadyURL(nil); err == nil || err.Error() != `REHOME_HTTP_ADDRESS: want HOST:PORT, got "8642"; or give a URL` {
		t.Errorf("without a host: got error %v", err)
	}
}
