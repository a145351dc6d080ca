package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/rehome-dev/rehome/api/review"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
)

// operatorName is the requester of requests at the loopback address.
const operatorName = "operator"

// user is a caller.
type user struct {
	authenticationv1.UserInfo
	operator bool // may do everything
}

// requester returns the name of the user in requests. A name that is too long for them ends with its hash, and so does the name
// of a user with a token who is called operator.
func (u user) requester() string {
	name := []rune(u.Username)
	if len(name) <= schemas.MaxRequester && (u.operator || u.Username != operatorName) {
		return u.Username
	}
	sum := sha256.Sum256([]byte(u.Username))
	hash := "~" + hex.EncodeToString(sum[:8])
	return string(name[:min(len(name), schemas.MaxRequester-len(hash))]) + hash
}

// call has the parts of an HTTP request that handlers need. The context has it.
type call struct {
	user         user
	header       http.Header
	method, path string
}

func newCall(u user, r *http.Request) call { return call{u, r.Header, r.Method, r.URL.Path} }

type callKey struct{}

func withCall(ctx context.Context, c call) context.Context {
	return context.WithValue(ctx, callKey{}, c) //nolint:forbidigo // huma passes only the context to handlers
}

func callOf(ctx context.Context) call {
	c, _ := ctx.Value(callKey{}).(call) // serve sets it
	return c
}

// Operator serves the loopback address.
func (s *Server) Operator() http.Handler {
	checked := handler(func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, user{UserInfo: authenticationv1.UserInfo{Username: operatorName}, operator: true})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkLocal(r); err != nil {
			s.refuse(w, newCall(user{}, r), err)
			return
		}
		checked.ServeHTTP(w, r)
	})
}

// Network serves the network address. The page needs no token, because it asks the user for one.
func (s *Server) Network() http.Handler {
	return handler(func(w http.ResponseWriter, r *http.Request) {
		u, err := s.userOf(r.Context(), r.Header)
		if err != nil {
			s.refuse(w, newCall(u, r), err)
			return
		}
		s.serve(w, r, u)
	})
}

// userOf returns the user of the token in a header.
func (s *Server) userOf(ctx context.Context, h http.Header) (user, error) {
	token, err := review.Token(h)
	if err != nil {
		return user{}, err
	}
	info, err := s.reviews.User(ctx, token)
	return user{UserInfo: info}, err
}

// checkLocal refuses calls that a page of another site could make: with another host name, from another origin, or with a form.
// Its error is a *[serve.Refusal].
func checkLocal(r *http.Request) error {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	if !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host) {
		return serve.Refuse(http.StatusForbidden, "Host is %.100q, want localhost, 127.0.0.1, or [::1]", r.Host)
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		origin, err := url.Parse(origins[0])
		if err != nil || len(origins) > 1 || origin.Scheme != "http" || origin.Host != r.Host {
			return serve.Refuse(http.StatusForbidden, "Origin is %.100q, want http://%.100s or none", origins[0], r.Host)
		}
	}
	// Browsers send no Origin with images and scripts of other sites. Links to the page may come from them.
	if site := r.Header.Get("Sec-Fetch-Site"); isCall(r) && site != "" && site != "same-origin" && site != "none" {
		return serve.Refuse(http.StatusForbidden, "Sec-Fetch-Site is %.100q, want same-origin or none", site)
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	return checkContent(r.Header.Get("Content-Type"))
}

// checkContent refuses the content types of forms, and all others that the API does not read.
func checkContent(content string) error {
	media, _, err := mime.ParseMediaType(content)
	accepted := []string{cloudevent.JSON, "application/yaml", cloudevent.StructuredJSON}
	if err != nil || !slices.Contains(accepted, media) {
		return serve.Refuse(http.StatusUnsupportedMediaType, "Content-Type is %.100q, want one of %s",
			content, strings.Join(accepted, ", "))
	}
	return nil
}
