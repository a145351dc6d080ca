// Package movetest takes the steps of a move in tests.
package movetest

import (
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Began returns the time when each move begins.
func Began() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// Step takes a step that long after [Began], and compares the result except the state, which it returns.
func Step(t testing.TB, m move.Method, state move.State, after time.Duration, want move.Progress) move.State {
	t.Helper()
	got, err := m.Step(t.Context(), state, false, Began().Add(after))
	expect.Must(t, err)
	if got.State != nil {
		state = got.State
	}
	got.State = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("step after %s\n got %+v %+v\nwant %+v %+v", after, got, got.Refusal, want, want.Refusal)
	}
	return state
}
