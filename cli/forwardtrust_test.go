package cli

import (
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// newTLSSink serves a sink over TLS until the end of the test, with an untrusted certificate.
func newTLSSink(t *testing.T) (s *sink, server *httptest.Server) {
	t.Helper()
	s = &sink{posts: map[string]int{}}
	server = httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // of failed handshakes
	server.StartTLS()
	t.Cleanup(server.Close)
	return s, server
}

func TestForwardTrustsKnativeAuthorities(t *testing.T) {
	b := busOf(t)
	s, server := newTLSSink(t)
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	publishAll(t, b, verdictsOf(t, "a")...)
	t.Setenv("K_SINK", server.URL)
	t.Setenv("K_CA_CERTS", "# of the cluster\n"+certificate)
	forwarding(t, b)
	done(t, b)
	if got, want := s.counts(), map[string]int{"a": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestForwardToUntrustedSink(t *testing.T) {
	b := busOf(t)
	s, server := newTLSSink(t)
	publishAll(t, b, verdictsOf(t, "a")...)
	address := expect.Value(t, program.FreeAddress)
	stop := forwarding(t, b, "--to", server.URL, "--tries", "1", "--http-address", address)
	got := regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(until(t, "http://"+address+"/readyz", http.StatusServiceUnavailable), "SINK")
	want := "post to https://SINK: unreachable: tls: failed to verify certificate: x509: certificate signed by unknown authority\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	stop()
	backlog, err := b.Backlog(t.Context(), "sink")
	if want := (bus.Backlog{Open: 1}); err != nil || backlog != want {
		t.Errorf("left: got %+v, %v; want %+v", backlog, err, want)
	}
	if posts, dead := s.counts(), deadIDs(t, b); len(posts) > 0 || len(dead) > 0 {
		t.Errorf("posts %v and dead letters %v, want none", posts, dead)
	}
}

func TestUnreadableAuthorities(t *testing.T) {
	const want = "K_CA_CERTS: want certificates of authorities in PEM, got no readable one"
	for name, text := range map[string]string{
		"no PEM":         "/etc/ssl/ca.crt",
		"no certificate": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
		"a broken one":   "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	} {
		t.Setenv("K_CA_CERTS", text)
		_, err := execute(t, "forward", "--to", "https://sink.example/")
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}
