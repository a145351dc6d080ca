package move

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/schemas"
)

func TestPermanent(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	_, unreadable := Decode[schemas.PodRef](State("1"))
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no_error", nil, false},
		{"network", errors.New("connection refused"), false},
		{"forbidden", fmt.Errorf("get: %w", apierrors.NewForbidden(pods, "api-0", errors.New("no"))), true},
		{"not_found", apierrors.NewNotFound(pods, "api-0"), true},
		{"invalid", apierrors.NewBadRequest("no"), true},
		{"unreadable", fmt.Errorf("step: %w", unreadable), true},
		{"conflict", apierrors.NewConflict(pods, "api-0", errors.New("changed")), false},
		{"unauthorized", apierrors.NewUnauthorized("no"), false},
		{"throttled", apierrors.NewTooManyRequests("no", 1), false},
		{"internal", apierrors.NewInternalError(errors.New("boom")), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Permanent(tt.err); got != tt.want {
				t.Errorf("Permanent(%v) = %t, want %t", tt.err, got, tt.want)
			}
		})
	}
}

func TestBegun(t *testing.T) {
	refusal := &Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodGone, Message: "the pod is gone"}
	for _, tt := range []struct {
		name  string
		first Progress
		err   error
		want  Progress
		fails error
	}{
		{"working", Progress{State: State("1"), Message: "made"}, nil,
			Progress{Method: schemas.MethodRestart, State: State("1"), Message: "restart"}, nil},
		{"unknown_outcome_goes_on", Progress{}, errors.New("timeout"),
			Progress{Method: schemas.MethodRestart, Message: "restart; retrying the first step: timeout"}, nil},
		{"unsent_did_not_begin", Progress{}, ErrNotLeading, Progress{}, ErrNotLeading},
		{"refusal_keeps_its_message", Progress{Stage: Done, Refusal: refusal, Message: refusal.Message}, nil,
			Progress{Stage: Done, Method: schemas.MethodRestart, Refusal: refusal, Message: refusal.Message}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Begun(tt.first, schemas.MethodRestart, "restart", tt.err)
			if !reflect.DeepEqual(got, tt.want) || !errors.Is(err, tt.fails) {
				t.Errorf("got  %+v, error %v\nwant %+v, error %v", got, err, tt.want, tt.fails)
			}
		})
	}
}
