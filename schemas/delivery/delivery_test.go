package delivery_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas/delivery"
)

func TestTheTimeToWaitIsFoundInAnErrorThatWrapsIt(t *testing.T) {
	full := errors.New("all hands are busy")
	for name, c := range map[string]struct {
		err   error
		after time.Duration
		text  string
	}{
		"it says how long":   {&delivery.Later{After: 3 * time.Second, Err: full}, 3 * time.Second, "try again after 3s: all hands are busy"},
		"it does not say":    {&delivery.Later{Err: full}, 0, "try again: all hands are busy"},
		"it is wrapped":      {fmt.Errorf("ask: %w", &delivery.Later{After: time.Minute, Err: full}), time.Minute, "ask: try again after 1m0s: all hands are busy"},
		"it is another kind": {delivery.ErrUnreachable, 0, "unreachable"},
	} {
		if got := delivery.After(c.err); got != c.after || c.err.Error() != c.text {
			t.Errorf("%s: got %v, %q; want %v, %q", name, got, c.err, c.after, c.text)
		}
	}
	if err := (&delivery.Later{Err: full}); !errors.Is(err, full) {
		t.Errorf("%v does not wrap its reason", err)
	}
}
