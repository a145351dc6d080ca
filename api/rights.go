package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/rehome-dev/rehome/api/review"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// The rights that users need for requests.
const (
	rightGroup    = "rehome.dev"
	rightResource = "requests"
	rightOverride = "override"
	rightVerb     = "create"
	// rightMaintenance is also required for maintenances. To cordon or drain a node, the user must also be allowed to delete it:
	// the API server requires both rights for the NodeMaintenance with the same effect.
	rightMaintenance = "nodemaintenances"
)

// everywhere means all namespaces.
const everywhere = ""

// mostPlaces is the largest number of namespaces that are checked one by one. Beyond it, all namespaces are checked at once.
const mostPlaces = 20

// access has the objects that a user may see, at one time.
type access struct {
	All, Nodes bool
	namespaces map[string]bool // with the right to get pods; nil with All
}

// sees reports whether the user may get the pods of a namespace.
func (a access) sees(namespace string) bool { return a.All || a.namespaces[namespace] }

// full reports whether the user may see everything.
func (a access) full() bool { return a.All && a.Nodes }

// none reports whether the user may see nothing.
func (a access) none() bool { return !a.All && !a.Nodes && len(a.namespaces) == 0 }

// access checks the rights in all namespaces of the cluster.
func (s *Server) access(ctx context.Context, u user) (a access, err error) {
	if u.operator {
		return access{All: true, Nodes: true}, nil
	}
	if a.Nodes, err = s.reviews.MayGet(ctx, u.UserInfo, "nodes", everywhere); err != nil {
		return a, err
	}
	if a.All, err = s.reviews.MayGet(ctx, u.UserInfo, "pods", everywhere); err != nil || a.All {
		return a, err
	}
	names := s.Cluster.NamespaceNames()
	allowed := make([]bool, len(names))
	questions, ctx := errgroup.WithContext(ctx)
	questions.SetLimit(review.MostOfUser)
	for i, name := range names {
		questions.Go(func() (err error) {
			allowed[i], err = s.reviews.MayGet(ctx, u.UserInfo, "pods", name)
			return err
		})
	}
	err = questions.Wait()
	a.namespaces = map[string]bool{}
	for i, name := range names {
		if allowed[i] {
			a.namespaces[name] = true
		}
	}
	return a, err
}

// maySeeAll refuses users that may not see everything.
func (s *Server) maySeeAll(ctx context.Context, u user) error {
	for _, resource := range []string{"pods", "nodes"} {
		if err := s.mayGet(ctx, u, resource, everywhere); err != nil {
			return err
		}
	}
	return nil
}

// mayGet refuses users without the right to get a resource. In a namespace that does not exist, only users with the right in all
// namespaces have it, so invented names need no reviews of their own. Its error is a *[serve.Refusal], or wraps [review.ErrAway]
// or [review.ErrTooMany].
func (s *Server) mayGet(ctx context.Context, u user, resource, namespace string) error {
	if u.operator {
		return nil
	}
	place := namespace
	if s.Cluster.Namespace(namespace) == nil {
		place = everywhere
	}
	allowed, err := s.reviews.MayGet(ctx, u.UserInfo, resource, place)
	if err != nil || allowed {
		return err
	}
	return serve.Refuse(http.StatusForbidden, "user %.200s may not get %s %s", u.Username, resource, where(namespace))
}

// where describes a namespace.
func where(namespace string) string {
	if namespace == everywhere {
		return "in all namespaces"
	}
	return fmt.Sprintf("in namespace %.100s", namespace)
}

// placesOf returns the namespaces of the request, which can be everywhere. Its error is a *serve.Refusal.
func placesOf(r schemas.Request) ([]string, error) {
	switch r.Action {
	case schemas.ActionEvaluate, schemas.ActionMaintain, schemas.ActionCancel:
		return []string{everywhere}, nil
	case schemas.ActionDeschedule:
		places := targeted(r.Target)
		if len(places) == 0 {
			return nil, serve.Refuse(http.StatusUnprocessableEntity, "target: want pods, a workload, a selector or a node, got none")
		}
		return places, nil
	}
	return nil, serve.Refuse(http.StatusUnprocessableEntity, "action: want one of %v, got %.100q",
		schemas.RequestActions(), r.Action)
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

// authorize returns an error unless the user has the rights for the request. To cancel an open request, the user needs the rights
// for that request; to cancel another one, the right to make requests everywhere. Its error is a *serve.Refusal, wraps
// [review.ErrAway], or is an error of the bus.
func (s *Server) authorize(ctx context.Context, u user, r schemas.Request) error {
	subject := r
	if r.Action == schemas.ActionCancel && schemas.IsRequestWord(r.Request) {
		open, err := s.Bus.OpenRequest(ctx, r.Sender, r.Request)
		if err != nil {
			return err
		}
		if open != nil {
			subject = open.Request
		}
	}
	places, err := placesOf(subject)
	if err == nil {
		err = s.check(ctx, u, subject, places)
	}
	// The reason would tell about the request of another user.
	if r.Action == schemas.ActionCancel && errors.As(err, new(*serve.Refusal)) {
		return serve.Refuse(http.StatusForbidden, "user %.200s may not cancel request %s, or it is not open", u.Username, r.Request)
	}
	return err
}

// check returns an error unless the user has the rights for the request in all of these places. It is a *serve.Refusal, or wraps
// [review.ErrAway].
func (s *Server) check(ctx context.Context, u user, asked schemas.Request, places []string) error {
	if u.operator {
		return nil
	}
	resources := []string{rightResource}
	if overrides(asked) {
		resources = append(resources, rightResource+"/"+rightOverride)
	}
	for _, place := range places {
		for _, resource := range resources {
			if err := s.mayCreate(ctx, u, place, resource); err != nil {
				return err
			}
		}
	}
	if asked.Action != schemas.ActionMaintain {
		return nil
	}
	if err := s.mayCreate(ctx, u, everywhere, rightMaintenance); err != nil {
		return err
	}
	if m := asked.Maintenance; m == nil || m.Stage != v1alpha1.Complete {
		return s.mayDelete(ctx, u, m)
	}
	return nil
}

// mayDelete refuses users that may not delete the node of a maintenance, or all nodes if the request has no name of a node.
func (s *Server) mayDelete(ctx context.Context, u user, m *schemas.NodeRequest) error {
	nodes, name := "all nodes", ""
	if m != nil && m.ProviderID == "" && m.Node != "" {
		nodes, name = fmt.Sprintf("the node %.100s", m.Node), m.Node
	}
	return s.may(ctx, u, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "nodes", Name: name}, nodes)
}

func (s *Server) mayCreate(ctx context.Context, u user, namespace, resource string) error {
	name, subresource, _ := strings.Cut(resource, "/")
	return s.may(ctx, u, authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: rightVerb, Group: rightGroup, Resource: name, Subresource: subresource,
	}, fmt.Sprintf("resource %q in API group %q %s", resource, rightGroup, where(namespace)))
}

// may refuses users without a right to change what the text describes. It queries the API server each time, because an allowed
// request moves pods now.
func (s *Server) may(ctx context.Context, u user, right authorizationv1.ResourceAttributes, what string) error {
	allowed, err := s.reviews.Allowed(ctx, u.UserInfo, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &right})
	if allowed || err != nil {
		return err
	}
	return serve.Refuse(http.StatusForbidden, "user %.200s cannot %s %s", u.Username, right.Verb, what)
}
