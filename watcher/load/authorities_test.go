package load

import (
	"crypto/tls"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// secure starts a TLS server, and returns it with the file of its private certificate authority.
func secure(t *testing.T) (server *httptest.Server, file string) {
	t.Helper()
	server = httptest.NewUnstartedServer(http.HandlerFunc(vectorOf("n1", 0.25)))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	file = filepath.Join(t.TempDir(), "ca.crt")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return server, file
}

func TestCertificateAuthorities(t *testing.T) {
	server, file := secure(t)
	garbage := filetest.New(t, "garbage", "none")
	for _, c := range []struct{ name, file, want string }{
		{"valid", file, ""},
		{"missing", filepath.Join(t.TempDir(), "gone"), "certificate signed by unknown authority"},
		{"not a certificate", garbage, "no certificate in it"},
		{"unreadable", t.TempDir(), "is a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := fetch(t, server.URL, c.file)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want the words %q", err, c.want)
			}
		})
	}
}

// fetch sends a request and trusts the authorities in a file.
func fetch(t *testing.T, address, file string) error {
	t.Helper()
	roots, err := authorities(file)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	expect.Must(t, err)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func TestUntrustedCertificate(t *testing.T) {
	server, _ := secure(t)
	s, err := NewPrometheus(server.URL, query, noToken, (&clock{noon}).now, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	defer s.Close()
	if _, err := s.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("got %v, want an unknown authority", err)
	}
}
