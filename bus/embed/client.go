package embed

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// ClientOptions returns the options of a NATS client in this process. The client may do everything.
func (s *Server) ClientOptions() ([]nats.Option, error) { return clientOptions(s, s.seed) }

// SocketOptions returns the options of a NATS client for the socket of a server in another process of this user, whether the
// server runs or not. The client may do everything.
func SocketOptions(path string) ([]nats.Option, error) {
	seed, err := os.ReadFile(seedBeside(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return clientOptions(socketDialer(path), seed)
}

// clientOptions connects a client with the key of a seed. nil means that the server asks for no key.
func clientOptions(to nats.InProcessConnProvider, seed []byte) ([]nats.Option, error) {
	options := []nats.Option{nats.InProcessServer(to)}
	if seed == nil {
		return options, nil
	}
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return nil, err
	}
	public, err := pair.PublicKey()
	return append(options, nats.Nkey(public, pair.Sign)), err
}

// InProcessConn opens a connection to the server for a NATS client in this process.
func (s *Server) InProcessConn() (net.Conn, error) { return s.nats.InProcessConn() }

// socketDialer makes the NATS client use a socket as if the server were in its process.
type socketDialer string

// InProcessConn connects to the socket.
func (path socketDialer) InProcessConn() (net.Conn, error) {
	return net.DialTimeout("unix", string(path), dialWithin)
}
