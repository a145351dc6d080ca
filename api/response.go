package api

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

type response struct {
	status int
	header http.Header
	body   []byte
}

func (r response) with(e schemas.Event, m mode) (response, error) {
	var err error
	if m == structured {
		r.header.Set("Content-Type", cloudevent.StructuredJSON)
		r.body, err = cloudevent.WriteStructured(e)
		return r, err
	}
	r.header.Set("Content-Type", cloudevent.JSON)
	r.body = e.Data
	err = cloudevent.WriteAttributes(e, func(name, value string) {
		if name != "datacontenttype" { // over HTTP it is the Content-Type
			r.header.Set(cloudevent.HeaderPrefix+name, value)
		}
	})
	return r, err
}

func (r response) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // a client that is gone cannot be told so
}

type problem struct {
	status int
	err    error
	header http.Header
}

// refuse formats like [fmt.Errorf].
func refuse(status int, format string, args ...any) *problem {
	return &problem{status: status, err: fmt.Errorf(format, args...), header: http.Header{}}
}

func (p *problem) with(name, value string) *problem {
	p.header.Set(name, value)
	return p
}

func (p *problem) after(d time.Duration) *problem {
	return p.with("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
}

// Error implements error.
func (p *problem) Error() string { return p.err.Error() }

func (p *problem) Unwrap() error { return p.err }

// mostText limits the text of a problem, in bytes: it quotes the request.
const mostText = 1000

func (p *problem) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.header)
	text := strings.Join(strings.FieldsFunc(p.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.status)
	_, _ = io.WriteString(w, text+"\n") // a client that is gone cannot be told so
}
