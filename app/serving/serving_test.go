package serving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// certificate is one with its key, in PEM.
func certificate(t testing.TB, serial int64) (cert, key []byte) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

// files are those of a certificate, and what was logged about them.
type files struct {
	*testing.T
	cert, key string
	log       strings.Builder
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

func (f *files) read() *Files {
	f.Helper()
	plain := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "expires" {
			return slog.Attr{}
		}
		return a
	}}
	r, err := ReadFiles(f.cert, f.key, slog.New(slog.NewTextHandler(&f.log, plain)))
	if err != nil {
		f.Fatal(err)
	}
	return r
}

// serials are those of the certificates that connections get, one after the other, over the loopback interface.
func serials(t *testing.T, c Certificates, steps ...func()) (got []int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler()}
	ended := make(chan error, 1)
	go func() { ended <- Transport{Certificates: c}.Serve(s, l) }()
	for _, step := range steps {
		step()
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64())
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	return got
}

func TestTheNextConnectionGetsTheCertificateThatIsThereNow(t *testing.T) {
	cert1, key1 := certificate(t, 1)
	cert2, key2 := certificate(t, 2)
	cert3, key3 := certificate(t, 3)
	f := newFiles(t, cert1, key1)
	long := time.Now().Add(-time.Hour)
	got := serials(t, f.read(),
		func() {},
		func() { f.write(f.cert, cert2); f.write(f.key, key2) },
		func() { // as a Secret is swapped: other files under the same names, older than what was there
			for file, text := range map[string][]byte{f.cert: cert3, f.key: key3} {
				f.write(file+".next", text)
				if err := errors.Join(os.Chtimes(file+".next", long, long), os.Rename(file+".next", file)); err != nil {
					t.Fatal(err)
				}
			}
		},
		func() {},
	)
	if want := []int64{1, 2, 3, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := f.log.String(), strings.Repeat("level=INFO msg=\"the certificate was read again\" file="+f.cert+"\n", 2); got != want {
		t.Errorf("logged\n%swant\n%s", got, want)
	}
}

func TestWhileTheFilesAreWrongTheCertificateBeforeIsShownAndThatIsLoggedOnce(t *testing.T) {
	cert1, key1 := certificate(t, 1)
	cert2, key2 := certificate(t, 2)
	const stays = `level=ERROR msg="the certificate is wrong, the one before stays" file=CERT error=`
	const again = `level=INFO msg="the certificate was read again" file=CERT`
	for _, c := range []struct {
		name  string
		steps func(f *files) []func()
		want  []int64
		log   []string
	}{
		{"no certificate", func(f *files) []func() {
			return []func(){func() { f.write(f.cert, []byte("none")) }, func() {}, func() { f.write(f.cert, cert1) }}
		}, []int64{1, 1, 1}, []string{stays + `"CERT with KEY: tls: failed to find any PEM data in certificate input"`, again}},
		{"gone, and there again", func(f *files) []func() {
			return []func(){
				func() { _ = os.Remove(f.key) }, func() {}, func() { f.write(f.cert, cert2) }, func() { f.write(f.key, key2) },
			}
		}, []int64{1, 1, 1, 2}, []string{stays + `"open KEY: no such file or directory"`, stays + `"open KEY: no such file or directory"`, again}},
		{"the certificate before its key", func(f *files) []func() {
			return []func(){func() { f.write(f.cert, cert2) }, func() {}, func() { f.write(f.key, key2) }, func() {}}
		}, []int64{1, 1, 2, 2}, []string{stays + `"CERT with KEY: tls: private key does not match public key"`, again}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFiles(t, cert1, key1)
			got := serials(t, f.read(), c.steps(f)...)
			log := strings.NewReplacer(f.cert, "CERT", f.key, "KEY").Replace(f.log.String())
			if want := strings.Join(c.log, "\n") + "\n"; !reflect.DeepEqual(got, c.want) || log != want {
				t.Errorf("got  %v\nwant %v\nlogged\n%swant\n%s", got, c.want, log, want)
			}
		})
	}
}

func TestFilesThatAreAsTheyWereAreNotRead(t *testing.T) {
	cert1, key1 := certificate(t, 1)
	f := newFiles(t, cert1, key1)
	long := time.Now().Add(-time.Hour)
	other := []byte(strings.Repeat("x", len(cert1)))
	for _, file := range []string{f.cert, f.key} {
		if err := os.Chtimes(file, long, long); err != nil {
			t.Fatal(err)
		}
	}
	r := f.read()
	f.write(f.cert, other) // nobody does this: another content with the time, the size and the inode of the one before
	if err := os.Chtimes(f.cert, long, long); err != nil {
		t.Fatal(err)
	}
	if c, err := r.Certificate(); err != nil || c.Leaf.SerialNumber.Int64() != 1 || f.log.String() != "" {
		t.Errorf("got %v, error %v, logged %s", c.Leaf.SerialNumber, err, &f.log)
	}
}

