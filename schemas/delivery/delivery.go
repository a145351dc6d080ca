// Package delivery names what can come of handing an event to another program, whatever carried it there: the kinds of
// errors that who sends, asks and tries again have to tell apart.
//
//	nil                      it arrived
//	[schemas.ErrInvalid]     the other side will never take it, or what it answered is not what was asked for
//	[ErrUnauthorized]        the other side does not know who asks: a matter of configuration, not of this event
//	[ErrUnreachable]         nobody was there, or nobody answered in time: a matter of the other side, not of this event
//	[Later]                  the other side asks to be tried again with this event
//
// An error is of at most one of these kinds, but for a gateway that says that nobody is behind it, which is [Later] and wraps
// [ErrUnreachable]. One that is of none, such as that of a context that ended, says nothing about the other side.
//
// [RetryDelay] is when a pod is tried again whose intent arrived, and whose verdict began no move.
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

// MaxAfter bounds how long the other side can ask to be left alone. What it is sent is kept for an hour, and what is decided
// about a cluster is old before that.
const MaxAfter = 5 * time.Minute

var (
	// ErrUnauthorized is wrapped by the error for an event that was refused because of who sent it.
	ErrUnauthorized = errors.New("not authorized")
	// ErrUnreachable is wrapped by the error for an event that nobody answered.
	ErrUnreachable = errors.New("unreachable")
)

// Later is the error for an event that may be taken when it is sent again.
type Later struct {
	// After is how long the other side asks to be left alone. Zero: it did not say.
	After time.Duration
	// Err says why.
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

// Undelivered is the error for one of several events that were handed over together. What comes of them all is one error that
// joins those of the events that did not arrive.
type Undelivered struct {
	// ID is that of the event.
	ID string
	// Err says why.
	Err error
}

// Error implements error.
func (u *Undelivered) Error() string { return u.Err.Error() }

// Unwrap returns Err.
func (u *Undelivered) Unwrap() error { return u.Err }

// Refused takes apart what came of several events. refused are the errors, by the IDs of their events, of those that will never
// be taken, each of which wraps [schemas.ErrInvalid]; nil: there are none. rest is all else, which is worth another try; nil:
// there is nothing else.
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

// each returns the errors that err joins. It does not look at what they wrap, which errors.As would do.
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

// After is how long the other side asks to be left alone, as far as err says so. Zero: it did not say.
func After(err error) time.Duration {
	if later, ok := errors.AsType[*Later](err); ok {
		return later.After
	}
	return 0
}

// ReadAfter reads a header Retry-After, in seconds or as a date, as the time to wait from now on, at most [MaxAfter]. Zero:
// it is in neither form, or is over.
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
