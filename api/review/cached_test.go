package review_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/api/review"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// slow delays requests to a path until they are canceled. arrived gets whether each of them has a time limit.
type slow struct {
	http.RoundTripper
	path    string
	arrived chan bool
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, s.path) {
		return s.RoundTripper.RoundTrip(r)
	}
	_, limited := r.Context().Deadline()
	s.arrived <- limited
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestSlots fills the slots of one kind of review, and asks for the others.
func TestSlots(t *testing.T) {
	control := clustertest.New(t, cluster.Options{Users: []cluster.User{{Name: "known", Token: "token-known"}}})
	known := authenticationv1.UserInfo{Username: "known", Groups: []string{"system:authenticated"}}
	other := authenticationv1.UserInfo{Username: "other", Groups: []string{"system:authenticated"}}
	ask := func(ctx context.Context, r *review.Cached, who authenticationv1.UserInfo) {
		_, _ = r.Allowed(ctx, who, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{}})
	}
	now := time.Now()
	for name, c := range map[string]struct {
		path  string
		slots int
		fill  func(ctx context.Context, r *review.Cached, i int)
		want  string // of a known user, another unknown token, and a right of a known user
	}{
		"unknown tokens": {
			"/tokenreviews", 8,
			func(ctx context.Context, r *review.Cached, i int) { _, _ = r.User(ctx, fmt.Sprint("stranger-", i)) },
			"asks, too many, answered",
		},
		"rights for requests": {
			"/subjectaccessreviews", 16,
			func(ctx context.Context, r *review.Cached, i int) {
				ask(ctx, r, authenticationv1.UserInfo{Username: fmt.Sprint("user-", i/4)})
			},
			"too many, answered, too many",
		},
		"rights of one user": {
			"/subjectaccessreviews", 4, func(ctx context.Context, r *review.Cached, _ int) { ask(ctx, r, known) },
			"answered, answered, too many",
		},
		"rights of another user": {
			"/subjectaccessreviews", 4, func(ctx context.Context, r *review.Cached, _ int) { ask(ctx, r, other) },
			"answered, answered, asks",
		},
	} {
		t.Run(name, func(t *testing.T) {
			gate := slow{nil, "no path", make(chan bool, 100)}
			config := control.RESTConfig()
			config.Wrap(func(to http.RoundTripper) http.RoundTripper {
				gate.RoundTripper = to
				return &gate
			})
			client, err := kubernetes.NewForConfig(config)
			expect.Must(t, err)
			var mu sync.Mutex
			r := review.NewCached(client, func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
			if _, err := r.User(t.Context(), "token-known"); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			now = now.Add(time.Minute) // the answer is too old
			mu.Unlock()
			gate.path = c.path
			ctx, cancel := context.WithCancel(t.Context())
			var filling sync.WaitGroup
			defer filling.Wait()
			defer cancel()
			limited := true
			for i := range c.slots {
				filling.Go(func() { c.fill(ctx, r, i) })
				limited = <-gate.arrived && limited
			}
			var got []string
			for _, ask := range []func(context.Context) error{
				func(ctx context.Context) error { _, err := r.User(ctx, "token-known"); return err },
				func(ctx context.Context) error { _, err := r.User(ctx, "stranger"); return err },
				func(ctx context.Context) error { _, err := r.MayGet(ctx, known, "pods", "shop"); return err },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				switch err := ask(ctx); {
				case errors.Is(err, review.ErrTooMany):
					got = append(got, "too many")
				case errors.Is(err, context.DeadlineExceeded):
					got = append(got, "asks")
				case err == nil || errors.Is(err, review.ErrUnknownToken):
					got = append(got, "answered")
				default:
					t.Error(err)
				}
				cancel()
			}
			if want := strings.Split(c.want, ", "); !slices.Equal(got, want) || !limited {
				t.Errorf("got %q, with a time limit: %v; want %q", got, limited, want)
			}
		})
	}
}
