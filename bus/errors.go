package bus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrNotConnected is wrapped by errors that say that no server answers. It passes by itself when the server is back.
var ErrNotConnected = errors.New("not connected")

// ErrNotSetUp is wrapped by errors that say that a stream or consumer does not exist: nobody has called [Bus.Setup] on
// this server, or its store was lost.
var ErrNotSetUp = errors.New("not set up: run rehome setup")

// ErrNoListener is wrapped by errors that say that there is no listener of a name: nobody has listened under it, or it was
// removed.
var ErrNoListener = errors.New("there is no such listener")

// The errors of publishing a request, besides the two above and [schemas.ErrInvalid].
var (
	// ErrOpen is wrapped by errors that say that a request of the same sender and name is open.
	ErrOpen = errors.New("a request of this name is open")
	// ErrFull is wrapped by errors that say that too many requests are open.
	ErrFull = errors.New("too many requests are open")
)

// The errors of dead letters, besides the two above and [schemas.ErrInvalid].
var (
	// ErrNoDeadLetter is wrapped by errors that say that there is no dead letter of a number: there never was, it was
	// dropped or retried, or it was too old.
	ErrNoDeadLetter = errors.New("there is no such dead letter")
	// ErrCut is wrapped by errors that say that a message is not whole: it was too large for a letter. What it was is lost.
	ErrCut = errors.New("the message was cut and cannot be published again")
	// ErrNewer is wrapped by errors that say that a message would take the place of a newer one.
	ErrNewer = errors.New("a newer message has taken its place")
)

// notSetUp wraps [ErrNotSetUp] round an error that says that a stream or consumer does not exist, and returns any other
// error as it is.
func notSetUp(what string, err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("%s is missing: %w", what, ErrNotSetUp)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// backoff is a delay that doubles from first up to most.
type backoff struct{ first, most time.Duration }

// delay is what to wait after so many attempts, at least one, that all failed. random is in [0, 1); it spreads the
// delays of many over half of their length, so that they do not all come back at once.
func (b backoff) delay(attempts int, random float64) time.Duration {
	d := b.first
	for i := 1; i < attempts && d < b.most; i++ {
		d *= 2
	}
	d = min(d, b.most)
	return d - time.Duration(random*float64(d)/2)
}

// after is delay with a random number of its own.
func (b backoff) after(attempts int) time.Duration { return b.delay(attempts, rand.Float64()) }
