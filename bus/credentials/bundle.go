package credentials

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Servers is the name of the bundle of the NATS servers.
const Servers = "server"

// Bundle holds the files of one participant, or of the servers.
type Bundle struct {
	// Name is the name of the participant, such as watcher or sender-batch, or [Servers].
	Name string
	// Files are [Authority], [Certificate], [CertificateKey], and the [Seed] of a participant or the [ServerConfig].
	Files map[string][]byte
}

// The names of the files in a [Bundle]. All participants have the same certificate, which opens the connection. The seed
// identifies the participant.
const (
	Seed           = "nkey"
	Authority      = "ca.crt"
	Certificate    = "tls.crt"
	CertificateKey = "tls.key"
)

// ErrNoCertificates says that a directory lacks certificates or their keys.
var ErrNoCertificates = errors.New("no certificates")

// CheckBundles returns an error that wraps [ErrNoCertificates] if [Bundles] would find no certificates in dir after [Write].
func CheckBundles(dir string, c Config) error {
	if len(c.Hosts) > 0 {
		return nil
	}
	var missing []string
	for _, name := range []string{CACert, ServerCert, ServerKey, ClientCert, ClientKey} {
		_, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
		} else if err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s has no %s", ErrNoCertificates, dir, strings.Join(missing, ", "))
	}
	return nil
}

// Bundles reads the bundles from the directory that [Write] wrote c into: first the servers, then the participants in the order
// of [Config.Participants]. None has the key of the certificate authority.
func Bundles(dir string, c Config) (all []Bundle, err error) {
	read := func(name string) (text []byte) {
		if err == nil {
			text, err = os.ReadFile(filepath.Join(dir, name))
		}
		return text
	}
	ca := read(CACert)
	all = []Bundle{{Servers, map[string][]byte{
		ServerConfig: read(ServerConfig), Authority: ca, Certificate: read(ServerCert), CertificateKey: read(ServerKey),
	}}}
	certificate, key := read(ClientCert), read(ClientKey)
	for _, p := range c.Participants() {
		all = append(all, Bundle{p.String(), map[string][]byte{
			Seed: read(p.String() + SeedSuffix), Authority: ca, Certificate: certificate, CertificateKey: key,
		}})
	}
	return all, err
}
