package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/schemas/delivery"
)

// Problem is an answer with an error status, in the form of RFC 9457.
type Problem struct {
	Status int    `json:"status"`
	Title  string `json:"title,omitempty"`
	Detail string `json:"detail,omitempty"`
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location,omitempty"`
	} `json:"errors,omitempty"`
	// RetryAfter is the delay that the server requests. Zero: none.
	RetryAfter time.Duration `json:"-"`
}

// Error implements error.
func (p *Problem) Error() string {
	text := cmp.Or(p.Detail, p.Title, http.StatusText(p.Status))
	for _, e := range p.Errors {
		text += "; " + strings.TrimPrefix(e.Location+": "+e.Message, ": ")
	}
	return fmt.Sprintf("status %d: %s", p.Status, text)
}

// Is reports whether target is one of the errors below and names this status.
func (p *Problem) Is(target error) bool {
	switch target {
	case ErrUnauthorized:
		return p.Status == http.StatusUnauthorized
	case ErrForbidden:
		return p.Status == http.StatusForbidden
	case ErrNotFound:
		return p.Status == http.StatusNotFound
	case ErrConflict:
		return p.Status == http.StatusConflict
	}
	return false
}

// The kinds of a [Problem].
var (
	ErrUnauthorized = errors.New("no valid token")
	ErrForbidden    = errors.New("not permitted")
	ErrNotFound     = errors.New("not found")
	ErrConflict     = errors.New("conflict")
)

// mostProblem bounds the body of an error.
const mostProblem = 64 << 10

// problemOf reads an answer with an error status. A body of another type is text.
func problemOf(r *http.Response) *Problem {
	p := &Problem{}
	body, _ := io.ReadAll(io.LimitReader(r.Body, mostProblem)) // what there is of it
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if !strings.HasSuffix(media, "json") || json.Unmarshal(body, p) != nil {
		p.Detail = strings.Join(strings.Fields(strings.ToValidUTF8(string(body), "")), " ")
	}
	p.Status, p.RetryAfter = r.StatusCode, delivery.ReadAfter(r.Header.Get("Retry-After"), time.Now())
	return p
}
