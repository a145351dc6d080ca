package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/api/client"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
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
	event      schemas.Event // from Send; if it has no correlation ID, the first receipt has it
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
	case errors.Is(err, bus.ErrOpen), errors.Is(err, client.ErrConflict):
		return fmt.Errorf("%w; name another with --name, or cancel it", err)
	case err != nil:
		return err
	}
	s.sent, s.event = true, e
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
)

var errOver = errors.New("the request is over")

// follow sends the request and shows every event that it causes, until it is over or ctx ends.
func (s *sending) follow(ctx context.Context) error {
	late := time.AfterFunc(unheard, func() {
		fmt.Fprintf(s.notes, "the request has no receipt yet; is a watcher running?\n")
	})
	defer late.Stop()
	p := s.progress
	handle := func(e schemas.Event) error {
		if s.event.CorrelationID == "" && p.isReceipt(e) {
			s.event.CorrelationID = e.CorrelationID
		}
		if !p.concerns(e, s.event.CorrelationID) || e.Type == schemas.RequestType {
			return nil
		}
		late.Stop()
		return s.handle(e)
	}
	following, enough := context.WithCancel(ctx)
	defer enough()
	s.enough = enough
	go s.showDrain(following)
	query := cmdutil.EventQuery{Since: s.at.Add(-clocks), Follow: true, Request: &p.request, Begin: s.listening}
	err := s.to.Events(following, query, handle)
	switch {
	case (err == nil || errors.Is(err, errOver)) && p.over():
		return nil
	case err != nil && !errors.Is(err, errOver):
		return err
	case p.finished != nil:
		return fmt.Errorf("request %s/%s is finished; some moves are still in flight", p.request.Sender, p.request.Name)
	}
	return fmt.Errorf("request %s/%s stays open; to cancel it:\n  rehome cancel %s --sender %s --reason '...'",
		p.request.Sender, p.request.Name, p.request.Name, p.request.Sender)
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

// listening sends the request. If events were missed, it sends the same request again: an open request is refused, and a finished
// one gets its last receipt again.
func (s *sending) listening(ctx context.Context) error {
	if !s.sent {
		return s.send(ctx)
	}
	s.missed = true
	fmt.Fprintln(s.notes, "the connection to the bus was lost for a while; events of that time are missing here")
	if s.progress.finished != nil {
		return errOver
	}
	_, err := s.to.Send(ctx, s.progress.request, s.event)
	if errors.Is(err, bus.ErrOpen) { // its last receipt may have been published just now
		select {
		case <-time.After(Dropped):
		case <-ctx.Done():
		}
		_, err = s.to.Send(ctx, s.progress.request, s.event)
	}
	if ctx.Err() == nil && !errors.Is(err, bus.ErrOpen) && !errors.Is(err, bus.ErrNotConnected) {
		return err
	}
	return nil
}
