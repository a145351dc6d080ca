package embed

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// The limits of a server that listens, far above the needs of participants. The first one also applies to the socket.
const (
	maxConnections   = 128
	maxSubscriptions = 256              // per connection; a client has one or two for each stream that it reads
	maxPending       = 32 << 20         // bytes that wait for a slow connection before the server closes it
	writeWithin      = 5 * time.Second  // a connection that takes no byte for so long is closed
	introduceWithin  = 2 * time.Second  // for the handshake, and as much again for the key
	askAlive         = 20 * time.Second // between pings of a silent connection
	maxControlLine   = server.MAX_CONTROL_LINE_SIZE
)

// Listen configures how a server listens on the network. With the zero value it does not listen. It requires a
// certificate, and participants with keys.
type Listen struct {
	// Address is a host and a port, such as 0.0.0.0:4222.
	Address string
	// CertFile and KeyFile are PEM files with the certificate of the server and its key.
	CertFile, KeyFile string
	// Participants is the file rehome.conf from `rehome auth init`, or its directory. Other settings in the file are ignored.
	Participants string
	// Account is the account of the streams in that file.
	Account string
}

// ErrListen is wrapped by the error of a server that cannot listen.
var ErrListen = errors.New("cannot listen")

// seedBeside returns the path of the key for a socket, which other processes of this user can read.
func seedBeside(socket string) string { return socket + ".nk" }

// apply makes the server listen. It adds a user without limits for this process, and returns the seed of its key.
func (l Listen) apply(o *server.Options, socket string) (seed []byte, err error) {
	host, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return nil, fmt.Errorf("want an address such as 0.0.0.0:4222, got %q: %w", l.Address, err)
	}
	if o.Port, err = strconv.Atoi(port); err != nil || o.Port < 0 || o.Port > 65535 {
		return nil, fmt.Errorf("want a port from 0 to 65535, got %q", port)
	}
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	certificate, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %q with key %q: %w", l.CertFile, l.KeyFile, err)
	}
	known, account, err := l.participants()
	if err != nil {
		return nil, fmt.Errorf("participants: %w", err)
	}
	seed, public, err := ownKey(socket)
	if err != nil {
		return nil, fmt.Errorf("own key: %w", err)
	}
	o.DontListen, o.Host = false, host
	o.TLS, o.TLSTimeout = true, introduceWithin.Seconds()
	o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	o.Accounts = known.Accounts
	o.Nkeys = append(known.Nkeys, &server.NkeyUser{Nkey: public, Account: account})
	o.AuthTimeout = 2 * introduceWithin.Seconds() // it runs from the beginning of the handshake
	o.MaxConn, o.MaxSubs, o.MaxPending, o.MaxControlLine = maxConnections, maxSubscriptions, maxPending, maxControlLine
	o.WriteDeadline, o.PingInterval = writeWithin, askAlive
	return seed, nil
}

// participants reads the participants and their account from the file.
func (l Listen) participants() (*server.Options, *server.Account, error) {
	file := l.Participants
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, "rehome.conf")
	}
	if _, err := os.Stat(file); err != nil {
		return nil, nil, err
	}
	known, err := server.ProcessConfigFile(file)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range known.Accounts {
		if a.Name == l.Account && len(known.Nkeys) > 0 && len(known.Users) == 0 && known.NoAuthUser == "" {
			return known, a, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: want an account %s whose users all have nkeys, as rehome auth init writes it", file, l.Account)
}

// ownKey returns the key of this process. With a socket, the key is in the file beside the socket, for other processes of this
// user.
func ownKey(socket string) (seed []byte, public string, err error) {
	if socket != "" {
		if seed, err = os.ReadFile(seedBeside(socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", err
		}
	}
	var pair nkeys.KeyPair
	if len(seed) > 0 {
		pair, err = nkeys.FromSeed(seed)
	} else if pair, err = nkeys.CreateUser(); err == nil {
		if seed, err = pair.Seed(); err == nil && socket != "" {
			err = os.WriteFile(seedBeside(socket), seed, 0o600)
		}
	}
	if err != nil {
		return nil, "", err
	}
	public, err = pair.PublicKey()
	return seed, public, err
}

// Addr returns the network address, or nil if the server does not listen.
func (s *Server) Addr() net.Addr {
	if s.seed == nil {
		return nil
	}
	return s.nats.Addr()
}
