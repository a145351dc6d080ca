package serving

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/test/kit/certtest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// files are the files of a certificate.
type files struct {
	*testing.T
	cert, key string
}

func newFiles(t *testing.T, cert, key []byte) *files {
	dir := t.TempDir()
	f := &files{T: t, cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key")}
	f.write(f.cert, cert)
	f.write(f.key, key)
	return f
}

func (f *files) write(file string, text []byte) {
	f.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		f.Fatal(err)
	}
}

// serve serves over the loopback interface until the test ends.
func serve(t *testing.T, with settings.TLS) (address string) {
	t.Helper()
	s, err := Listen("REHOME_HTTP_ADDRESS", "127.0.0.1:0", with, false, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	s.Handler = http.NotFoundHandler()
	run(t, s)
	return s.Listener.Addr().String()
}

// serial returns the serial number of the certificate for a new connection.
func serial(t *testing.T, address string) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	expect.Must(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestCertificateFiles(t *testing.T) {
	cert1, key1 := certtest.SelfSigned(t, 1)
	cert2, key2 := certtest.SelfSigned(t, 2)
	cert3, key3 := certtest.SelfSigned(t, 3)
	f := newFiles(t, cert1, key1)
	address := serve(t, settings.TLS{Variable: "REHOME_HTTP", Mode: settings.TLSFiles, Cert: f.cert, Key: f.key})
	becomes := func(when string, want int64) {
		t.Helper()
		expect.Eventually(t, when, func() bool { return serial(t, address) == want })
	}
	stays := func(when string, want int64) {
		t.Helper()
		for range 20 {
			if got := serial(t, address); got != want {
				t.Fatalf("%s: got certificate %d, want %d", when, got, want)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	becomes("the certificate at the start", 1)
	f.write(f.cert, []byte("none"))
	stays("a file without a certificate", 1)
	f.write(f.cert, cert2)
	stays("a certificate without its key", 1)
	f.write(f.key, key2)
	becomes("the certificate after a change", 2)
	if err := os.Remove(f.key); err != nil {
		t.Fatal(err)
	}
	stays("no key file", 2)
	long := time.Now().Add(-time.Hour) // a Secret is swapped by renaming, and the new files may be older
	for file, text := range map[string][]byte{f.cert: cert3, f.key: key3} {
		f.write(file+".next", text)
		if err := errors.Join(os.Chtimes(file+".next", long, long), os.Rename(file+".next", file)); err != nil {
			t.Fatal(err)
		}
	}
	becomes("the certificate after a rename", 3)
}

func TestSelfSignedCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"host", "localhost", "127.0.0.1", "::1", "10.1.2.3"}
		s := &selfSigned{names: names}
		made := map[string]bool{}
		for range 365 {
			c, err := s.GetCertificate(nil)
			expect.Must(t, err)
			made[c.Leaf.SerialNumber.String()] = true
			if left := time.Until(c.Leaf.NotAfter); left < 9*24*time.Hour || time.Since(c.Leaf.NotBefore) < time.Hour {
				t.Fatalf("after %d certificates: it holds from %v to %v, and it is %v", len(made), c.Leaf.NotBefore, c.Leaf.NotAfter, time.Now())
			}
			trusted := x509.NewCertPool()
			trusted.AddCert(c.Leaf)
			for _, name := range names {
				if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: name, CurrentTime: time.Now()}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(24 * time.Hour)
		}
		if len(made) != 19 { // one every twenty days
			t.Errorf("got %d certificates in a year, want 19", len(made))
		}
	})
}

func TestOwnNames(t *testing.T) {
	names := ownNames()
	once := map[string]bool{}
	for _, name := range names {
		if once[name] || name == "" {
			t.Errorf("%q twice, or empty, in %q", name, names)
		}
		once[name] = true
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if !once[name] {
			t.Errorf("no %s in %q", name, names)
		}
	}
}

func TestOldestTLS(t *testing.T) {
	address := serve(t, settings.TLS{Variable: "REHOME_HTTP", Mode: settings.TLSSelfSigned})
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		if (err == nil) != want {
			t.Errorf("%s: got error %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

// TestOperatorAddress needs no token, so it is a loopback address. An empty setting closes it.
func TestOperatorAddress(t *testing.T) {
	const refused = "REHOME_API_LOCAL: want a loopback address such as 127.0.0.1:8644, since it needs no token, got "
	for address, want := range map[string]string{
		"127.0.0.1:0": "open", "": "closed",
		":0":               refused + ":0; REHOME_API_ADDRESS serves other machines",
		"0.0.0.0:0":        refused + "0.0.0.0:0; REHOME_API_ADDRESS serves other machines",
		"rehome.example:0": refused + "rehome.example:0; REHOME_API_ADDRESS serves other machines",
	} {
		got := "closed"
		s, err := ListenForOperator(settings.Settings{APILocal: address}, slog.New(slog.DiscardHandler))
		switch {
		case err != nil:
			got = err.Error()
		case s.Listener != nil:
			got = "open"
			s.Close()
		}
		expect.Equal(t, "the address "+address, got, want)
	}
}