func TestACertificateOfItsOwnNeverExpiresWhileItIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"host", "localhost", "127.0.0.1", "::1", "10.1.2.3"}
		s, err := NewSelfSigned(names, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		made := map[string]bool{}
		for range 365 {
			c, err := s.Certificate()
			if err != nil {
				t.Fatal(err)
			}
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

func TestTheNamesOfThisMachineHaveNoDoubles(t *testing.T) {
	names := OwnNames()
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
	if _, err := NewSelfSigned(names, time.Now); err != nil {
		t.Error(err)
	}
}

func TestNothingOlderThanTLS12IsSpoken(t *testing.T) {
	s, err := NewSelfSigned([]string{"localhost"}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	go func() { _ = Transport{Certificates: s}.Serve(h, l) }()
	defer h.Close()
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		if (err == nil) != want {
			t.Errorf("%s: got error %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

func TestAnAnswerIsRememberedForItsTimeAndTheOldestGoesFirst(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	m := newMemory(2, 10*time.Second)
	question := func(path string) question { return questionOf("token", path) }
	known := func(after time.Duration) (got []string) {
		for _, path := range []string{"/a", "/b", "/c"} {
			if a, ok := m.get(question(path), began.Add(after)); ok {
				got = append(got, path+" "+a.text)
			}
		}
		return got
	}
	m.put(question("/a"), answer{text: "1"}, began)
	m.put(question("/b"), answer{text: "2"}, began.Add(time.Second))
	m.put(question("/b"), answer{text: "3"}, began.Add(2*time.Second)) // asked twice at once: it ends when the first does
	for after, want := range map[time.Duration][]string{
		2 * time.Second: {"/a 1", "/b 2"}, 10 * time.Second: {"/b 2"}, 11*time.Second - 1: {"/b 2"}, 11 * time.Second: nil,
	} {
		if got := known(after); !reflect.DeepEqual(got, want) {
			t.Errorf("after %v: got %q, want %q", after, got, want)
		}
	}
	m.put(question("/a"), answer{text: "4"}, began.Add(11*time.Second))
	m.put(question("/b"), answer{text: "5"}, began.Add(11*time.Second))
	m.put(question("/c"), answer{text: "6"}, began.Add(11*time.Second))
	if got, want := known(12*time.Second), []string{"/b 5", "/c 6"}; !reflect.DeepEqual(got, want) || len(m.answers) != 2 || len(m.order) != 2 {
		t.Errorf("got %q, want %q; %d kept, %d in order", got, want, len(m.answers), len(m.order))
	}
}

// BenchmarkFiles is what looking at files that did not change adds to a handshake.
func BenchmarkFiles(b *testing.B) {
	dir := b.TempDir()
	cert, key := certificate(b, 1)
	long := time.Now().Add(-time.Hour)
	for name, text := range map[string][]byte{"crt": cert, "key": key} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, text, 0o600), os.Chtimes(file, long, long)); err != nil {
			b.Fatal(err)
		}
	}
	f, err := ReadFiles(filepath.Join(dir, "crt"), filepath.Join(dir, "key"), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := f.Certificate(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAFileOfAMomentAgoIsReadThoughItLooksTheSame(t *testing.T) {
	cert1, key1 := certificate(t, 1)
	cert2, key2 := certificate(t, 2)
	for _, p := range []*[]byte{&cert1, &key1, &cert2, &key2} { // all of one size
		*p = append(*p, strings.Repeat("\n", 2000-len(*p))...)
	}
	f := newFiles(t, cert1, key1)
	moment := time.Now()
	same := func() {
		for _, file := range []string{f.cert, f.key} {
			if err := os.Chtimes(file, moment, moment); err != nil {
				t.Fatal(err)
			}
		}
	}
	same()
	r := f.read()
	f.write(f.cert, cert2)
	f.write(f.key, key2)
	same()
	if c, err := r.Certificate(); err != nil || c.Leaf.SerialNumber.Int64() != 2 {
		t.Errorf("got %v, error %v, want the second", c.Leaf.SerialNumber, err)
	}
}
