package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestALeaseSaysOnceThatItCannotBeAskedForAndOnceThatItCanAgain(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	refused := errors.New("connection refused")
	var out bytes.Buffer
	l := &lock{Interface: &resourcelock.LeaseLock{}, log: slog.New(slog.NewTextHandler(&out, nil))}
	for _, err := range []error{
		nil, apierrors.NewNotFound(leases, "a"), apierrors.NewConflict(leases, "a", nil), // in order
		refused, refused, context.Canceled, refused, // an outage
		apierrors.NewAlreadyExists(leases, "a"), nil, // the end of it
		apierrors.NewForbidden(leases, "a", nil), fmt.Errorf("wrapped: %w", context.Canceled), // another one
	} {
		l.answered(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		line = regexp.MustCompile(`(time|after)=\S+ ?`).ReplaceAllString(line, "")
		got = append(got, strings.TrimSpace(line))
	}
	const cannot = `level=WARN msg="the API server does not let the lease be asked for; trying again until it does" lease=/ `
	want := []string{
		cannot + `error="connection refused"`,
		`level=INFO msg="the API server answers again" lease=/`,
		cannot + `error="leases.coordination.k8s.io \"a\" is forbidden: <nil>"`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
