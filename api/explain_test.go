package api

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/rehome-dev/rehome/api/review"
)

func TestTooMuchWork(t *testing.T) {
	for _, c := range []struct {
		name        string
		own, others int // calls in progress or waiting, of the user and of other users
		want        string
	}{
		{"others", 0, mostWork, "2 explanations and simulations are in progress, which is the limit; try again later"},
		{"own", 1 + mostWaitingWork, 0,
			"other explanations or simulations of user ada are in progress, and one at a time is the limit; try again later"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{working: make(chan struct{}, mostWork), atWork: review.NewTurns(1, mostWaitingWork)}
				for range c.others {
					s.working <- struct{}{}
				}
				u := user{}
				u.Username = "ada"
				ctx, cancel := context.WithCancel(withCall(t.Context(), call{user: u}))
				wait := func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				}
				for range c.own {
					go func() { _ = s.work(ctx, wait) }()
				}
				synctest.Wait()
				if err := s.work(ctx, wait); err == nil || err.Error() != c.want {
					t.Errorf("got  %v\nwant %s", err, c.want)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}
