package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net"
)

// How something is served, as REHOME_HTTP_TLS and REHOME_API_TLS say it.
const (
	TLSOff        = "off"
	TLSSelfSigned = "self-signed"
	TLSFiles      = "files"
)

// TLS are the three variables that say how something is served.
type TLS struct {
	Variable        string // the prefix of all three: REHOME_HTTP or REHOME_API
	Mode, Cert, Key string
}

// MetricsTLS is TLS of the address of the metrics.
func (s Settings) MetricsTLS() TLS {
	return TLS{"REHOME_HTTP", s.HTTPTLS, s.HTTPCertFile, s.HTTPKeyFile}
}

// NetworkTLS is TLS of the network address of the API. If the mode is empty and there are files, it is files.
func (s Settings) NetworkTLS() TLS {
	fallback := TLSOff
	if s.APICertFile != "" || s.APIKeyFile != "" {
		fallback = TLSFiles
	}
	return TLS{"REHOME_API", cmp.Or(s.APITLS, fallback), s.APICertFile, s.APIKeyFile}
}

// checkServing checks TLS settings. Files are read later.
func (s Settings) checkServing() error {
	api := s.NetworkTLS()
	if err := errors.Join(s.MetricsTLS().Check(), api.checkMode()); err != nil {
		return err
	}
	switch off := s.HTTPTLS == TLSOff; {
	case s.HTTPAuth && off:
		return fmt.Errorf("REHOME_HTTP_AUTH: want REHOME_HTTP_TLS=self-signed or files with it, got off: " +
			"tokens would travel in the open")
	case s.HTTP2 && off && (s.APIAddress == "" || api.Mode == TLSOff):
		return fmt.Errorf("REHOME_HTTP2: want REHOME_HTTP_TLS or REHOME_API_TLS to be self-signed or files, " +
			"got off: HTTP/2 is offered over TLS only")
	}
	return nil
}

func (t TLS) checkMode() error {
	if t.Mode != TLSOff && t.Mode != TLSSelfSigned && t.Mode != TLSFiles {
		return fmt.Errorf("%s_TLS: want off, self-signed or files, got %q", t.Variable, t.Mode)
	}
	return nil
}

// Check says which of the three does not go with the others.
func (t TLS) Check() error {
	if err := t.checkMode(); err != nil {
		return err
	}
	for _, file := range []struct{ suffix, value, what string }{
		{"_CERT_FILE", t.Cert, "the certificate"}, {"_KEY_FILE", t.Key, "the key of the certificate"},
	} {
		switch {
		case t.Mode == TLSFiles && file.value == "":
			return fmt.Errorf("%s%s: want the file with %s, since %s_TLS is files, got nothing",
				t.Variable, file.suffix, file.what, t.Variable)
		case t.Mode != TLSFiles && file.value != "":
			return fmt.Errorf("%s%s: want it with %s_TLS=files, got %s_TLS=%s",
				t.Variable, file.suffix, t.Variable, t.Variable, t.Mode)
		}
	}
	return nil
}

// IsLoopback reports whether a host without a port is this machine, so that TLS protects nothing more.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
