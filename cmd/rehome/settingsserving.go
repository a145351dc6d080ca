package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/rehome-dev/rehome/cmd/rehome/serving"
)

// How something is served, as REHOME_HTTP_TLS and REHOME_REQUEST_TLS say it.
const (
	tlsOff        = "off"
	tlsSelfSigned = "self-signed"
	tlsFiles      = "files"
)

// tlsSettings are the three variables that say how something is served.
type tlsSettings struct {
	variable        string // REHOME_HTTP or REHOME_REQUEST, with which all three begin
	mode, cert, key string
}

func (s settings) httpTLS() tlsSettings {
	return tlsSettings{"REHOME_HTTP", s.HTTPTLS, s.HTTPCertFile, s.HTTPKeyFile}
}

// requestTLS takes files for said where there are any.
func (s settings) requestTLS() tlsSettings {
	fallback := tlsOff
	if s.RequestCertFile != "" || s.RequestKeyFile != "" {
		fallback = tlsFiles
	}
	return tlsSettings{"REHOME_REQUEST", cmp.Or(s.RequestTLS, fallback), s.RequestCertFile, s.RequestKeyFile}
}

// checkServing says what is wrong with how everything is served, but for files, which are read when it begins.
func (s settings) checkServing() error {
	requests := s.requestTLS()
	if err := errors.Join(s.httpTLS().check(), requests.checkMode()); err != nil {
		return err
	}
	switch off := s.HTTPTLS == tlsOff; {
	case s.HTTPAuth && off:
		return usageError{errors.New("REHOME_HTTP_AUTH: want REHOME_HTTP_TLS=self-signed or files with it, got off: " +
			"tokens would travel in the open")}
	case s.HTTP2 && off && (s.RequestAddress == "" || requests.mode == tlsOff):
		return usageError{errors.New("REHOME_HTTP2: want REHOME_HTTP_TLS or REHOME_REQUEST_TLS to be self-signed or files, " +
			"got off: HTTP/2 is offered over TLS only")}
	}
	return nil
}

func (t tlsSettings) checkMode() error {
	if t.mode != tlsOff && t.mode != tlsSelfSigned && t.mode != tlsFiles {
		return usageError{fmt.Errorf("%s_TLS: want off, self-signed or files, got %q", t.variable, t.mode)}
	}
	return nil
}

// check says which of the three does not go with the others.
func (t tlsSettings) check() error {
	if err := t.checkMode(); err != nil {
		return err
	}
	for _, file := range []struct{ suffix, value, what string }{
		{"_CERT_FILE", t.cert, "the certificate"}, {"_KEY_FILE", t.key, "the key of the certificate"},
	} {
		switch {
		case t.mode == tlsFiles && file.value == "":
			return usageError{fmt.Errorf("%s%s: want the file with %s, since %s_TLS is files, got nothing",
				t.variable, file.suffix, file.what, t.variable)}
		case t.mode != tlsFiles && file.value != "":
			return usageError{fmt.Errorf("%s%s: want it with %s_TLS=files, got %s_TLS=%s",
				t.variable, file.suffix, t.variable, t.variable, t.mode)}
		}
	}
	return nil
}

// transport makes what the three say. http2 is offered where there is TLS.
func (t tlsSettings) transport(http2 bool, log *slog.Logger) (serving.Transport, error) {
	switch t.mode {
	case tlsSelfSigned:
		made, err := serving.NewSelfSigned(serving.OwnNames(), time.Now)
		if err != nil {
			return serving.Transport{}, fmt.Errorf("%s_TLS: %w", t.variable, err)
		}
		return serving.Transport{Certificates: made, HTTP2: http2}, nil
	case tlsFiles:
		read, err := serving.ReadFiles(t.cert, t.key, log)
		if err != nil {
			return serving.Transport{}, usageError{fmt.Errorf("%s: %w", t.wrong(err), err)}
		}
		return serving.Transport{Certificates: read, HTTP2: http2}, nil
	}
	return serving.Transport{}, nil
}

// wrong is the variable of the file that an error is about: of the certificate, unless it is surely the key.
func (t tlsSettings) wrong(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok && p.Path == t.key && p.Path != t.cert {
		return t.variable + "_KEY_FILE"
	}
	return t.variable + "_CERT_FILE"
}
