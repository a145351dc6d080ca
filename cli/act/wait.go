package act

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/schemas"
)

// sendRequest publishes the request and, with wait, shows its events.
func sendRequest(c *cobra.Command, s settings.Settings, r schemas.Request, wait, asJSON bool) error {
	sender := bus.Participant{Role: bus.RoleSender, Name: r.Sender}
	return cmdutil.WithBus(s, sender, func(b *bus.Bus) error {
		now := time.Now()
		e, err := schemas.NewEvent(s.Source("cli"), r, now, schemas.Event{})
		if err != nil {
			return err
		}
		q := &sending{
			bus: b, event: e, at: now, progress: newProgress(r), live: s.NATSNKey != "" || s.NATSCreds != "",
			asJSON: asJSON, out: c.OutOrStdout(), notes: c.ErrOrStderr(),
		}
		if wait {
			err = q.follow(c.Context())
		} else {
			err = q.send(c.Context())
		}
		switch {
		case errors.Is(err, bus.ErrNotPermitted):
			return fmt.Errorf("%w; --sender: want the one whose key it is", err)
		case err != nil || !wait:
			return err
		case !asJSON:
			if err := q.progress.write(q.out); err != nil {
				return err
			}
		}
		return q.progress.err()
	})
}

// sending is the state of a request while its events are shown.
type sending struct {
	bus        *bus.Bus
	event      schemas.Event // of the request
	at         time.Time     // when it is sent
	progress   *progress
	live       bool // whoever has the key of a sender hears what comes, and may not read the history
	asJSON     bool
	out, notes io.Writer
	mu         sync.Mutex // guards progress and out: the drain is also shown while no event comes

	sent    bool
	missed  bool        // the connection was lost meanwhile
	enough  func()      // ends the following
	waiting *time.Timer // until that is called; nil: it is not to be called
}

func (s *sending) send(ctx context.Context) error {
	if _, err := s.bus.Publish(ctx, s.event); err != nil {
		switch {
		case errors.Is(err, schemas.ErrInvalid):
			return err
		case errors.Is(err, bus.ErrOpen):
			return fmt.Errorf("%w; name another with --name, or cancel it", err)
		}
		return err
	}
	s.sent = true
	if s.asJSON {
		return look.ShowJSON(s.out, s.event)
	}
	r := s.progress.request
	_, err := fmt.Fprintf(s.out, "request %s/%s: %s\n", r.Sender, r.Name, look.DescribeRequest(r))
	return err
}

const (
	// clocks is how far the clock of the bus may be behind.
	clocks = time.Minute
	// unheard is when the user learns that the request has no receipt yet.
	unheard = 5 * time.Second
	// Dropped is how long after its last receipt a request is surely taken off the bus.
	Dropped = time.Second
	// behind is how long a verdict may come after the receipt that it precedes.
	behind = 2 * time.Second
	// progressEvery is the time between two lines about a drain.
	progressEvery = 10 * time.Second
)

var errOver = errors.New("the request is over")

// follow sends the request and shows every event that it causes, until it is over or ctx ends.
func (s *sending) follow(ctx context.Context) error {
	late := time.AfterFunc(unheard, func() {
		fmt.Fprintf(s.notes, "nobody has taken the request yet; is a watcher running?\n")
	})
	defer late.Stop()
	p := s.progress
	handle := func(e schemas.Event) error {
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
	err := s.events(following, handle)
	switch {
	case (err == nil || errors.Is(err, errOver)) && p.over():
		return nil
	case err != nil && !errors.Is(err, errOver):
		return err
	case p.finished != nil:
		return fmt.Errorf("request %s/%s is finished; the ends of some moves were not waited for", p.request.Sender, p.request.Name)
	}
	return fmt.Errorf("request %s/%s stays open; to cancel it:\n  rehome cancel %s --sender %s --reason '...'",
		p.request.Sender, p.request.Name, p.request.Name, p.request.Sender)
}

// events sends the request and calls handle for the events of the subjects that may concern it.
func (s *sending) events(ctx context.Context, handle func(schemas.Event) error) error {
	receipts := schemas.Receipt{Sender: s.progress.request.Sender, Name: s.progress.request.Name}.Channel()
	channels := []string{receipts, bus.VerdictChannels}
	if m := s.progress.request.Maintenance; m != nil && !s.live { // a sender with a key may not hear of maintenances
		channels = append(channels, schemas.Maintenance{Name: schemas.RequestedMaintenance(m.Node)}.Channel())
	}
	if s.live {
		return s.bus.Subscribe(ctx, channels, s.listening, handle)
	}
	if err := s.send(ctx); err != nil {
		return err
	}
	return s.bus.Events(ctx, bus.Query{Channels: channels, Since: s.at.Add(-clocks), Follow: true}, handle)
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
				_ = s.drainLine() // the next event finds out that nobody reads
			}
			s.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// drainLine writes how far the node is, if that is known.
func (s *sending) drainLine() error {
	n := s.progress.node
	if n == nil {
		return nil
	}
	_, err := fmt.Fprintf(s.out, "%s  %s\n", time.Since(s.at).Truncate(time.Second), describeNode(*n))
	return err
}

// listening sends the request. When events were missed, it asks for the same again: what is open is refused, and of what is
// finished the last receipt comes once more.
func (s *sending) listening(ctx context.Context) error {
	if !s.sent {
		return s.send(ctx)
	}
	s.missed = true
	fmt.Fprintln(s.notes, "the connection to the bus was lost for a while; what happened meanwhile is missing here")
	if s.progress.finished != nil {
		return errOver
	}
	e, err := schemas.NewEvent(s.event.Source, s.progress.request, time.Now(), s.event)
	if err != nil {
		return err
	}
	_, err = s.bus.Publish(ctx, e)
	if errors.Is(err, bus.ErrOpen) { // its last receipt may have come a moment ago
		select {
		case <-time.After(Dropped):
		case <-ctx.Done():
		}
		_, err = s.bus.Publish(ctx, e)
	}
	if ctx.Err() == nil && !errors.Is(err, bus.ErrOpen) && !errors.Is(err, bus.ErrNotConnected) {
		return err
	}
	return nil
}
