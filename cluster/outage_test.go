package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestEachMissingRightIsLoggedForItselfAndAnOutageOnce(t *testing.T) {
	forbidden := func(resource string) error {
		return fmt.Errorf("watch: %w", apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no rule")))
	}
	away := errors.New("connection refused")
	synctest.Test(t, func(t *testing.T) {
		var log lines
		o := outage{log: slog.New(slog.NewTextHandler(&log, nil))}
		for _, step := range []struct {
			after time.Duration
			err   error
			want  int // lines so far
		}{
			{0, forbidden("pods"), 1},
			{time.Second, forbidden("nodes"), 2},
			{time.Second, forbidden("pods"), 2},
			{time.Second, away, 3},
			{time.Second, errors.New("no route to host"), 3},
			{outageInterval, forbidden("pods"), 4},
			{0, forbidden("nodes"), 5},
			{0, away, 6},
		} {
			time.Sleep(step.after)
			o.failed(step.err)
			if got := log.count("the API server cannot be watched"); got != step.want {
				t.Errorf("after %v: %d lines, want %d", step.err, got, step.want)
			}
		}
	})
}
