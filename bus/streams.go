package bus

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lookEvery is how often the streams are looked for while nothing happens: seven small requests, and the longest time
// for which a stream that somebody deleted goes unnoticed.
const lookEvery = 10 * time.Second

// FollowStreams looks for the streams whenever there is a new connection, and every ten seconds, until ctx ends. Then it
// returns nil. It calls found when all of them are there for the first time, and again whenever one of them is not the one
// that was there before: then what was on the bus has been lost.
//
// When a stream is missing it calls missing, which may set up the bus, and again after a growing delay, up to 5 s, until
// all are there. nil: it waits for somebody else to do that. An error of missing is logged, once until it changes.
func (b *Bus) FollowStreams(ctx context.Context, missing func(context.Context) error, found func()) error {
	var known births
	b.forever(ctx, "streams", func(ctx context.Context) error {
		for {
			now, err := b.births(ctx)
			if errors.Is(err, ErrNotSetUp) {
				b.found(time.Time{})
				if missing != nil {
					err = missing(ctx)
				}
				if err == nil {
					now, err = b.births(ctx)
				}
			}
			if err != nil {
				return err
			}
			if now != known {
				known = now
				found()
			}
			pause(ctx, lookEvery)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	})
	return nil
}

// births are the times when the streams were made.
type births [7]time.Time

// births asks when the streams were made.
func (b *Bus) births(ctx context.Context) (times births, err error) {
	for i, name := range streamNames() {
		s, err := b.js.Stream(ctx, name)
		if err != nil {
			return times, fmt.Errorf("bus: %w", notSetUp("stream "+name, err))
		}
		times[i] = s.CachedInfo().Created.UTC() // so that they can be compared with ==
	}
	return times, nil
}
