package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tmaxmax/go-sse"

	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

const (
	// mostMessage bounds one message of a stream: 500 pods with their names.
	mostMessage = 16 << 20
	// A lost connection is tried again after firstRetry, then after twice as long, up to lastRetry.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Query selects events.
type Query struct {
	filter.Filter
	// Since is the time of the first event. Zero: new events only or, without Follow, everything that is kept.
	Since time.Time
	// Follow continues with new events.
	Follow bool
}

func (q Query) values() url.Values {
	v := url.Values{}
	for name, values := range map[string][]string{
		"type": q.Types, "outcome": q.Outcomes, "strategy": q.Strategies, "namespace": q.Namespaces, "node": q.Nodes,
		"maintenance": q.Maintenances, "correlation": q.Correlations,
	} {
		if len(values) > 0 {
			v.Set(name, strings.Join(values, ","))
		}
	}
	var pods []string
	for _, p := range q.Pods {
		pods = append(pods, p.Namespace+"/"+p.Name)
	}
	if len(pods) > 0 {
		v.Set("pod", strings.Join(pods, ","))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	v.Set("follow", strconv.FormatBool(q.Follow))
	return v
}

// Events returns the events of a query. While it follows, a lost connection is opened again and continues after the last event.
// It ends with an error of the API or of ctx.
func (c *Client) Events(ctx context.Context, q Query) iter.Seq2[schemas.Event, error] {
	return func(yield func(schemas.Event, error) bool) {
		for m, err := range c.stream(ctx, q) {
			switch {
			case err == nil && m.Type == "missed":
				c.config.Notes("some events are missing here")
				continue
			case err == nil:
				var e schemas.Event
				if e, err = cloudevent.ReadStructured([]byte(m.Data)); err == nil {
					e.Sequence, _ = strconv.ParseUint(m.LastEventID, 10, 64) // zero: it is not known
					if !yield(e, nil) {
						return
					}
					continue
				}
				err = fmt.Errorf("event %s of %s: %w", m.LastEventID, c.name(), err)
			}
			yield(schemas.Event{}, err)
			return
		}
	}
}

// stream returns the messages of GET /v1/events. If the query follows, it opens a lost stream again.
func (c *Client) stream(ctx context.Context, q Query) iter.Seq2[sse.Event, error] {
	return func(yield func(sse.Event, error) bool) {
		header, retry, opened := http.Header{"Accept": {"text/event-stream"}}, firstRetry, false
		for {
			r, err := c.do(ctx, "v1/events", q.values(), header)
			if err == nil {
				opened = true
				for m, failed := range sse.Read(r.Body, &sse.ReadConfig{MaxEventSize: mostMessage}) {
					if err = failed; err != nil {
						break
					}
					if m.LastEventID != "" {
						header.Set("Last-Event-ID", m.LastEventID)
					}
					retry = firstRetry
					if !yield(m, nil) {
						_ = r.Body.Close()
						return
					}
				}
				_ = r.Body.Close()
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if ctx.Err() != nil || !q.Follow || !opened || permanent(err) {
				if err != nil {
					yield(sse.Event{}, err)
				}
				return
			}
			c.config.Notes(fmt.Sprintf("the connection was lost and is tried again in %v: %v", retry, lost(err)))
			select {
			case <-time.After(retry):
			case <-ctx.Done():
			}
			retry = min(2*retry, lastRetry)
		}
	}
}

// permanent reports whether the server refuses the request itself.
func permanent(err error) bool {
	p, ok := errors.AsType[*Problem](err)
	return ok && p.Status < 500 && p.Status != http.StatusTooManyRequests
}

func lost(err error) error {
	if err == nil {
		return errors.New("the server ended it")
	}
	return err
}
