package serving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// lifetime is how long a certificate of our own holds, and remakeBefore how long before its end the next one is made:
	// long before any clock that is a little off thinks that it has ended.
	lifetime     = 30 * 24 * time.Hour
	remakeBefore = 10 * 24 * time.Hour
	// early is by how much the clock of a client may be behind.
	early = time.Hour
)

// SelfSigned is a certificate that vouches for itself. It lives in memory, and is made anew before it expires, with a new key.
// [NewSelfSigned] makes it.
type SelfSigned struct {
	names     []string
	addresses []net.IP
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	expires time.Time
}

// NewSelfSigned makes one for names, of which some may be IP addresses, by the clock now.
func NewSelfSigned(names []string, now func() time.Time) (*SelfSigned, error) {
	s := &SelfSigned{now: now}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			s.addresses = append(s.addresses, ip)
		} else {
			s.names = append(s.names, name)
		}
	}
	_, err := s.Certificate()
	return s, err
}

// Certificate implements [Certificates].
func (s *SelfSigned) Certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.current != nil && now.Before(s.expires.Add(-remakeBefore)) {
		return s.current, nil
	}
	made, err := s.make(now)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %v: %w", s.names, err)
	}
	s.current, s.expires = made, made.Leaf.NotAfter
	return s.current, nil
}

func (s *SelfSigned) make(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "rehome"},
		NotBefore: now.Add(-early), NotAfter: now.Add(lifetime), DNSNames: s.names, IPAddresses: s.addresses,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// mostAddresses bounds the names of this machine: one with many bridges needs no certificate with hundreds.
const mostAddresses = 16

// OwnNames are the names by which this machine or pod may be asked: localhost, its host name, the addresses of the loopback
// interface, and the first of the others that are there now, of which one is that of the pod.
func OwnNames() []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if host, err := os.Hostname(); err == nil && isASCII(host) && host != "localhost" {
		names = append([]string{host}, names...)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return names // the addresses are not known, and the rest still is
	}
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		if ok && n.IP.IsGlobalUnicast() && len(names) < mostAddresses && !slices.Contains(names, n.IP.String()) {
			names = append(names, n.IP.String())
		}
	}
	return names
}

// isASCII says whether a name can stand in a certificate.
func isASCII(name string) bool {
	return name != "" && !slices.ContainsFunc([]byte(name), func(b byte) bool { return b <= ' ' || b >= 0x7f })
}
