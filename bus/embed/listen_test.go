package embed_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/credentials"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestUnknownClientDisconnect(t *testing.T) {
	server, o := bustest.Listening(t, credentials.Config{})
	dir := o.Listen.Participants
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(dir, credentials.CACert))
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no CA", err)
	}
	handshake := func(c net.Conn) net.Conn {
		if _, err := c.Read(make([]byte, 4096)); err != nil { // the server speaks first
			t.Fatal(err)
		}
		s := tls.Client(c, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
		if err := s.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	plain := func(c net.Conn) net.Conn { return c }
	for name, test := range map[string]struct {
		open func(net.Conn) net.Conn
		says string
	}{
		"silence":                     {plain, ""},
		"garbage instead of TLS":      {plain, strings.Repeat("garbage ", 1000)},
		"an introduction without TLS": {plain, "CONNECT {}\r\nPING\r\n"},
		"silence within TLS":          {handshake, ""},
		"garbage within TLS":          {handshake, strings.Repeat("garbage ", 1000)},
		"a line that is too long":     {handshake, "CONNECT {\"name\":\"" + strings.Repeat("x", 8192) + "\"}\r\n"},
		"no key":                      {handshake, "CONNECT {}\r\nPING\r\n"},
		"a message before its name":   {handshake, "PUB rehome.verdict.a.b.c.d 2\r\n{}\r\n"},
		"an unknown key":              {handshake, "CONNECT {\"nkey\":\"UABC\",\"sig\":\"abc\"}\r\nPING\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := net.Dial("tcp", server.Addr().String())
			expect.Must(t, err)
			defer raw.Close()
			if err := raw.SetDeadline(time.Now().Add(expect.Patience)); err != nil {
				t.Fatal(err)
			}
			c := test.open(raw)
			_, _ = io.WriteString(c, test.says) // it may have been cut off by then
			_, err = io.Copy(io.Discard, c)
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				t.Errorf("it is still connected after %v", expect.Patience)
			}
		})
	}
}

func TestIncompleteListenOptions(t *testing.T) {
	server, o := bustest.Listening(t, credentials.Config{})
	dir := o.Listen.Participants
	users := filetest.New(t, "users.conf", "accounts { REHOME { jetstream: enabled, users: [{user: a, password: b}] } }")
	for name, test := range map[string]struct {
		change func(*embed.Listen)
		says   string
	}{
		"no address":       {func(l *embed.Listen) { l.Address = "4222" }, "want an address such as 0.0.0.0:4222"},
		"no port":          {func(l *embed.Listen) { l.Address = "127.0.0.1:nats" }, "want a port"},
		"a taken port":     {func(l *embed.Listen) { l.Address = server.Addr().String() }, "in use"},
		"no certificate":   {func(l *embed.Listen) { l.CertFile = "" }, `certificate ""`},
		"no key":           {func(l *embed.Listen) { l.KeyFile = "" }, `with key ""`},
		"another's key":    {func(l *embed.Listen) { l.KeyFile = filepath.Join(dir, credentials.ClientKey) }, "private key does not match"},
		"no participants":  {func(l *embed.Listen) { l.Participants = "" }, "participants"},
		"passwords":        {func(l *embed.Listen) { l.Participants = users }, "whose users all have nkeys"},
		"another file":     {func(l *embed.Listen) { l.Participants = l.CertFile }, "participants"},
		"another account":  {func(l *embed.Listen) { l.Account = "OTHER" }, "want an account OTHER"},
		"an empty account": {func(l *embed.Listen) { l.Participants = t.TempDir() }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			o := embed.Options{StoreDir: t.TempDir(), Listen: o.Listen}
			test.change(&o.Listen)
			s, err := embed.Start(o)
			if err == nil {
				s.Stop()
			}
			if !errors.Is(err, embed.ErrListen) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want an error that says %s", err, test.says)
			}
		})
	}
}

func TestSocketKeyPermissions(t *testing.T) {
	server, o := bustest.Listening(t, credentials.Config{})
	file := o.Socket + ".nk"
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v; want a file of mode 0600", info, err)
	}
	before, err := os.ReadFile(file)
	expect.Must(t, err)
	server.Stop()
	again, err := embed.Start(o)
	expect.Must(t, err)
	after, err := os.ReadFile(file)
	again.Stop()
	if !slices.Equal(before, after) || err != nil {
		t.Errorf("after a restart the key is another, %v", err)
	}
	o.Listen = embed.Listen{}
	closed := bustest.Server(t, o)
	if closed.Addr() != nil {
		t.Errorf("it listens at %v", closed.Addr())
	}
	bustest.SetUp(t, bustest.Connect(t, bus.Options{Socket: o.Socket}), bus.Setup{})
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key: got %v, want none", err)
	}
}

// TestStoreAfterListenChange uses a store with and without a network address: the streams are in different accounts. The server
// reports an unknown stream after 10 seconds.
func TestStoreAfterListenChange(t *testing.T) {
	t.Parallel()
	for name, listens := range map[string]bool{"on": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, o := bustest.Listening(t, credentials.Config{})
			server.Stop()
			before, after := o, o
			if listens {
				before.Listen = embed.Listen{}
			} else {
				after.Listen = embed.Listen{}
			}
			server = bustest.Server(t, before)
			bustest.SetUp(t, bustest.Connect(t, bus.Options{Server: server}), bus.Setup{})
			server.Stop()
			server = bustest.Server(t, after)
			bustest.SetUp(t, bustest.Connect(t, bus.Options{Server: server}), bus.Setup{})
			time.Sleep(12 * time.Second)
			expect.Must(t, server.Ready())
		})
	}
}
