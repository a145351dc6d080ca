package main

import (
	"fmt"
	"os"

	"github.com/rehome-dev/rehome/bus"
)

// busOptions says where the bus is: at the URL, or at the socket of a rehome that runs on this machine as this user.
func busOptions(s settings, name string) (bus.Options, error) {
	o := bus.Options{
		Name: name, URL: s.NATSURL, CAFile: s.NATSCA, CertFile: s.NATSCert, KeyFile: s.NATSKey, NKeyFile: s.NATSNKey,
		CredsFile: s.NATSCreds,
	}
	if s.NATSURL != "" {
		return o, nil
	}
	var err error
	o.Socket, err = s.socket()
	return o, err
}

// startServer starts the embedded server, which can be reached at the socket.
func startServer(s settings) (*bus.Server, error) {
	dir, err := s.storeDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, usageError{fmt.Errorf("REHOME_STORE_DIR: %w", err)}
	}
	socket, err := s.socket()
	if err != nil {
		return nil, err
	}
	server, err := bus.StartServer(bus.ServerOptions{StoreDir: dir, Socket: socket})
	if err != nil { // it is in use, or not writable
		return nil, usageError{fmt.Errorf("REHOME_STORE_DIR: %w", err)}
	}
	return server, nil
}
