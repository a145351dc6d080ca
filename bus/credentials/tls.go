package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"time"
)

// The files of a certificate authority and of the certificates that it signs. The keys are secrets.
const (
	CACert     = "ca.crt"
	CAKey      = "ca.key"
	ServerCert = "server.crt"
	ServerKey  = "server.key"
	ClientCert = "client.crt"
	ClientKey  = "client.key"
)

const (
	// certifiedFor is how long the certificates of servers and clients are valid. Each [Write] makes new ones.
	certifiedFor = 365 * 24 * time.Hour
	// authorityFor is how long the certificate of the authority is valid, which is hard to replace.
	authorityFor = 10 * certifiedFor
	// skew is how far the clock of another program may be behind.
	skew = 5 * time.Minute
)

// certify creates certificates for hosts, if there are any.
func (w *writer) certify(hosts []string) (certified bool, err error) {
	if len(hosts) == 0 {
		return false, nil
	}
	for _, host := range hosts {
		if host == "" || strings.ContainsAny(host, " /:") && net.ParseIP(host) == nil {
			return false, fmt.Errorf("host %q: want a name or an address without a port, such as nats.nats.svc", host)
		}
	}
	now := time.Now()
	ca, err := w.authority(now)
	if err != nil {
		return false, err
	}
	server := leaf("rehome server", now, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, host)
		}
	}
	err = errors.Join(
		w.sign(ca, server, ServerCert, ServerKey),
		w.sign(ca, leaf("rehome client", now, x509.ExtKeyUsageClientAuth), ClientCert, ClientKey))
	return err == nil, err
}

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// authority reads the authority of the directory, or creates it.
func (w *writer) authority(now time.Time) (authority, error) {
	key, err := w.key(CAKey)
	if err != nil {
		return authority{}, err
	}
	text, err := w.keep(CACert, 0o644, func() ([]byte, error) {
		t := leaf("rehome bus", now)
		t.NotAfter = now.Add(authorityFor)
		t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
		t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
		return certificate(t, t, key, key)
	})
	if err != nil {
		return authority{}, err
	}
	file := filepath.Join(w.dir, CACert)
	block, _ := pem.Decode(text)
	if block == nil {
		return authority{}, fmt.Errorf("%s: want a certificate in PEM, got none", file)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return authority{}, fmt.Errorf("%s: %w", file, err)
	}
	switch {
	case !key.PublicKey.Equal(c.PublicKey):
		err = fmt.Errorf("%s: want the certificate of %s, got the certificate of another key: to make a new authority, "+
			"remove %s and all files that end in .key, and distribute the new files", file, CAKey, CACert)
	case c.NotAfter.Before(now.Add(certifiedFor)):
		err = fmt.Errorf("%s: it is valid only until %s: remove it and %s to make new ones, and distribute the new %s",
			file, c.NotAfter.Format(time.DateOnly), CAKey, CACert)
	}
	return authority{c, key}, err
}

// key reads a private key, or creates it.
func (w *writer) key(name string) (*ecdsa.PrivateKey, error) {
	text, err := w.keep(name, 0o600, func() ([]byte, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(w.dir, name)
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: want a private key in PEM, got none", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: want an ECDSA key, got %T", file, parsed)
	}
	return key, nil
}

// leaf returns a certificate without a signature.
func leaf(name string, now time.Time, usages ...x509.ExtKeyUsage) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: now.Add(certifiedFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usages,
	}
}

// sign writes a certificate for the key in a file. It creates the key if it is missing.
func (w *writer) sign(ca authority, t *x509.Certificate, certName, keyName string) error {
	key, err := w.key(keyName)
	if err != nil {
		return err
	}
	text, err := certificate(t, ca.certificate, key, ca.key)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(w.dir, certName), err)
	}
	return w.public(certName, text)
}

// certificate returns t in PEM, for a key, signed by its parent.
func certificate(t, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	t.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, parentKey)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}
