package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/test/kit/certtest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestAPIWithoutTLS(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	defer taken.Close()
	const tlsWanted = "REHOME_API_ADDRESS: want REHOME_API_CERT_FILE and REHOME_API_KEY_FILE, " +
		"or REHOME_API_TLS=self-signed, for %s: without TLS, want a loopback address such as 127.0.0.1:8643"
	missing := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		name string
		s    settings.Settings
		want string
	}{
		{"no address", settings.Settings{}, ""},
		{"a loopback address", settings.Settings{APIAddress: "127.0.0.1:0"}, ""},
		{"localhost", settings.Settings{APIAddress: "localhost:0"}, ""},
		{"all addresses", settings.Settings{APIAddress: ":0"}, fmt.Sprintf(tlsWanted, ":0")},
		{"another address", settings.Settings{APIAddress: "10.0.0.1:0"}, fmt.Sprintf(tlsWanted, "10.0.0.1:0")},
		{"no port", settings.Settings{APIAddress: "127.0.0.1"}, fmt.Sprintf(tlsWanted, "127.0.0.1")},
		{"a name that may be anything", settings.Settings{APIAddress: "watcher:8643"}, fmt.Sprintf(tlsWanted, "watcher:8643")},
		{"a certificate without a key", settings.Settings{APIAddress: ":0", APICertFile: "c"},
			"REHOME_API_CERT_FILE and REHOME_API_KEY_FILE: want both or none, got one of them"},
		{"missing certificate", settings.Settings{APIAddress: ":0", APICertFile: missing, APIKeyFile: missing},
			"REHOME_API_CERT_FILE: open " + missing + ": no such file or directory"},
		{"missing key", settings.Settings{APIAddress: ":0", APICertFile: "requestserver_test.go", APIKeyFile: missing},
			"REHOME_API_KEY_FILE: open " + missing + ": no such file or directory"},
		{"a file that is no certificate", settings.Settings{APIAddress: ":0", APICertFile: "requestserver_test.go", APIKeyFile: "main.go"},
			"REHOME_API_CERT_FILE: requestserver_test.go with main.go: tls: failed to find any PEM data in certificate input"},
		{"all addresses with a generated certificate", settings.Settings{APIAddress: ":0", APITLS: "self-signed"}, ""},
		{"all addresses without TLS", settings.Settings{APIAddress: ":0", APITLS: "off"}, fmt.Sprintf(tlsWanted, ":0")},
		{"files that are not named", settings.Settings{APIAddress: ":0", APITLS: "files", APICertFile: "c"},
			"REHOME_API_KEY_FILE: want the file with the key of the certificate, since REHOME_API_TLS is files, got nothing"},
		{"files and a generated certificate", settings.Settings{APIAddress: ":0", APITLS: "self-signed", APIKeyFile: "k"},
			"REHOME_API_KEY_FILE: want it with REHOME_API_TLS=files, got REHOME_API_TLS=self-signed"},
		{"an address that is taken", settings.Settings{APIAddress: taken.Addr().String()},
			"REHOME_API_ADDRESS: cannot listen on " + taken.Addr().String() + ": listen tcp " + taken.Addr().String() +
				": bind: address already in use"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := serving.ListenForAPI(c.s, slog.New(slog.DiscardHandler))
			if r != nil {
				defer r.Close()
			}
			switch {
			case c.want == "" && (err != nil || (r.Listener == nil) != (c.s.APIAddress == "")):
				t.Errorf("got %v, error %v", r, err)
			case c.want != "" && (err == nil || err.Error() != c.want):
				t.Errorf("got error %v, want %s", err, c.want)
			}
		})
	}
}

// certificate writes a self-signed certificate.
func certificate(t *testing.T, serial int64, certFile, keyFile string) {
	t.Helper()
	cert, key := certtest.SelfSigned(t, serial)
	filetest.Write(t, certFile, string(cert))
	filetest.Write(t, keyFile, string(key))
}

func TestAPICertificateReload(t *testing.T) {
	dir := t.TempDir()
	s := settings.Settings{APIAddress: "127.0.0.1:0", APICertFile: filepath.Join(dir, "crt"), APIKeyFile: filepath.Join(dir, "key")}
	certificate(t, 1, s.APICertFile, s.APIKeyFile)
	r, err := serving.ListenForAPI(s, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	r.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	for serial := int64(1); serial <= 2; serial++ {
		certificate(t, serial, s.APICertFile, s.APIKeyFile)
		text, err := os.ReadFile(s.APICertFile)
		expect.Must(t, err)
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(text)
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true}}
		expect.Eventually(t, "the new certificate is shown", func() bool {
			got, err := client.Get("https://" + r.Listener.Addr().String() + "/")
			if err != nil {
				return false
			}
			body, err := io.ReadAll(got.Body)
			if got.Body.Close() != nil || err != nil || string(body) != "here" || got.TLS.PeerCertificates[0].SerialNumber.Int64() != serial {
				t.Errorf("certificate %d: got %q, error %v, serial %v", serial, body, err, got.TLS.PeerCertificates[0].SerialNumber)
			}
			return true
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
