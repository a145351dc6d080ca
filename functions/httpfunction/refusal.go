package httpfunction

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// mostText bounds the text of a refusal, in bytes: it quotes the client.
const mostText = 1000

// refusal is a response with an error for the client.
type refusal struct {
	status int
	err    error
	header http.Header
}

// refuse makes a refusal. format is one of [fmt.Errorf].
func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, err: fmt.Errorf(format, args...), header: http.Header{}}
}

// with adds a header to the response.
func (r *refusal) with(name, value string) *refusal {
	r.header.Set(name, value)
	return r
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

// write sends the refusal as one line of bounded length.
func (r *refusal) write(w http.ResponseWriter) {
	text := strings.Join(strings.FieldsFunc(r.Error(), func(c rune) bool { return c == '\n' || c == '\r' }), "; ")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	maps.Copy(w.Header(), r.header)
	http.Error(w, text, r.status)
}
