// Package review asks the API server who somebody is, by a TokenReview, and what that somebody may, by a
// SubjectAccessReview. It decides nothing itself and keeps nothing.
package review

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var (
	// ErrNoToken says that nobody said who it is.
	ErrNoToken = errors.New("want the header Authorization: Bearer TOKEN")
	// ErrUnknownToken says that the token is nobody's.
	ErrUnknownToken = errors.New("the API server does not know the token")
	// ErrAway says that there is no answer.
	ErrAway = errors.New("the API server cannot be asked about rights")
)

// mostToken is far longer than the token of a service account.
const mostToken = 16 << 10

// Token is the bearer token of a request. Its error is [ErrNoToken], also for one that is longer than tokens are.
func Token(h http.Header) (string, error) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > mostToken {
		return "", ErrNoToken
	}
	return token, nil
}

// Reviewer asks through a client, which needs the right to create TokenReviews and SubjectAccessReviews. It may be used by
// many goroutines.
type Reviewer struct{ Client kubernetes.Interface }

// User is whose token it is. Its error wraps [ErrUnknownToken] or [ErrAway].
func (r Reviewer) User(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	review, err := r.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("%w: TokenReview: %w", ErrAway, err)
	}
	if !review.Status.Authenticated || review.Status.User.Username == "" {
		return authenticationv1.UserInfo{}, ErrUnknownToken
	}
	return review.Status.User, nil
}

// Allowed says whether the user may do what the attributes in the question say. Who asks leaves the fields about the user
// empty. Its error wraps [ErrAway].
func (r Reviewer) Allowed(
	ctx context.Context, who authenticationv1.UserInfo, question authorizationv1.SubjectAccessReviewSpec,
) (bool, error) {
	question.User, question.Groups, question.UID = who.Username, who.Groups, who.UID
	question.Extra = map[string]authorizationv1.ExtraValue{}
	for key, value := range who.Extra {
		question.Extra[key] = authorizationv1.ExtraValue(value)
	}
	review, err := r.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: question}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("%w: SubjectAccessReview: %w", ErrAway, err)
	}
	return review.Status.Allowed, nil
}
