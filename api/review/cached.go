package review

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

const (
	// answerTTL is how long a response of the API server is cached, as in Kubernetes components.
	answerTTL = 10 * time.Second
	// mostTokens limits the known and the unknown tokens that are kept, and mostRights the answers about rights.
	mostTokens, mostRights = 512, 16384
	// knownTTL is how long a token counts as known after its last review.
	knownTTL = 24 * time.Hour
	// mostAsking limits concurrent reviews of rights and of known tokens, mostUnknown concurrent reviews of other tokens, and
	// askTimeout each review including the wait for its turn.
	mostAsking, mostUnknown = 16, 8
	askTimeout              = 5 * time.Second
	// MostOfUser limits concurrent reviews of the rights of one user, so that one user leaves most of mostAsking to others.
	// mostWaiting is enough for all streams of a user.
	MostOfUser, mostWaiting = 4, 64
)

// ErrTooMany means that too many reviews are in progress.
var ErrTooMany = errors.New("too many reviews of rights are waiting for the API server")

// Cached is a [Reviewer] with a cache and limits. Use [NewCached] to make one. It is safe for concurrent use.
type Cached struct {
	Reviewer
	// Unknown tokens have slots and a cache of their own, so that they do not delay or evict known ones.
	asking, unknown                 chan struct{}
	turns                           *Turns
	users, known, strangers, rights *cache.LRUExpireCache
}

// NewCached returns a Cached.
func NewCached(client kubernetes.Interface, now func() time.Time) *Cached {
	lru := func(most int) *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(most, clock(now)) }
	return &Cached{
		Reviewer: Reviewer{client}, asking: make(chan struct{}, mostAsking), unknown: make(chan struct{}, mostUnknown),
		turns: NewTurns(MostOfUser, mostWaiting),
		users: lru(mostTokens), known: lru(mostTokens), strangers: lru(mostTokens), rights: lru(mostRights),
	}
}

type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// User returns the user of a token, like [Reviewer.User].
func (c *Cached) User(ctx context.Context, token string) (user authenticationv1.UserInfo, err error) {
	key := sha256.Sum256([]byte(token)) // tokens are not stored
	if known, ok := c.users.Get(key); ok {
		return known.(authenticationv1.UserInfo), nil
	}
	if _, ok := c.strangers.Get(key); ok {
		return user, ErrUnknownToken
	}
	slots := c.unknown
	if _, ok := c.known.Get(key); ok {
		slots = c.asking
	}
	err = ask(ctx, slots, func(ctx context.Context) error {
		user, err = c.Reviewer.User(ctx, token)
		return err
	})
	switch {
	case err == nil:
		c.users.Add(key, user, answerTTL)
		c.known.Add(key, nil, knownTTL)
	case errors.Is(err, ErrUnknownToken):
		c.known.Remove(key)
		c.strangers.Add(key, nil, answerTTL)
	}
	return user, err
}

// right is the key of an answer about a right.
type right struct{ user, attributes string }

// MayGet reports whether a user may get a resource of the core group in a namespace, or in all namespaces if it is empty.
func (c *Cached) MayGet(ctx context.Context, who authenticationv1.UserInfo, resource, namespace string) (bool, error) {
	return c.may(ctx, who, resource+"/"+namespace, authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Version: "v1", Resource: resource},
	})
}

// MayGetPath reports whether a user may get a path, which begins with a slash, as a nonResourceURL.
func (c *Cached) MayGetPath(ctx context.Context, who authenticationv1.UserInfo, path string) (bool, error) {
	return c.may(ctx, who, path, authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	})
}

// may is Allowed with the cache.
func (c *Cached) may(
	ctx context.Context, who authenticationv1.UserInfo, attributes string, question authorizationv1.SubjectAccessReviewSpec,
) (allowed bool, err error) {
	key := right{fmt.Sprintf("%q %q %q %q", who.Username, who.UID, who.Groups, who.Extra), attributes}
	if known, ok := c.rights.Get(key); ok {
		return known.(bool), nil
	}
	if allowed, err = c.Allowed(ctx, who, question); err == nil {
		c.rights.Add(key, allowed, answerTTL)
	}
	return allowed, err
}

// Allowed is [Reviewer.Allowed] with the limits, and without the cache.
func (c *Cached) Allowed(
	ctx context.Context, who authenticationv1.UserInfo, question authorizationv1.SubjectAccessReviewSpec,
) (allowed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	end, ok := c.turns.Take(ctx, who.Username)
	if !ok {
		return false, fmt.Errorf("%w: %d of one user are the limit", ErrTooMany, MostOfUser)
	}
	defer end()
	err = ask(ctx, c.asking, func(ctx context.Context) error {
		allowed, err = c.Reviewer.Allowed(ctx, who, question)
		return err
	})
	return allowed, err
}

// ask calls the API server when one of the slots is free.
func ask(ctx context.Context, slots chan struct{}, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		return question(ctx)
	case <-ctx.Done():
		return fmt.Errorf("%w: %d are the limit", ErrTooMany, cap(slots))
	}
}
