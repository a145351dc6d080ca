package credentials_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestRevokedCertificates steals all files, writes new ones, and restarts the server. The stolen `client.key` no longer opens a
// connection, and the stolen `server.key` no longer joins the cluster, only if the authority and both keys are new. The thief also
// has the new certificates, which are public: a new certificate for a stolen key is as good as the old one.
func TestRevokedCertificates(t *testing.T) {
	for name, test := range map[string]struct {
		removed []string
		refused bool
	}{
		"new keys":               {[]string{credentials.ClientKey, credentials.ServerKey}, false},
		"new authority":          {[]string{credentials.CACert, credentials.CAKey}, false},
		"new authority and keys": {[]string{credentials.CACert, credentials.CAKey, credentials.ClientKey, credentials.ServerKey}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, stolen := t.TempDir(), t.TempDir()
			hosts := credentials.Config{Hosts: []string{"localhost", "127.0.0.1"}}
			write(t, dir, hosts)
			expect.Must(t, os.CopyFS(stolen, os.DirFS(dir)))
			s := serveCluster(t, dir)
			expect.Equal(t, "the certificates open the ports before", opened(t, s, dir, stolen), [2]bool{true, true})
			s.Shutdown()
			s.WaitForShutdown()
			for _, file := range test.removed {
				expect.Must(t, os.Remove(filepath.Join(dir, file)))
			}
			write(t, dir, hosts)
			s = serveCluster(t, dir)
			expect.Equal(t, "the new certificates open the ports", opened(t, s, dir, dir), [2]bool{true, true})
			expect.Equal(t, "the stolen keys open the ports", opened(t, s, dir, stolen), [2]bool{!test.refused, !test.refused})
		})
	}
}

// TestRemovedAuthorityKey removes only the key of the authority.
func TestRemovedAuthorityKey(t *testing.T) {
	dir := t.TempDir()
	hosts := credentials.Config{Hosts: []string{"localhost"}}
	write(t, dir, hosts)
	expect.Must(t, os.Remove(filepath.Join(dir, credentials.CAKey)))
	want := filepath.Join(dir, "ca.crt") + ": want the certificate of ca.key, got the certificate of another key: to make a new authority, " +
		"remove ca.crt and all files that end in .key, and distribute the new files"
	if _, err := credentials.Write(dir, hosts); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// serveCluster starts a server of a cluster that checks certificates as the documentation says.
func serveCluster(t *testing.T, dir string) *server.Server {
	t.Helper()
	files := fmt.Sprintf("cert_file: %q, key_file: %q, ca_file: %q", filepath.Join(dir, credentials.ServerCert),
		filepath.Join(dir, credentials.ServerKey), filepath.Join(dir, credentials.CACert))
	return bustest.ServeParticipants(t, dir, fmt.Sprintf("server_name: s\ntls { %s, verify: true }\ncluster { name: c, listen: "+
		"\"127.0.0.1:-1\", routes: [\"nats://localhost:1\"], tls { %[1]s, verify_cert_and_check_known_urls: true } }", files))
}

// opened reports whether the client key in a directory opens the port for clients, and the server key the port for servers, each with
// its old or its new certificate.
func opened(t *testing.T, s *server.Server, dir, keys string) (opened [2]bool) {
	t.Helper()
	for _, certificates := range []string{dir, keys} {
		pair := func(cert, key string) (string, string) {
			return filepath.Join(certificates, cert), filepath.Join(keys, key)
		}
		if cert, key := pair(credentials.ClientCert, credentials.ClientKey); matches(cert, key) {
			opened[0] = opened[0] || connects(t, s, dir, cert, key)
		}
		if cert, key := pair(credentials.ServerCert, credentials.ServerKey); matches(cert, key) {
			opened[1] = opened[1] || joins(t, s, cert, key)
		}
	}
	return opened
}

func matches(cert, key string) bool {
	_, err := tls.LoadX509KeyPair(cert, key)
	return err == nil
}

// connects connects as the reader.
func connects(t *testing.T, s *server.Server, dir, cert, key string) bool {
	t.Helper()
	seed, err := nats.NkeyOptionFromSeed(filepath.Join(dir, "reader.nk"))
	expect.Must(t, err)
	nc, err := nats.Connect("tls://"+s.Addr().String(), seed, nats.RootCAs(filepath.Join(dir, credentials.CACert)), nats.ClientCert(cert, key))
	if err != nil {
		return false
	}
	defer nc.Close()
	return nc.FlushTimeout(expect.Patience) == nil
}

// joins greets the port of the cluster as a server does.
func joins(t *testing.T, s *server.Server, cert, key string) bool {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	expect.Must(t, err)
	config := tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true} //nolint:gosec // the server checks the thief
	c, err := tls.Dial("tcp", s.ClusterAddr().String(), &config)
	expect.Must(t, err) // with TLS 1.3, the client learns later that the server refuses its certificate
	defer func() { _ = c.Close() }()
	expect.Must(t, c.SetDeadline(time.Now().Add(expect.Patience)))
	_, err = io.WriteString(c, "CONNECT {\"cluster\": \"c\", \"name\": \"thief\"}\r\nPING\r\n")
	lines := bufio.NewScanner(c)
	for err == nil && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "PONG") {
			return true
		}
	}
	if err = errors.Join(err, lines.Err()); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the server neither accepts nor refuses it", cert)
	}
	return false
}
