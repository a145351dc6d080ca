package bus

import (
	"context"
	"errors"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	handover "github.com/rehome-dev/rehome/schemas/delivery"
)

// verb is what becomes of a message after it was handled.
type verb string

const (
	ack  verb = "ack"  // it is done
	nak  verb = "nak"  // it is handed out again, after a delay
	bury verb = "bury" // it goes to the dead letters, and is done
)

// attempt is one run of a handler.
type attempt struct {
	err      error
	stopping bool   // the end has come: a handler may be told to stop before it is done
	times    uint64 // how often the message was tried, this time included
	most     int    // how often it may be; 0: without end
}

// outcome is the one place that says what becomes of a message.
//
//	handler returned                       last time    otherwise
//	nil                                    ack          ack
//	an error that is schemas.ErrInvalid    bury         bury
//	one that is context.Canceled, as told  nak at once  nak at once
//	any other error                        bury         nak after a delay that doubles, or a longer one that it asks for
//
// random is in [0, 1).
func outcome(a attempt, delays backoff, random float64) (verb, time.Duration) {
	switch {
	case a.err == nil:
		return ack, 0
	case errors.Is(a.err, schemas.ErrInvalid):
		return bury, 0
	case a.stopping && errors.Is(a.err, context.Canceled):
		return nak, 0
	case a.most > 0 && a.times >= uint64(a.most):
		return bury, 0
	}
	return nak, max(delays.delay(int(a.times), random), handover.After(a.err))
}
