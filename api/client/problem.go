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
}

// Error implements error.
func (p *Problem) Error() string {
	texts := []string{cmp.Or(p.Detail, p.Title, http.StatusText(p.Status))}
	for _, e := range p.Errors {
		texts = append(texts, strings.TrimPrefix(e.Location+": "+e.Message, ": "))
	}
	return fmt.Sprintf("status %d: %s", p.Status, strings.Join(texts, "; "))
}

// ErrConflict is wrapped by a [Problem] with the status 409: a request of that name is open.
var ErrConflict = errors.New("conflict")

// Is reports whether target is [ErrConflict] and this is its status.
func (p *Problem) Is(target error) bool {
	return target == ErrConflict && p.Status == http.StatusConflict
}

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
	p.Status = r.StatusCode
	return p
}
