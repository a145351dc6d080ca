package api

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

const mostBytes = 64 << 10

// mode is the content mode of a request, and of its answer.
type mode int

const (
	binary mode = iota
	structured
)

func modeOf(h http.Header) (mode, error) {
	content := h.Get("Content-Type")
	media, _, err := mime.ParseMediaType(content)
	switch {
	case h.Get("Content-Encoding") != "":
		return 0, refuse(http.StatusUnsupportedMediaType, "Content-Encoding is %.100q, want none", h.Get("Content-Encoding"))
	case err == nil && media == cloudevent.StructuredJSON:
		return structured, nil
	case err == nil && media == cloudevent.JSON && h.Get(cloudevent.HeaderPrefix+"specversion") != "":
		return binary, nil
	}
	return 0, refuse(http.StatusUnsupportedMediaType, "Content-Type is %.100q; want %s, or %s with the attributes in headers "+
		"that begin with ce-", content, cloudevent.StructuredJSON, cloudevent.JSON)
}

func readEvent(w http.ResponseWriter, r *http.Request, m mode) (schemas.Event, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBytes))
	var beyond *http.MaxBytesError
	switch {
	case errors.As(err, &beyond):
		return schemas.Event{}, refuse(http.StatusRequestEntityTooLarge,
			"the request has more than %d bytes, which is the most", mostBytes)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return schemas.Event{}, refuse(http.StatusRequestTimeout, "the request did not arrive in time")
	case err != nil:
		return schemas.Event{}, refuse(http.StatusBadRequest, "the body cannot be read: %w", err)
	}
	e, err := parse(r.Header, body, m)
	if err != nil {
		err = refuse(http.StatusBadRequest, "%w", err)
	}
	return e, err
}

func parse(h http.Header, body []byte, m mode) (schemas.Event, error) {
	if m == structured {
		return cloudevent.ReadStructured(body)
	}
	attributes, err := cloudevent.ReadAttributes(h)
	if err != nil {
		return schemas.Event{}, err
	}
	attributes["datacontenttype"] = h.Get("Content-Type") // over HTTP it has no header of its own
	return cloudevent.ReadBinary(attributes, body)
}

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
	http.Error(w, text, p.status)
}
