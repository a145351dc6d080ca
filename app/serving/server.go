// Package serving is an HTTP server: its address, its certificate, and its clients.
//
//	Listen ▶ Server.Serve   server.go        one address: TLS, HTTP/2, timeouts, and an orderly end
//	connections             connections.go   how many connections may be open
//	TLSConfig               tls.go           a self-signed certificate, or two files that certwatcher reads again
//	NewStatus ▶ Handler     status.go        /metrics, /healthz, /readyz, and profiles
//	Guard.Protect           guard.go         only users that RBAC lets get the path
package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/rehome-dev/rehome/app/settings"
)

// Server serves HTTP at one address. Use [Listen] to make one. Set the handler and, where the defaults are too short,
// timeouts before Serve.
type Server struct {
	http.Server
	Listener net.Listener // nil serves nothing
	// Grace is how long requests in progress may take after the end. Zero cancels them.
	Grace time.Duration
	// Drain, if set, is called at the end before connections are closed.
	Drain func(context.Context) error

	variable    string // the setting of the address
	certificate settings.TLS
	files       *certwatcher.CertWatcher // nil if the certificate is not in files
	connections connections
	log         *slog.Logger
}

// Listen opens an address, so that errors of the settings appear before any work begins. variable names the setting in
// errors.
func Listen(variable, address string, with settings.TLS, http2 bool, log *slog.Logger) (*Server, error) {
	s := &Server{variable: variable, certificate: with, log: log}
	if address == "" {
		return s, nil
	}
	var err error
	if s.TLSConfig, s.files, err = tlsConfig(with, log); err != nil {
		return nil, err
	}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(http2 && s.TLSConfig != nil)
	s.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 5*time.Second, 10*time.Second, time.Minute, time.Minute
	s.MaxHeaderBytes, s.HTTP2 = mostHeaderBytes, &http.HTTP2Config{MaxConcurrentStreams: mostStreams}
	s.ConnState = s.connections.changed
	s.DisableGeneralOptionsHandler = true // it reads bodies before the handler of the connections sees the request
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn) //nolint:forbidigo // net/http passes the connection in no other way
	}
	if s.Listener, err = net.Listen("tcp", address); err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w", variable, address, err)
	}
	return s, nil
}

// ListenForAPI takes the network address of the API. Without TLS it must be a loopback address, since calls carry tokens.
func ListenForAPI(s settings.Settings, log *slog.Logger) (*Server, error) {
	with := s.NetworkTLS()
	if s.APIAddress != "" {
		switch {
		case s.APITLS == "" && (s.APICertFile == "") != (s.APIKeyFile == ""):
			return nil, fmt.Errorf("REHOME_API_CERT_FILE and REHOME_API_KEY_FILE: want both or none, got one of them")
		case with.Mode == settings.TLSOff && !isLocal(s.APIAddress):
			return nil, fmt.Errorf("REHOME_API_ADDRESS: want REHOME_API_CERT_FILE and REHOME_API_KEY_FILE, "+
				"or REHOME_API_TLS=self-signed, for %s: without TLS, want a loopback address such as 127.0.0.1:8643", s.APIAddress)
		}
		if err := with.Check(); err != nil {
			return nil, err
		}
	}
	return listenForAPI("REHOME_API_ADDRESS", s.APIAddress, with, s.HTTP2, log)
}

// ListenForOperator takes the loopback address of the API. It needs no token, so other addresses are refused.
func ListenForOperator(s settings.Settings, log *slog.Logger) (*Server, error) {
	if s.APILocal != "" && !isLocal(s.APILocal) {
		return nil, fmt.Errorf("REHOME_API_LOCAL: want a loopback address such as 127.0.0.1:8644, since it needs no token, got %s; "+
			"REHOME_API_ADDRESS serves other machines", s.APILocal)
	}
	return listenForAPI("REHOME_API_LOCAL", s.APILocal, settings.TLS{Mode: settings.TLSOff}, false, log)
}

func listenForAPI(variable, address string, with settings.TLS, http2 bool, log *slog.Logger) (*Server, error) {
	s, err := Listen(variable, address, with, http2, log)
	if err != nil {
		return nil, err
	}
	s.WriteTimeout, s.Grace = 45*time.Second, 10*time.Second // a simulation takes up to 30 seconds
	return s, nil
}

func isLocal(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && settings.IsLoopback(host)
}

// URL returns the address of a path.
func (s *Server) URL(path string) string {
	if s.TLSConfig == nil {
		return "http://" + s.Listener.Addr().String() + path
	}
	return "https://" + s.Listener.Addr().String() + path
}

// Close closes an address that was not served.
func (s *Server) Close() {
	if s.Listener != nil {
		_ = s.Listener.Close() // after Serve it is closed already
	}
}

// Serve answers requests until ctx ends, and then completes the requests in progress. It fails if that takes longer
// than the grace period.
func (s *Server) Serve(ctx context.Context) error {
	if s.Listener == nil {
		<-ctx.Done()
		return nil
	}
	if s.files != nil {
		go func() {
			if err := s.files.Start(ctx); err != nil {
				s.log.Error("cannot watch the certificate files; restart to load new ones",
					"certificate", s.certificate.Cert, "key", s.certificate.Key, "error", err)
			}
		}()
	}
	if s.Grace == 0 {
		s.BaseContext = func(net.Listener) context.Context { return ctx }
	}
	ended := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(s.Grace, time.Second))
		defer cancel()
		var err error
		if s.Drain != nil { // connections are still accepted meanwhile
			err = s.Drain(last)
		}
		if err = errors.Join(err, s.Shutdown(last)); s.Grace == 0 {
			err = nil
		}
		ended <- err
	})()
	s.Handler = s.connections.handler(s.Handler)
	serve := s.Server.Serve
	if s.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	if err := serve(s.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.Listener.Addr(), err)
	}
	return <-ended
}
