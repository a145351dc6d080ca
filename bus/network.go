package bus

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Account is the account of a server in which Rehome lives, where participants are told apart.
const Account = "REHOME"

// The limits of an embedded server that listens. Nobody who takes part comes near them.
const (
	maxConnections   = 128
	maxSubscriptions = 256              // of one connection; a client has one or two for each stream that it reads
	maxPending       = 32 << 20         // bytes that wait for one slow connection; then it is cut
	writeWithin      = 5 * time.Second  // and so it is when it takes nothing at all
	introduceWithin  = 2 * time.Second  // for the handshake, and as much again to say who it is
	askAlive         = 20 * time.Second // how often who is silent is asked
	maxControlLine   = server.MAX_CONTROL_LINE_SIZE
)

// Listen says where an embedded server can be reached over the network. The zero value: nowhere. There is no listening
// without a certificate and without participants who are known by their keys.
type Listen struct {
	// Address is a host and a port, such as 0.0.0.0:4222.
	Address string
	// CertFile and KeyFile are PEM files with the certificate of the server and its key.
	CertFile, KeyFile string
	// Participants is the file rehome.conf of `rehome setup --auth`, or the directory that it is in. Of what else can be in
	// a server's configuration nothing is looked at.
	Participants string
}

// ErrListen is wrapped by errors of [StartServer] that say why a server cannot listen.
var ErrListen = errors.New("cannot listen")

// seedBeside is where other processes of this user find the key for a socket. Who may read it may use the socket.
func seedBeside(socket string) string { return socket + ".nk" }

// apply lets the server listen, and adds a user without limits, whose seed it returns, for this process.
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

// participants reads who may take part, and finds the account that they are in.
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
		if a.Name == Account && len(known.Nkeys) > 0 && len(known.Users) == 0 && known.NoAuthUser == "" {
			return known, a, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: want an account %s whose users all have nkeys, as rehome setup --auth writes it", file, Account)
}

// ownKey makes the key of this process. With a socket it is the one beside it, so that other processes of this user have it.
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

// known lets a client say who it is with a seed.
func known(seed []byte) (nats.Option, error) {
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
	if err != nil {
		return nil, err
	}
	public, err := pair.PublicKey()
	return nats.Nkey(public, pair.Sign), err
}

// Addr is where the server listens. nil: nowhere.
func (s *Server) Addr() net.Addr {
	if s.seed == nil {
		return nil
	}
	return s.nats.Addr()
}
