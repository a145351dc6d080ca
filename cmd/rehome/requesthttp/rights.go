package requesthttp

import (
	"context"
	"errors"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/rehome-dev/rehome/cmd/rehome/review"
	"github.com/rehome-dev/rehome/schemas"
)

// The right to ask.
const (
	rightGroup    = "rehome.dev"
	rightResource = "requests"
	rightOverride = "override"
	rightVerb     = "create"
)

// everywhere stands for all namespaces.
const everywhere = ""

// mostPlaces is how many namespaces are asked about one by one. Who asks for pods in more needs the right in all.
const mostPlaces = 20

// rights asks the API server.
type rights struct{ review.Reviewer }

// user is who sent the request. Its error is a *problem, or wraps [review.ErrAway].
func (r rights) user(ctx context.Context, h http.Header) (authenticationv1.UserInfo, error) {
	token, err := review.Token(h)
	if err != nil {
		return authenticationv1.UserInfo{}, unauthorized(err)
	}
	who, err := r.User(ctx, token)
	if errors.Is(err, review.ErrUnknownToken) {
		return authenticationv1.UserInfo{}, unauthorized(err)
	}
	return who, err
}

func unauthorized(err error) *problem {
	return refuse(http.StatusUnauthorized, "%w", err).with("WWW-Authenticate", "Bearer")
}

// placesOf are the namespaces of everything that the request asks for, of which everywhere is one. Its error is a *problem,
// or one of the bus.
func (h *Handler) placesOf(ctx context.Context, r schemas.Request) ([]string, error) {
	switch r.Action {
	case schemas.ActionEvaluate, schemas.ActionMaintain:
		return []string{everywhere}, nil
	case schemas.ActionDeschedule:
		places := targeted(r.Target)
		if len(places) == 0 {
			return nil, refuse(http.StatusUnprocessableEntity, "target: want pods, a workload, a selector or a node, got none")
		}
		return places, nil
	case schemas.ActionCancel:
		return h.cancelled(ctx, r)
	}
	return nil, refuse(http.StatusUnprocessableEntity, "action: want one of %v, got %.100q", schemas.RequestActions(), r.Action)
}

// targeted are the places of all fields of a target, sorted, though only one may be set: that is not checked here.
func targeted(t *schemas.Target) []string {
	if t == nil {
		return nil
	}
	var places []string
	for _, p := range t.Pods {
		places = append(places, p.Namespace)
	}
	if t.Workload != nil {
		places = append(places, t.Workload.Namespace)
	}
	if t.Selector != nil {
		places = append(places, t.Selector.Namespace)
	}
	if t.Node != "" {
		places = append(places, everywhere)
	}
	slices.Sort(places)
	places = slices.Compact(places)
	if len(places) > mostPlaces {
		return []string{everywhere}
	}
	return places
}

// cancelled are the places of the request that is to be cancelled; everywhere, if it is not open.
func (h *Handler) cancelled(ctx context.Context, r schemas.Request) ([]string, error) {
	open, err := h.bus.OpenRequests(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range open {
		other, err := schemas.Decode[schemas.Request](o.Event)
		if err != nil || other.Sender != r.Sender || other.Name != r.Request || o.Channel != other.Channel() {
			continue
		}
		if places := targeted(other.Target); len(places) > 0 {
			return places, nil
		}
	}
	return []string{everywhere}, nil
}

// check says whether the user may ask for something in all of these places. Its error is a *problem, or wraps [review.ErrAway].
func (r rights) check(ctx context.Context, who authenticationv1.UserInfo, places []string, overrides bool) error {
	resources := []string{""}
	if overrides {
		resources = append(resources, rightOverride)
	}
	for _, place := range places {
		for _, subresource := range resources {
			if err := r.may(ctx, who, place, subresource); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r rights) may(ctx context.Context, who authenticationv1.UserInfo, namespace, subresource string) error {
	allowed, err := r.Allowed(ctx, who, authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rightVerb, Group: rightGroup, Resource: rightResource, Subresource: subresource,
		},
	})
	if allowed || err != nil {
		return err
	}
	what, where := rightResource, "in all namespaces"
	if subresource != "" {
		what += "/" + subresource
	}
	if namespace != everywhere {
		where = "in namespace " + namespace
	}
	return refuse(http.StatusForbidden, "user %s may not %s %s.%s %s", who.Username, rightVerb, what, rightGroup, where)
}
