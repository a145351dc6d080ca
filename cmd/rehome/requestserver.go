package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// requestServer takes requests over HTTP at an address.
type requestServer struct {
	handler  http.Handler
	listener net.Listener
	config   *tls.Config // nil: without TLS
	log      *slog.Logger
}

// listenForRequests takes the address, so that what is wrong about it is known before any work begins. nil: there is none.
// Without TLS only the loopback interface is served: tokens travel in the open.
func listenForRequests(s settings, log *slog.Logger) (*requestServer, error) {
	if s.RequestAddress == "" {
		return nil, nil
	}
	r := &requestServer{log: log}
	switch {
	case (s.RequestCertFile == "") != (s.RequestKeyFile == ""):
		return nil, usageError{errors.New("REHOME_REQUEST_CERT_FILE and REHOME_REQUEST_KEY_FILE: want both or none, got one of them")}
	case s.RequestCertFile != "":
		read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { // each time, since the files are replaced now and then
			c, err := tls.LoadX509KeyPair(s.RequestCertFile, s.RequestKeyFile)
			return &c, err
		}
		if _, err := read(nil); err != nil {
			return nil, usageError{fmt.Errorf("REHOME_REQUEST_CERT_FILE: %w", err)}
		}
		r.config = &tls.Config{GetCertificate: read, MinVersion: tls.VersionTLS12}
	case !isLoopback(s.RequestAddress):
		return nil, usageError{fmt.Errorf("REHOME_REQUEST_ADDRESS: want REHOME_REQUEST_CERT_FILE and REHOME_REQUEST_KEY_FILE for %s: "+
			"without TLS, want a loopback address such as 127.0.0.1:8643", s.RequestAddress)}
	}
	var err error
	if r.listener, err = net.Listen("tcp", s.RequestAddress); err != nil {
		return nil, usageError{fmt.Errorf("REHOME_REQUEST_ADDRESS: cannot listen on %s: %w", s.RequestAddress, err)}
	}
	return r, nil
}

// close gives the address back, if nothing was served there. nil: there is nothing to close.
func (r *requestServer) close() {
	if r != nil {
		_ = r.listener.Close() // it is closed already when it was served
	}
}

// isLoopback says whether nobody else than this machine can reach the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// serve answers until ctx ends, and then as long as answering may take.
func (r *requestServer) serve(ctx context.Context) error {
	h := &http.Server{
		Handler: r.handler, TLSConfig: r.config, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		ended <- h.Shutdown(last)
	})()
	r.log.Info("taking requests", "address", r.listener.Addr().String(), "tls", r.config != nil)
	var err error
	if r.config != nil {
		err = h.ServeTLS(r.listener, "", "")
	} else {
		err = h.Serve(r.listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("take requests at %s: %w", r.listener.Addr(), err)
	}
	return <-ended
}
