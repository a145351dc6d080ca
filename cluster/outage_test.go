package cluster

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/rehome-dev/rehome/test/kit/program"
)

func TestOutageLog(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, "", errors.New("no rule"))
	away := errors.New("connection refused")
	synctest.Test(t, func(t *testing.T) {
		var log program.Log
		c := newCache(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		failed := map[Kind]cache.WatchErrorHandlerWithContext{Pods: c.watchFailed(Pods), Nodes: c.watchFailed(Nodes)}
		for _, step := range []struct {
			after time.Duration
			kind  Kind
			err   error
			want  int // lines so far
		}{
			{0, Pods, forbidden, 1},
			{time.Second, Nodes, forbidden, 2},
			{time.Second, Pods, forbidden, 2},
			{time.Second, Pods, io.EOF, 2},
			{time.Second, Pods, away, 3},
			{time.Second, Nodes, errors.New("no route to host"), 3},
			{outageInterval, Pods, forbidden, 4},
			{0, Nodes, forbidden, 5},
			{0, Pods, away, 6},
		} {
			time.Sleep(step.after)
			failed[step.kind](t.Context(), nil, step.err)
			if got := strings.Count(log.String(), "cannot watch the API server"); got != step.want {
				t.Errorf("after %v: %d lines, want %d", step.err, got, step.want)
			}
		}
	})
}
