package serving

import (
	"crypto/tls"
	"net"
	"net/http"
)

// Certificates know the certificate to show. [SelfSigned] and [Files] implement it.
type Certificates interface {
	// Certificate is the one of this moment. It may be called from many goroutines.
	Certificate() (*tls.Certificate, error)
}

// Transport is over what is served. The zero value is HTTP/1.1 without TLS.
type Transport struct {
	// Certificates are those of the server. nil: it is served without TLS.
	Certificates Certificates
	// HTTP2 offers HTTP/2 to clients that speak TLS, besides HTTP/1.1. Without TLS there is none.
	HTTP2 bool
}

// Scheme is how a URL of what is served begins: http or https.
func (t Transport) Scheme() string {
	if t.Certificates == nil {
		return "http"
	}
	return "https"
}

// Serve answers on l as [http.Server.Serve] does, and returns what it returns. It sets the protocols and the TLS configuration
// of s, which is not to be served twice.
func (t Transport) Serve(s *http.Server, l net.Listener) error {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(t.HTTP2)
	if t.Certificates == nil {
		return s.Serve(l)
	}
	s.TLSConfig = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.Certificates.Certificate() },
	}
	return s.ServeTLS(l, "", "")
}
