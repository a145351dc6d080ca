package maintenance

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestCordonRefused(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, tt := range []struct {
		name    string
		outcome apply.Outcome
		err     error
		want    bool
	}{
		{"an admission policy", apply.Failed, fmt.Errorf("patch node a: %w", apierrors.NewForbidden(nodes, "a", errors.New("no"))), true},
		{"a conflict", apply.Failed, apierrors.NewConflict(nodes, "a", errors.New("changed")), false},
		{"too many requests", apply.Failed, apierrors.NewTooManyRequests("later", 1), false},
		{"an unreachable API server", apply.Failed, errors.New("connection refused"), false},
		{"a cordon", apply.Changed, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, now := New(Config{}).newSession(nil), noon()
			s.drains.byName["kernel"] = &drain{refused: map[string]time.Time{}, conditionsRefused: map[string]time.Time{}}
			done := apply.Done{NodeStep: plan.NodeStep{Name: "a", Action: schemas.NodeCordon}, Outcome: tt.outcome, Err: tt.err}
			s.noteRefusals("kernel", apply.Result{Nodes: []apply.Done{done}}, now)
			expect.Equal(t, "refused", s.cordonRefused("kernel", "a", now.Add(refusalFor-1)), tt.want)
			if s.cordonRefused("kernel", "a", now.Add(refusalFor)) {
				t.Error("the refusal counts for ever")
			}
		})
	}
}

// An API server that starts refuses what it allows later.
func TestConditionsRefused(t *testing.T) {
	s, now := New(Config{}).newSession(nil), noon()
	s.drains.byName["kernel"] = &drain{refused: map[string]time.Time{}, conditionsRefused: map[string]time.Time{}}
	note := func(refused bool, at time.Time) {
		done := apply.Done{NodeStep: plan.NodeStep{Name: "a", Action: schemas.NodeMark}, ConditionsRefused: refused}
		s.noteRefusals("kernel", apply.Result{Nodes: []apply.Done{done}}, at)
	}
	note(true, now)
	note(true, now.Add(time.Second))
	var got []bool
	for _, after := range []time.Duration{time.Second, refusedSince, refusalFor} {
		got = append(got, s.conditionsRefused("kernel", "a", now.Add(after)))
	}
	note(false, now.Add(2*refusedSince))
	got = append(got, s.conditionsRefused("kernel", "a", now.Add(3*refusedSince)))
	if want := []bool{false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
