package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rehome-dev/rehome/app/settings"
)

// tlsConfig returns the configuration that the settings ask for; nil means plain HTTP. A certificate in files is read again by
// the returned watcher.
func tlsConfig(with settings.TLS, log *slog.Logger) (*tls.Config, *certwatcher.CertWatcher, error) {
	switch with.Mode {
	case settings.TLSSelfSigned:
		c := &selfSigned{names: ownNames()}
		if _, err := c.GetCertificate(nil); err != nil {
			return nil, nil, fmt.Errorf("%s_TLS: %w", with.Variable, err)
		}
		return &tls.Config{MinVersion: minVersion, GetCertificate: c.GetCertificate}, nil, nil
	case settings.TLSFiles:
		ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
		w, err := certwatcher.New(with.Cert, with.Key)
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			variable := with.Variable + "_CERT_FILE"
			if p.Path == with.Key && p.Path != with.Cert {
				variable = with.Variable + "_KEY_FILE"
			}
			return nil, nil, fmt.Errorf("%s: %w", variable, err)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s_CERT_FILE: %s with %s: %w", with.Variable, with.Cert, with.Key, err)
		}
		return &tls.Config{MinVersion: minVersion, GetCertificate: w.GetCertificate}, w, nil
	}
	return nil, nil, nil
}

const (
	// minVersion is the oldest TLS that is accepted.
	minVersion = tls.VersionTLS12
	// lifetime is how long a self-signed certificate is valid, and renewBefore how long before its end the next one is made.
	lifetime    = 30 * 24 * time.Hour
	renewBefore = 10 * 24 * time.Hour
)

// selfSigned is a certificate in memory. It is made again, with a new key, before it expires.
type selfSigned struct {
	names []string // DNS names and IP addresses; the first one is a DNS name

	mu      sync.Mutex
	current *tls.Certificate
}

// GetCertificate implements the function of that name in [tls.Config].
func (s *selfSigned) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && time.Until(s.current.Leaf.NotAfter) > renewBefore {
		return s.current, nil
	}
	options := cert.SelfSignedCertKeyOptions{Host: s.names[0], MaxAge: lifetime}
	for _, name := range s.names[1:] {
		if ip := net.ParseIP(name); ip != nil {
			options.AlternateIPs = append(options.AlternateIPs, ip)
		} else {
			options.AlternateDNS = append(options.AlternateDNS, name)
		}
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKeyWithOptions(options)
	if err != nil {
		return nil, fmt.Errorf("certificate for %v: %w", s.names, err)
	}
	made, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate for %v: %w", s.names, err)
	}
	s.current = &made
	return s.current, nil
}

// mostNames limits the names in a certificate: some machines have hundreds of addresses.
const mostNames = 16

// ownNames returns the names and addresses of this machine or pod, localhost first.
func ownNames() []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if host, err := os.Hostname(); err == nil && isASCII(host) && host != "localhost" {
		names = append(names, host)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return names
	}
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		if ok && n.IP.IsGlobalUnicast() && len(names) < mostNames && !slices.Contains(names, n.IP.String()) {
			names = append(names, n.IP.String())
		}
	}
	return names
}

func isASCII(name string) bool {
	return name != "" && !slices.ContainsFunc([]byte(name), func(b byte) bool { return b <= ' ' || b >= 0x7f })
}
