package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/api/client"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// sendRequest sends the request and, with wait, shows its events.
func (f *requestFlags) sendRequest(c *cobra.Command, r schemas.Request) error {
	to, err := f.Open(c.Context(), bus.Participant{Role: bus.RoleSender, Name: r.Sender})
	if err != nil {
		return err
	}
	defer to.Close()
	r.Sender = cmp.Or(to.Sender(), r.Sender)
	q := &sending{
		to: to, at: time.Now(), progress: newProgress(r), detach: f.detach, asJSON: f.output == "json",
		out: c.OutOrStdout(), notes: c.ErrOrStderr(),
	}
	if f.detach {
		err = q.send(c.Context())
	} else {
		err = q.follow(c.Context())
	}
	switch {
	case errors.Is(err, bus.ErrNotPermitted):
		return fmt.Errorf("%w; --sender: want the sender of the key", err)
	case err != nil:
		return err
	case f.detach:
		q.progress.take(q.event) // the API may have returned a receipt
		if q.progress.finished == nil {
			return nil
		}
	case !q.asJSON:
		if err := q.progress.write(q.out); err != nil {
			return err
		}
	}
	return q.progress.err()
}

// sending is the state of a request while its events are shown.
type sending struct {
	to     cmdutil.Installation
	at     time.Time // the begin
	detach bool      // no events are shown
	asJSON bool
	notes  io.Writer
	enough func() // ends following

	mu       sync.Mutex // guards all fields below: follow handles events, showDrain writes between them, and repeat sends again
	out      io.Writer
	progress *progress
	event    schemas.Event // from the first Send
	sent     time.Time     // when Send returned an event last; zero: not yet
	caused   []string      // the correlation IDs of its events: each event that Send returned may begin another chain
	unknown  bool          // the last Send returned no event, so the next receipt has the correlation ID
	missed   bool          // the connection was lost
	waiting  *time.Timer   // calls enough later; nil means that no call is planned
}

func (s *sending) send(ctx context.Context) error {
	r := s.progress.request
	e, err := s.to.Send(ctx, r, schemas.Event{})
	switch {
	case isOpen(err):
		return fmt.Errorf("%w; name another with --name, or cancel it", err)
	case err != nil:
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.event = e
	s.begun(e)
	if s.asJSON {
		if e.ID == "" || !s.detach && e.Type != schemas.RequestType {
			return nil // the receipt is one of the next events
		}
		return look.ShowJSON(s.out, e)
	}
	about, text := r.Describe()
	_, err = fmt.Fprintf(s.out, "request %s: %s\n", about, text)
	return err
}

// begun records the event that Send returned. The caller holds mu.
func (s *sending) begun(e schemas.Event) {
	s.sent = time.Now()
	if s.unknown = e.CorrelationID == ""; !s.unknown {
		s.caused = append(s.caused, e.CorrelationID)
	}
}

const (
	// clocks is the largest tolerated delay of the clock of the bus.
	clocks = time.Minute
	// unheard is the time without a receipt after which the user gets a notice.
	unheard = 5 * time.Second
	// Dropped is the time after its last receipt within which a request is removed from the bus.
	Dropped = time.Second
	// behind is the longest delay of a verdict that should precede the receipt.
	behind = 5 * time.Second
	// progressEvery is the time between two lines about a drain.
	progressEvery = 10 * time.Second
	// longestAnswer is the time after its deadline within which a request has its last receipt, and longestMove the time within
	// which its moves end. A webhook may take six hours to evict a pod.
	longestAnswer, longestMove = 15 * time.Minute, 7 * time.Hour
)

// repeatEvery is the time between two sends of an open request. A user can send 30 requests a minute.
var repeatEvery = time.Minute //nolint:gochecknoglobals // tests shorten it

var (
	errOver    = errors.New("the request is over")
	errOverdue = errors.New("no answer")
)

// follow sends the request and shows every event that it causes, until it is over, its answer is overdue, or ctx ends.
func (s *sending) follow(ctx context.Context) error {
	late := time.AfterFunc(unheard, func() {
		fmt.Fprintf(s.notes, "the request has no receipt yet; is a watcher running?\n")
	})
	defer late.Stop()
	handle := func(e schemas.Event) error {
		if !s.concerns(e) {
			return nil
		}
		late.Stop()
		return s.handle(e)
	}
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	s.enough = func() { end(errOver) }
	go s.showDrain(following)
	go s.repeat(following, end)
	p := s.progress
	query := cmdutil.EventQuery{Since: s.at.Add(-clocks), Follow: true, Request: &p.request, Begin: s.listening}
	err := s.to.Events(following, query, handle)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case (err == nil || errors.Is(err, errOver)) && p.over():
		return nil
	case errors.Is(context.Cause(following), errOverdue):
		return context.Cause(following)
	case err != nil && !errors.Is(err, errOver):
		return err
	case p.finished != nil:
		return fmt.Errorf("request %s/%s is finished; some moves are still in flight", p.request.Sender, p.request.Name)
	}
	return fmt.Errorf("request %s/%s stays open; to cancel it:\n  rehome cancel %s --sender %s --reason '...'",
		p.request.Sender, p.request.Name, p.request.Name, p.request.Sender)
}

