package serving

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
)

// newTransport makes what the three say. http2 is offered where there is TLS.
func newTransport(t settings.TLS, http2 bool, log *slog.Logger) (Transport, error) {
	switch t.Mode {
	case settings.TlsSelfSigned:
		made, err := NewSelfSigned(OwnNames(), time.Now)
		if err != nil {
			return Transport{}, fmt.Errorf("%s_TLS: %w", t.Variable, err)
		}
		return Transport{Certificates: made, HTTP2: http2}, nil
	case settings.TlsFiles:
		read, err := ReadFiles(t.Cert, t.Key, log)
		if err != nil {
			return Transport{}, usage.Errorf("%s: %w", wrongFile(t, err), err)
		}
		return Transport{Certificates: read, HTTP2: http2}, nil
	}
	return Transport{}, nil
}

// wrongFile is the variable of the file that an error is about: of the certificate, unless it is surely the key.
func wrongFile(t settings.TLS, err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok && p.Path == t.Key && p.Path != t.Cert {
		return t.Variable + "_KEY_FILE"
	}
	return t.Variable + "_CERT_FILE"
}
