package credentials

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Servers is the name of the bundle that the NATS servers get, all of them the same.
const Servers = "server"

// Bundle is all that one participant needs to take part, or all that the servers need, and nothing of anybody else's.
type Bundle struct {
	// Name is that of the participant, such as watcher or sender-batch, or [Servers].
	Name string
	// Files are what is in it: [Authority], [Certificate] and [CertificateKey], and the seed of a participant as [Seed] or
	// the rights of everybody as [ServerConfig].
	Files map[string][]byte
}

// The names of the files in a [Bundle]. The certificate of a participant is that of all participants: it opens the
// connection, and the seed says who it is.
const (
	Seed           = "nkey"
	Authority      = "ca.crt"
	Certificate    = "tls.crt"
	CertificateKey = "tls.key"
)

// ErrNoCertificates says that a directory has not all of the files that bundles need besides seeds and rights.
var ErrNoCertificates = errors.New("no certificates")

// certificates are the files that are needed for bundles, besides seeds and rights.
func certificates() []string {
	return []string{CACert, ServerCert, ServerKey, ClientCert, ClientKey}
}

// CheckBundles says whether [Bundles] would find certificates in dir once [Write] has written c into it. If not, the error
// wraps [ErrNoCertificates] and names what is missing.
func CheckBundles(dir string, c Config) error {
	if len(c.Hosts) > 0 {
		return nil
	}
	var missing []string
	for _, name := range certificates() {
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

// Bundles reads what everybody in c needs from the directory that [Write] wrote c into. The servers come first, then the
// participants in the order of [ServerConfig], then functions and senders in that of c. The key of the certificate authority
// is in none of them.
func Bundles(dir string, c Config) ([]Bundle, error) {
	r := reader{dir: dir}
	ca := r.read(CACert)
	all := []Bundle{{Servers, map[string][]byte{
		ServerConfig: r.read(ServerConfig), Authority: ca, Certificate: r.read(ServerCert), CertificateKey: r.read(ServerKey),
	}}}
	certificate, key := r.read(ClientCert), r.read(ClientKey)
	for _, p := range c.Participants() {
		all = append(all, Bundle{p.String(), map[string][]byte{
			Seed: r.read(p.String() + SeedSuffix), Authority: ca, Certificate: certificate, CertificateKey: key,
		}})
	}
	return all, r.err
}

// reader reads files of a directory until the first that cannot be read.
type reader struct {
	dir string
	err error
}

func (r *reader) read(name string) []byte {
	if r.err != nil {
		return nil
	}
	var text []byte
	text, r.err = os.ReadFile(filepath.Join(r.dir, name))
	return text
}
