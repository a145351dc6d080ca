package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/rehome-dev/rehome/api/review"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
)

// The right that users need.
const (
	rightGroup    = "rehome.dev"
	rightResource = "requests"
	rightOverride = "override"
	rightVerb     = "create"
	// rightMaintenance is also required for maintenances, because a user could create the object instead.
	rightMaintenance = "nodemaintenances"
)

// everywhere stands for all namespaces.
const everywhere = ""

// mostPlaces is the largest number of namespaces that are checked one by one. Beyond it, all namespaces are checked at once.
const mostPlaces = 20

type rights struct{ review.Reviewer }

// placesOf returns the namespaces of the request, which can be everywhere. Its error is a *serve.Refusal, or an error of the bus.
func (h *Handler) placesOf(ctx context.Context, r schemas.Request) ([]string, error) {
	switch r.Action {
	case schemas.ActionEvaluate, schemas.ActionMaintain:
		return []string{everywhere}, nil
	case schemas.ActionDeschedule:
		places := targeted(r.Target)
		if len(places) == 0 {
			return nil, serve.Refuse(http.StatusUnprocessableEntity, "target: want pods, a workload, a selector or a node, got none")
		}
		return places, nil
	case schemas.ActionCancel:
		return h.cancelled(ctx, r)
	}
	return nil, serve.Refuse(http.StatusUnprocessableEntity, "action: want one of %v, got %.100q", schemas.RequestActions(), r.Action)
}

// targeted returns the sorted namespaces of a target.
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

// cancelled returns the namespaces of the request to cancel, or everywhere if no such request is open.
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

// check returns an error unless the user has the rights for the request in all of these places. It is a *serve.Refusal, or wraps
// [review.ErrAway].
func (r rights) check(ctx context.Context, who authenticationv1.UserInfo, asked schemas.Request, places []string) error {
	resources := []string{rightResource}
	if overrides(asked) {
		resources = append(resources, rightResource+"/"+rightOverride)
	}
	for _, place := range places {
		for _, resource := range resources {
			if err := r.may(ctx, who, place, resource); err != nil {
				return err
			}
		}
	}
	if asked.Action == schemas.ActionMaintain {
		return r.may(ctx, who, everywhere, rightMaintenance)
	}
	return nil
}

func (r rights) may(ctx context.Context, who authenticationv1.UserInfo, namespace, resource string) error {
	name, subresource, _ := strings.Cut(resource, "/")
	allowed, err := r.Allowed(ctx, who, authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rightVerb, Group: rightGroup, Resource: name, Subresource: subresource,
		},
	})
	if allowed || err != nil {
		return err
	}
	where := "in all namespaces"
	if namespace != everywhere {
		where = "in namespace " + namespace
	}
	return serve.Refuse(http.StatusForbidden, "user %s may not %s %s.%s %s", who.Username, rightVerb, resource, rightGroup, where)
}
