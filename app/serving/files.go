package serving

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// settled is how old the last change of a file must be for its time to tell whether it was changed since: file systems count
// in steps of up to two seconds.
const settled = 3 * time.Second

// Files is a certificate in two files, in PEM. It is read again once they have changed; as long as what is there then is no
// certificate with its key, the one before is shown. [ReadFiles] makes it.
type Files struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	seen    pair // what was read last, right or wrong
	current *tls.Certificate
}

// pair is what is in the two files.
type pair struct{ cert, key state }

// state is a file at a moment.
type state struct {
	info   os.FileInfo // nil: it could not be read
	sure   bool        // a file with the same info has the same content
	trying error       // why it could not be read
	text   []byte
}

// ReadFiles reads the certificate. Its error names the file that is wrong.
func ReadFiles(cert, key string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, log: log}
	f.seen = pair{readState(cert), readState(key)}
	var err error
	if f.current, err = f.parse(f.seen); err != nil {
		return nil, err
	}
	return f, nil
}

// Certificate implements [Certificates]. It looks at the files, which costs two system calls, and reads them only if they
// changed. It never fails.
func (f *Files) Certificate() (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen.cert.same(f.cert) && f.seen.key.same(f.key) {
		return f.current, nil
	}
	next := pair{readState(f.cert), readState(f.key)}
	before := f.seen
	f.seen = next
	if next.equal(before) {
		return f.current, nil
	}
	made, err := f.parse(next)
	if err != nil {
		f.log.Error("the certificate is wrong, the one before stays", "file", f.cert, "expires", f.current.Leaf.NotAfter, "error", err)
		return f.current, nil
	}
	f.current = made
	f.log.Info("the certificate was read again", "file", f.cert, "expires", made.Leaf.NotAfter)
	return f.current, nil
}

// parse makes the certificate of a pair.
func (f *Files) parse(p pair) (*tls.Certificate, error) {
	for _, s := range []state{p.cert, p.key} {
		if s.trying != nil {
			return nil, s.trying
		}
	}
	c, err := tls.X509KeyPair(p.cert.text, p.key.text)
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", f.cert, f.key, err)
	}
	return &c, nil
}

// readState reads a file. Its info is of before it was read, so that a change meanwhile is seen the next time.
func readState(file string) state {
	f, err := os.Open(file)
	if err != nil {
		return state{trying: err}
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return state{trying: err}
	}
	text, err := io.ReadAll(f)
	return state{info: info, sure: err == nil && time.Since(info.ModTime()) > settled, trying: err, text: text}
}

// same says whether the file is certainly still as it was, without reading it.
func (s state) same(file string) bool {
	if s.info == nil || !s.sure {
		return false
	}
	now, err := os.Stat(file)
	return err == nil && os.SameFile(now, s.info) && now.ModTime().Equal(s.info.ModTime()) && now.Size() == s.info.Size()
}

// equal says whether the same was read.
func (p pair) equal(other pair) bool { return p.cert.equal(other.cert) && p.key.equal(other.key) }

func (s state) equal(other state) bool {
	return (s.trying == nil) == (other.trying == nil) && bytes.Equal(s.text, other.text)
}
