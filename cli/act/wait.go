package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	case err != nil || f.detach:
		return err
	case !q.asJSON:
		if err := q.progress.write(q.out); err != nil {
			return err
		}
	}
	return q.progress.err()
}

// sending is the state of a request while its events are shown.
type sending struct {
	to         cmdutil.Installation
	event      schemas.Event // from the first Send
	caused     []string      // the correlation IDs of its events: each event that Send returned may begin another chain
	unknown    bool          // the last Send returned no event, so the next receipt has the correlation ID
	at         time.Time     // when it is sent
	progress   *progress
	detach     bool // no events are shown
	asJSON     bool
	out, notes io.Writer
	mu         sync.Mutex // guards progress and out: progress of a drain is also shown between events

	sent    bool
	missed  bool        // the connection was lost
	enough  func()      // ends following
	waiting *time.Timer // calls enough later; nil means that no call is planned
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
	s.sent, s.event = true, e
	s.chain(e)
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

// chain records the event that Send returned.
func (s *sending) chain(e schemas.Event) {
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
	// overdue is the time after its deadline within which a request ends: the actuator follows a move for ten minutes.
	overdue = 15 * time.Minute
	// progressEvery is the time between two lines about a drain.
	progressEvery = 10 * time.Second
)

var errOver = errors.New("the request is over")

// follow sends the request and shows every event that it causes, until it is over, is overdue, or ctx ends.
func (s *sending) follow(ctx context.Context) error {
	late := time.AfterFunc(unheard, func() {
		fmt.Fprintf(s.notes, "the request has no receipt yet; is a watcher running?\n")
	})
	defer late.Stop()
	p := s.progress
	handle := func(e schemas.Event) error {
		if s.unknown && p.isReceipt(e) && !slices.Contains(s.caused, e.CorrelationID) {
			s.chain(e)
		}
		if !p.concerns(e, s.caused) || e.Type == schemas.RequestType {
			return nil
		}
		late.Stop()
		return s.handle(e)
	}
	following, enough := context.WithDeadline(ctx, request.Deadline(p.request, s.at).Add(overdue))
	defer enough()
	s.enough = enough
	go s.showDrain(following)
	query := cmdutil.EventQuery{Since: s.at.Add(-clocks), Follow: true, Request: &p.request, Begin: s.listening}
	err := s.to.Events(following, query, handle)
	switch {
	case (err == nil || errors.Is(err, errOver)) && p.over():
		return nil
	case errors.Is(following.Err(), context.DeadlineExceeded):
		return s.unanswered()
	case err != nil && !errors.Is(err, errOver):
		return err
	case p.finished != nil:
		return fmt.Errorf("request %s/%s is finished; some moves are still in flight", p.request.Sender, p.request.Name)
	}
	return fmt.Errorf("request %s/%s stays open; to cancel it:\n  rehome cancel %s --sender %s --reason '...'",
		p.request.Sender, p.request.Name, p.request.Name, p.request.Sender)
}

// unanswered returns the error of an overdue request.
func (s *sending) unanswered() error {
	p, r := s.progress, s.progress.request
	missing, command := "the end of each move", "rehome get moves"
	switch {
	case p.accepted == nil && p.finished == nil:
		missing, command = "a receipt", "rehome get requests"
	case p.finished == nil:
		missing, command = "its last receipt", "rehome get requests"
	}
	return fmt.Errorf("request %s/%s: no answer: its deadline passed %v ago, and %s did not arrive; to see the current state:\n  %s",
		r.Sender, r.Name, overdue, missing, command)
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

// listening sends the request, again after each loss of the connection: an open request is refused, a finished one gets its last
// receipt again, and one that the bus has lost begins again.
func (s *sending) listening(ctx context.Context, missed bool) error {
	if !s.sent {
		return s.send(ctx)
	}
	if missed {
		s.missed = true
		fmt.Fprintln(s.notes, "the connection to the bus was lost for a while; events of that time are missing here")
	}
	switch finished := s.progress.finished != nil; {
	case finished && missed:
		return errOver
	case finished: // the ends of its moves follow
		return nil
	}
	e, err := s.to.Send(ctx, s.progress.request, s.event)
	if isOpen(err) { // its last receipt may have been published just now
		select {
		case <-time.After(Dropped):
		case <-ctx.Done():
		}
		e, err = s.to.Send(ctx, s.progress.request, s.event)
	}
	switch {
	case err == nil:
		s.chain(e)
	case ctx.Err() == nil && !isOpen(err) && !isAway(err):
		return err
	}
	return nil
}

// isOpen reports whether a request was refused because it is open.
func isOpen(err error) bool { return errors.Is(err, bus.ErrOpen) || errors.Is(err, client.ErrConflict) }

// isAway reports whether a request can be sent again later.
func isAway(err error) bool {
	if p, refused := errors.AsType[*client.Problem](err); refused {
		return p.Status >= 500 || p.Status == http.StatusTooManyRequests
	}
	_, lost := errors.AsType[net.Error](err)
	return lost || errors.Is(err, io.EOF) || errors.Is(err, bus.ErrNotConnected)
}
