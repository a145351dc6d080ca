package httpfunction

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// mostText bounds what a problem says, in bytes: it quotes what the client sent.
const mostText = 1000

// problem is why a request is refused, for the client.
type problem struct {
	status  int
	err     error
	headers [][2]string
}

// refuse makes a problem. format is one of [fmt.Errorf].
func refuse(status int, format string, args ...any) *problem {
	return &problem{status: status, err: fmt.Errorf(format, args...)}
}

// with adds a header to the answer.
func (p *problem) with(name, value string) *problem {
	p.headers = append(p.headers, [2]string{name, value})
	return p
}

// Error implements error.
func (p *problem) Error() string { return p.err.Error() }

func (p *problem) Unwrap() error { return p.err }

// write refuses a request, and returns the status.
func (p *problem) write(w http.ResponseWriter) int {
	for _, header := range p.headers {
		w.Header().Set(header[0], header[1])
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.status)
	_, _ = io.WriteString(w, oneLine(p.Error())+"\n") // a client that is gone cannot be told so
	return p.status
}

// oneLine is text on one line of bounded length.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	return text
}
