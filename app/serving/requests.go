package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
)

// RequestServer takes requests over HTTP at an address.
type RequestServer struct {
	Handler   http.Handler
	Listener  net.Listener
	transport Transport
	log       *slog.Logger
}

// ListenForRequests takes the address, so that what is wrong about it is known before any work begins. nil: there is none.
// Without TLS only the loopback interface is served: tokens travel in the open.
func ListenForRequests(s settings.Settings, log *slog.Logger) (*RequestServer, error) {
	if s.RequestAddress == "" {
		return nil, nil
	}
	with := s.RequestsTLS()
	switch {
	case s.RequestTLS == "" && (s.RequestCertFile == "") != (s.RequestKeyFile == ""):
		return nil, usage.Errorf("REHOME_REQUEST_CERT_FILE and REHOME_REQUEST_KEY_FILE: want both or none, got one of them")
	case with.Mode == settings.TLSOff && !isLoopback(s.RequestAddress):
		return nil, usage.Errorf("REHOME_REQUEST_ADDRESS: want REHOME_REQUEST_CERT_FILE and REHOME_REQUEST_KEY_FILE, "+
			"or REHOME_REQUEST_TLS=self-signed, for %s: without TLS, want a loopback address such as 127.0.0.1:8643", s.RequestAddress)
	}
	if err := with.Check(); err != nil {
		return nil, err
	}
	r := &RequestServer{log: log}
	var err error
	if r.transport, err = newTransport(with, s.HTTP2, log); err != nil {
		return nil, err
	}
	if r.Listener, err = net.Listen("tcp", s.RequestAddress); err != nil {
		return nil, usage.Errorf("REHOME_REQUEST_ADDRESS: cannot listen on %s: %w", s.RequestAddress, err)
	}
	return r, nil
}

// Close gives the address back, if nothing was served there. nil: there is nothing to close.
func (r *RequestServer) Close() {
	if r != nil {
		_ = r.Listener.Close() // it is closed already when it was served
	}
}

// isLoopback says whether nobody else than this machine can reach the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// Serve answers until ctx ends, and then as long as answering may take.
func (r *RequestServer) Serve(ctx context.Context) error {
	h := &http.Server{
		Handler: r.Handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		ended <- h.Shutdown(last)
	})()
	r.log.Info("taking requests", "address", r.Listener.Addr().String(), "tls", r.transport.Certificates != nil)
	if err := r.transport.Serve(h, r.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("take requests at %s: %w", r.Listener.Addr(), err)
	}
	return <-ended
}
