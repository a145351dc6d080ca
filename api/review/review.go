// Package review reads the user of a token with a TokenReview, and rights with a SubjectAccessReview.
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

// Errors of [Token] and of a [Reviewer].
var (
	ErrNoToken      = errors.New("want the header Authorization: Bearer TOKEN")
	ErrUnknownToken = errors.New("the API server does not know the token")
	ErrAway         = errors.New("the API server cannot review rights")
)

// mostToken is far longer than the token of a service account.
const mostToken = 16 << 10

// Token returns the bearer token of a request. Its error is [ErrNoToken], also if the token is longer than mostToken.
func Token(h http.Header) (string, error) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > mostToken {
		return "", ErrNoToken
	}
	return token, nil
}

// Reviewer needs a client with the right to create TokenReviews and SubjectAccessReviews. It is safe for concurrent use.
type Reviewer struct{ Client kubernetes.Interface }

// User returns the user of a token. Its error wraps [ErrUnknownToken] or [ErrAway].
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

// Allowed reports whether the user has the right in the review. It sets the user of the review. Its error wraps [ErrAway].
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
