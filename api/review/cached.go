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
	// mostAsking limits concurrent calls to the API server, and askTimeout each call including the wait for its turn.
	mostAsking = 16
	askTimeout = 5 * time.Second
)

// ErrTooMany means that too many reviews are in progress.
var ErrTooMany = errors.New("too many reviews of rights are waiting for the API server")

// Cached is a [Reviewer] with a cache. Use [NewCached] to make one. It is safe for concurrent use.
type Cached struct {
	Reviewer
	asking chan struct{}
	// Unknown tokens have a cache of their own, so that they do not evict known ones.
	users, strangers, rights *cache.LRUExpireCache
}

// NewCached returns a Cached.
func NewCached(client kubernetes.Interface, now func() time.Time) *Cached {
	lru := func(most int) *cache.LRUExpireCache { return cache.NewLRUExpireCacheWithClock(most, clock(now)) }
	return &Cached{
		Reviewer: Reviewer{client}, asking: make(chan struct{}, mostAsking), users: lru(mostTokens), strangers: lru(mostTokens),
		rights: lru(mostRights),
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
	err = c.ask(ctx, func(ctx context.Context) error {
		user, err = c.Reviewer.User(ctx, token)
		return err
	})
	switch {
	case err == nil:
		c.users.Add(key, user, answerTTL)
	case errors.Is(err, ErrUnknownToken):
		c.strangers.Add(key, nil, answerTTL)
	}
	return user, err
}

// right is the key of an answer about a right.
type right struct{ user, attributes string }

// MayGet reports whether a user may get a resource of the core group in a namespace, or in all namespaces if it is empty.
func (c *Cached) MayGet(ctx context.Context, who authenticationv1.UserInfo, resource, namespace string) (allowed bool, err error) {
	key := right{fmt.Sprintf("%q %q %q %q", who.Username, who.UID, who.Groups, who.Extra), resource + "/" + namespace}
	if known, ok := c.rights.Get(key); ok {
		return known.(bool), nil
	}
	err = c.ask(ctx, func(ctx context.Context) error {
		allowed, err = c.Allowed(ctx, who, authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Version: "v1", Resource: resource},
		})
		return err
	})
	if err == nil {
		c.rights.Add(key, allowed, answerTTL)
	}
	return allowed, err
}

// ask calls the API server when fewer than mostAsking calls are in progress.
func (c *Cached) ask(ctx context.Context, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
		return question(ctx)
	case <-ctx.Done():
		return fmt.Errorf("%w: %d are the limit", ErrTooMany, mostAsking)
	}
}