// concerns reports whether to show an event.
func (s *sending) concerns(e schemas.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unknown && s.progress.isReceipt(e) && !slices.Contains(s.caused, e.CorrelationID) {
		s.caused, s.unknown = append(s.caused, e.CorrelationID), false
	}
	return e.Type != schemas.RequestType && s.progress.concerns(e, s.caused)
}

// repeat sends the request again from time to time, until its last receipt arrives: a bus that lost its data has lost the request
// too, and this client may have missed the receipt. It ends following with an error when an answer is overdue.
func (s *sending) repeat(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(repeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		sent, finished, err := !s.sent.IsZero(), s.progress.finished != nil, s.overdue(time.Now())
		s.mu.Unlock()
		switch {
		case err != nil:
			end(err)
			return
		case sent && !finished:
			_ = s.sendAgain(ctx) // the next time may succeed
		}
	}
}

// sendAgain sends the request again: an open request is refused, a finished one gets its last receipt again, and a lost one
// begins again.
func (s *sending) sendAgain(ctx context.Context) error {
	e, err := s.to.Send(ctx, s.progress.request, s.event)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begun(e)
	}
	return err
}

// overdue returns an error if the last receipt or the end of a move should have arrived by now. The caller holds mu.
func (s *sending) overdue(now time.Time) error {
	p, r := s.progress, s.progress.request
	missing, longest, command := "its last receipt", longestAnswer, "rehome get requests"
	if p.finished != nil {
		missing, longest, command = "the end of each move", longestMove, "rehome get moves"
	}
	if s.sent.IsZero() || now.Before(request.Deadline(r, s.sent).Add(longest)) {
		return nil
	}
	return fmt.Errorf("request %s/%s: %w: %s did not arrive within %v after the deadline; to see the current state:\n  %s",
		r.Sender, r.Name, errOverdue, missing, longest, command)
}

// handle shows an event. It returns errOver when it was the last one.
func (s *sending) handle(e schemas.Event) error {
	show := look.ShowText
	if s.asJSON {
		show = look.ShowJSON
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress.take(e) {
		var err error
		if e.Type == schemas.MaintenanceType && !s.asJSON {
			err = s.drainLine()
		} else {
			err = show(s.out, e)
		}
		if err != nil {
			return err
		}
	}
	if s.waiting != nil {
		s.waiting.Stop()
	}
	switch p := s.progress; {
	case p.over() && !p.unexplained():
		return errOver
	case p.over(), s.missed && p.finished != nil: // the end of a move may have been missed, or be on its way
		s.waiting = time.AfterFunc(behind, s.enough)
	}
	return nil
}

// showDrain writes a line about the drain of a node from time to time, until ctx ends.
func (s *sending) showDrain(ctx context.Context) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			if !s.asJSON && s.progress.finished == nil {
				_ = s.drainLine() // the next event returns the error
			}
			s.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// drainLine writes the progress of the node, if it is known.
func (s *sending) drainLine() error {
	n := s.progress.node
	if n == nil {
		return nil
	}
	_, err := fmt.Fprintf(s.out, "%s  %s\n", time.Since(s.at).Truncate(time.Second), describeNode(*n))
	return err
}

// listening sends the request. If events were missed, it sends the request again.
func (s *sending) listening(ctx context.Context) error {
	s.mu.Lock()
	sent, finished := !s.sent.IsZero(), s.progress.finished != nil
	s.missed = sent
	s.mu.Unlock()
	if !sent {
		return s.send(ctx)
	}
	fmt.Fprintln(s.notes, "the connection to the bus was lost for a while; events of that time are missing here")
	if finished {
		return errOver
	}
	err := s.sendAgain(ctx)
	if isOpen(err) { // its last receipt may have been published just now
		select {
		case <-time.After(Dropped):
		case <-ctx.Done():
		}
		err = s.sendAgain(ctx)
	}
	if ctx.Err() == nil && !isOpen(err) && !errors.Is(err, bus.ErrNotConnected) {
		return err
	}
	return nil
}

// isOpen reports whether a request was refused because it is open.
func isOpen(err error) bool { return errors.Is(err, bus.ErrOpen) || errors.Is(err, client.ErrConflict) }
