package serve

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// mostText is the longest text of a refusal, in bytes. It can quote the request.
const mostText = 1000

// Refusal is a response with an error for the client.
type Refusal struct {
	Status int
	err    error
	header http.Header
}

// Refuse returns a refusal. format is as in [fmt.Errorf].
func Refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, err: fmt.Errorf(format, args...), header: http.Header{}}
}

// With adds a header to the response.
func (r *Refusal) With(name, value string) *Refusal {
	r.header.Set(name, value)
	return r
}

// After adds the header Retry-After.
func (r *Refusal) After(d time.Duration) *Refusal {
	return r.With("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
}

// Header returns the headers of the response.
func (r *Refusal) Header() http.Header { return r.header }

func (r *Refusal) Error() string { return r.err.Error() }

func (r *Refusal) Unwrap() error { return r.err }

// Write sends the refusal as one line of bounded length.
func (r *Refusal) Write(w http.ResponseWriter) {
	text := strings.Join(strings.FieldsFunc(r.Error(), func(c rune) bool { return c == '\n' || c == '\r' }), "; ")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	maps.Copy(w.Header(), r.header)
	http.Error(w, text, r.Status)
}
