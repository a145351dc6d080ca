package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/api/review"
)

// judgeTimeout limits both questions about a request together. Prometheus gives up after ten seconds.
const judgeTimeout = 5 * time.Second

// Guard lets only those users get a path that RBAC allows, as a nonResourceURL. Use [NewGuard] to make one. See
// docs/decisions/0016-own-guard-of-metrics.md.
type Guard struct {
	reviews *review.Cached
	log     *slog.Logger
}

// NewGuard returns a guard. The client needs the right to create TokenReviews and SubjectAccessReviews.
func NewGuard(client kubernetes.Interface, now func() time.Time, log *slog.Logger) *Guard {
	return &Guard{review.NewCached(client, now), log}
}

// Protect puts the guard before a handler. A nil guard passes everything. Rejected requests get one line of text: 401
// without a token that the API server knows, 403 without the right, 429 if too many are being checked, and 503 if the
// API server does not answer.
func (g *Guard) Protect(next http.Handler) http.Handler {
	if g == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := g.judge(r)
		switch status {
		case http.StatusOK:
			next.ServeHTTP(w, r)
			return
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, text, status)
	})
}

// judge returns status 200 for a request that may pass, and otherwise the answer.
func (g *Guard) judge(r *http.Request) (status int, text string) {
	var user authenticationv1.UserInfo
	allowed := false
	ctx, cancel := context.WithTimeout(r.Context(), judgeTimeout)
	defer cancel()
	token, err := review.Token(r.Header)
	if err == nil {
		user, err = g.reviews.User(ctx, token)
	}
	if err == nil {
		allowed, err = g.reviews.MayGetPath(ctx, user, r.URL.Path)
	}
	switch {
	case errors.Is(err, review.ErrNoToken), errors.Is(err, review.ErrUnknownToken):
		return http.StatusUnauthorized, err.Error()
	case errors.Is(err, review.ErrTooMany):
		return http.StatusTooManyRequests, err.Error()
	case err != nil:
		g.log.Warn("cannot check rights", "path", r.URL.Path, "error", err)
		return http.StatusServiceUnavailable, review.ErrAway.Error()
	case !allowed:
		return http.StatusForbidden, fmt.Sprintf("user %.200s may not get %.200s", user.Username, r.URL.Path)
	}
	return http.StatusOK, ""
}
