package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/api/review"
)

const (
	// rememberedFor is how long an answer of the API server holds: what servers of Kubernetes that delegate such questions
	// take by default, for both answers.
	rememberedFor = 10 * time.Second
	// mostRemembered bounds what is kept, for each of the two answers: far more than there are programs that collect figures,
	// and less than 100 KiB. Each has its own, so that a flood of strangers does not push out who may.
	mostRemembered = 512
	// mostAsking bounds how many questions are before the API server at once, and askWithin how long one may take: less than
	// the ten seconds after which Prometheus gives up by default.
	mostAsking = 8
	askWithin  = 5 * time.Second
)

// Guard lets those through who may get what they ask for. [NewGuard] makes it. It may be used from many goroutines.
type Guard struct {
	reviewer        review.Reviewer
	now             func() time.Time
	log             *slog.Logger
	asking          chan struct{}
	allowed, denied *memory
}

// NewGuard makes a guard that asks the API server through client, which needs the right to create TokenReviews and
// SubjectAccessReviews.
func NewGuard(client kubernetes.Interface, now func() time.Time, log *slog.Logger) *Guard {
	return &Guard{
		reviewer: review.Reviewer{Client: client}, now: now, log: log, asking: make(chan struct{}, mostAsking),
		allowed: newMemory(mostRemembered, rememberedFor), denied: newMemory(mostRemembered, rememberedFor),
	}
}

// answer is what is said to who asks.
type answer struct {
	status int
	text   string // nothing for who may
}

// Protect puts the guard before a handler. Who may not gets one line of text: 401 without a token that the API server knows,
// 403 without the right, 429 when too many ask at once, and 503 while the API server cannot be asked. nil guards nothing.
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

// judge answers from memory, or asks the API server. That it could not be asked is not remembered.
func (g *Guard) judge(r *http.Request) answer {
	token, err := review.Token(r.Header)
	if err != nil {
		return answer{http.StatusUnauthorized, err.Error()}
	}
	about := questionOf(token, r.URL.Path)
	for _, m := range []*memory{g.allowed, g.denied} {
		if a, known := m.get(about, g.now()); known {
			return a
		}
	}
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
	default:
		return answer{http.StatusTooManyRequests,
			fmt.Sprintf("the API server is being asked about %d others, which is the most", mostAsking)}
	}
	a, err := g.ask(r.Context(), token, r.URL.Path)
	switch {
	case err != nil:
		g.log.Warn("nobody can be let through", "path", r.URL.Path, "error", err)
		return answer{http.StatusServiceUnavailable, review.ErrAway.Error()}
	case a.status == http.StatusOK:
		g.allowed.put(about, a, g.now())
	default:
		g.denied.put(about, a, g.now())
	}
	return a
}

// ask asks the API server. Its error wraps [review.ErrAway].
func (g *Guard) ask(ctx context.Context, token, path string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	who, err := g.reviewer.User(ctx, token)
	if errors.Is(err, review.ErrUnknownToken) {
		return answer{http.StatusUnauthorized, err.Error()}, nil
	}
	if err != nil {
		return answer{}, err
	}
	allowed, err := g.reviewer.Allowed(ctx, who, authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	})
	switch {
	case err != nil:
		return answer{}, err
	case !allowed:
		return answer{http.StatusForbidden, fmt.Sprintf("user %.200s may not get %.200s", who.Username, path)}, nil
	}
	return answer{status: http.StatusOK}, nil
}
