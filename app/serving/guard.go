package serving

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/api/review"
)

const (
	// answerTTL is how long an answer of the API server is used, as in the components of Kubernetes.
	answerTTL = 10 * time.Second
	// mostAnswers limits each of the two caches.
	mostAnswers = 512
	// mostAsking limits the questions to the API server at a time, and askTimeout each of them: Prometheus gives up after ten seconds.
	mostAsking = 8
	askTimeout = 5 * time.Second
)

// Guard lets only those users get a path that RBAC allows, as a nonResourceURL. Use [NewGuard] to make one. See
// docs/decisions/0016-own-guard-of-metrics.md.
type Guard struct {
	reviewer review.Reviewer
	log      *slog.Logger
	asking   chan struct{}
	// The two answers have a cache each, so that requests with unknown tokens do not evict the answers about known users.
	allowed, denied *cache.LRUExpireCache
}

// NewGuard returns a guard. The client needs the right to create TokenReviews and SubjectAccessReviews.
func NewGuard(client kubernetes.Interface, now func() time.Time, log *slog.Logger) *Guard {
	return &Guard{
		reviewer: review.Reviewer{Client: client}, log: log, asking: make(chan struct{}, mostAsking),
		allowed: cache.NewLRUExpireCacheWithClock(mostAnswers, clock(now)), denied: cache.NewLRUExpireCacheWithClock(mostAnswers, clock(now)),
	}
}

type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// answer is the response to a rejected request; status 200 passes the request.
type answer struct {
	status int
	text   string
}

// Protect puts the guard before a handler. A nil guard passes everything. Rejected requests get one line of text: 401
// without a token that the API server knows, 403 without the right, 429 if too many are being checked, and 503 if the
// API server does not answer.
func (g *Guard) Protect(next http.Handler) http.Handler {
	if g == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := g.judge(r)
		switch a.status {
		case http.StatusOK:
			next.ServeHTTP(w, r)
			return
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, a.text, a.status)
	})
}

// judge answers from a cache, or asks the API server. A failed question is not cached.
func (g *Guard) judge(r *http.Request) answer {
	token, err := review.Token(r.Header)
	if err != nil {
		return answer{http.StatusUnauthorized, err.Error()}
	}
	key := sha256.Sum256([]byte(token + "\x00" + r.URL.Path)) // tokens are not kept
	for _, answers := range []*cache.LRUExpireCache{g.allowed, g.denied} {
		if a, ok := answers.Get(key); ok {
			return a.(answer)
		}
	}
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
	default:
		return answer{http.StatusTooManyRequests,
			fmt.Sprintf("%d other checks are in progress, which is the limit", mostAsking)}
	}
	a, err := g.ask(r.Context(), token, r.URL.Path)
	if err != nil {
		g.log.Warn("cannot check rights", "path", r.URL.Path, "error", err)
		return answer{http.StatusServiceUnavailable, review.ErrAway.Error()}
	}
	if a.status == http.StatusOK {
		g.allowed.Add(key, a, answerTTL)
	} else {
		g.denied.Add(key, a, answerTTL)
	}
	return a
}

// ask asks the API server. Its error wraps [review.ErrAway].
func (g *Guard) ask(ctx context.Context, token, path string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	user, err := g.reviewer.User(ctx, token)
	if errors.Is(err, review.ErrUnknownToken) {
		return answer{http.StatusUnauthorized, err.Error()}, nil
	}
	if err != nil {
		return answer{}, err
	}
	allowed, err := g.reviewer.Allowed(ctx, user, authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	})
	if err != nil || allowed {
		return answer{status: http.StatusOK}, err
	}
	return answer{http.StatusForbidden, fmt.Sprintf("user %.200s may not get %.200s", user.Username, path)}, nil
}
