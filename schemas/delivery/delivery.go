// Package delivery defines the errors of sending an event to another program over any transport.
//
//	nil                      delivered
//	[schemas.ErrInvalid]     the receiver rejects the event permanently, or its answer is invalid
//	[ErrUnauthorized]        the receiver rejects the sender: a matter of configuration, not of this event
//	[ErrUnreachable]         no receiver, or no response in time: a matter of the receiver, not of this event
//	[Later]                  the receiver requests a retry of this event
//
// An error has at most one of these kinds. The exception is a gateway without a server behind it, which is a [Later] that wraps
// [ErrUnreachable]. Any other error, such as the end of a context, says nothing about the receiver.
//
// [RetryDelay] is the delay before a pod is evaluated again after a verdict that began no move.
package delivery

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// MaxAfter limits the delay that a receiver can request. Scopes are kept for an hour and become outdated earlier.
const MaxAfter = 5 * time.Minute

var (
	// ErrUnauthorized is wrapped by errors for events whose sender was rejected.
	ErrUnauthorized = errors.New("not authorized")
	// ErrUnreachable is wrapped by errors for events without a response.
	ErrUnreachable = errors.New("unreachable")
)

// Later is the error for an event that the receiver may accept later.
type Later struct {
	// After is the delay that the receiver requests. Zero means none.
	After time.Duration
	// Err is the reason.
	Err error
}

// Error implements error.
func (l *Later) Error() string {
	if l.After == 0 {
		return fmt.Sprintf("try again: %v", l.Err)
	}
	return fmt.Sprintf("try again after %v: %v", l.After, l.Err)
}

// Unwrap returns Err.
func (l *Later) Unwrap() error { return l.Err }

// Undelivered is the error for one of several events that were sent together. Their errors are joined.
type Undelivered struct {
	// ID is the ID of the event.
	ID string
	// Err is the reason.
	Err error
}

// Error implements error.
func (u *Undelivered) Error() string { return u.Err.Error() }

// Unwrap returns Err.
func (u *Undelivered) Unwrap() error { return u.Err }

// Refused splits the error for several events. refused has the errors of rejected events by event ID. Each of them wraps
// [schemas.ErrInvalid]. rest is the error of all other events, which can be sent again. Both are nil if there are none.
func Refused(err error) (refused map[string]error, rest error) {
	refused = map[string]error{}
	var left []error
	for _, one := range each(err) {
		if u, ok := any(one).(*Undelivered); ok && errors.Is(u, schemas.ErrInvalid) {
			refused[u.ID] = u.Err
		} else {
			left = append(left, one)
		}
	}
	if len(refused) == 0 {
		return nil, err
	}
	return refused, errors.Join(left...)
}

// each returns the errors that err joins, but, unlike errors.As, not the errors that they wrap.
func each(err error) []error {
	joined, ok := any(err).(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, each(one)...)
	}
	return all
}

// After returns the delay that the receiver requested, or zero.
func After(err error) time.Duration {
	if later, ok := errors.AsType[*Later](err); ok {
		return later.After
	}
	return 0
}

// ReadAfter parses a Retry-After header in seconds or as a date, and returns the delay, at most [MaxAfter]. It returns zero for
// an invalid header or a past date.
func ReadAfter(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, MaxAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, min(at.Sub(now), MaxAfter))
}
