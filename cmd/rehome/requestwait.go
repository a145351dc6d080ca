package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

// sendRequest publishes the request, and with wait shows what becomes of it.
func sendRequest(c *cobra.Command, s settings, r schemas.Request, wait, asJSON bool) error {
	b, err := connect(s, "rehome-request")
	if err != nil {
		return err
	}
	defer b.Close()
	now := time.Now()
	e, err := schemas.NewEvent(s.source("cli"), r, now, schemas.Event{})
	if err != nil {
		return err
	}
	if _, err := b.Publish(c.Context(), e); err != nil {
		switch {
		case errors.Is(err, schemas.ErrInvalid):
			return usageError{err}
		case errors.Is(err, bus.ErrOpen):
			return fmt.Errorf("%w; name another with --name, or cancel it", err)
		}
		return noBus(err)
	}
	w := c.OutOrStdout()
	if asJSON {
		err = showJSON(w, e)
	} else {
		_, err = fmt.Fprintf(w, "request %s/%s: %s\n", r.Sender, r.Name, describeRequest(r))
	}
	if err != nil || !wait {
		return err
	}
	p := newProgress(r)
	show := showText
	if asJSON {
		show = showJSON
	}
	if err := p.follow(c.Context(), b, e, now, show, w, c.ErrOrStderr()); err != nil {
		return err
	}
	if !asJSON {
		if err := p.write(w); err != nil {
			return err
		}
	}
	return p.err()
}

const (
	// clocks is by how much the clock here may be ahead of that of the bus.
	clocks = time.Minute
	// unheard is after what time without a receipt a person is told that nobody has taken the request yet.
	unheard = 5 * time.Second
)

// errOver ends the following of events.
var errOver = errors.New("the request is over")

// follow shows every event that follows from the request until it is over, or ctx ends.
func (p *progress) follow(ctx context.Context, b *bus.Bus, request schemas.Event, sent time.Time,
	show func(io.Writer, schemas.Event) error, w, notes io.Writer,
) error {
	late := time.AfterFunc(unheard, func() {
		fmt.Fprintf(notes, "nobody has taken the request yet; is a watcher running?\n")
	})
	defer late.Stop()
	receipts := schemas.Receipt{Sender: p.request.Sender, Name: p.request.Name}.Channel()
	query := bus.Query{Channels: []string{receipts, bus.VerdictChannels}, Since: sent.Add(-clocks), Follow: true}
	err := b.Events(ctx, query, func(e schemas.Event) error {
		if e.CorrelationID != request.CorrelationID || e.ID == request.ID {
			return nil
		}
		late.Stop()
		if p.take(e) {
			if err := show(w, e); err != nil {
				return err
			}
		}
		if p.over() {
			return errOver
		}
		return nil
	})
	switch {
	case errors.Is(err, errOver):
		return nil
	case err != nil:
		return err
	case p.finished != nil:
		return fmt.Errorf("request %s/%s is finished; the ends of some moves were not waited for", p.request.Sender, p.request.Name)
	}
	return fmt.Errorf("request %s/%s stays open; to cancel it:\n  rehome request cancel %s --sender %s --reason '...'",
		p.request.Sender, p.request.Name, p.request.Name, p.request.Sender)
}
