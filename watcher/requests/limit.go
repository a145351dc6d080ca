package requests

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// otherSenders is the metric label of all senders that the policy does not list. They share one limit.
	otherSenders    = "other"
	othersPerMinute = 10
	// tellAgain is the shortest time between two receipts about too many requests.
	tellAgain = time.Second
)

// limits are the rate limits of one sender.
type limits struct {
	requests *rate.Limiter // requests that are read
	receipts *rate.Limiter // receipts about too many requests
	log      *rate.Limiter
	told     time.Time // time of the last such receipt
	untold   int       // rejected requests since then
}

func perMinute(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(float64(n)/60), n) }

// limitsOf returns the limits of a sender.
func (c *Controller) limitsOf(sender string) *limits {
	s, known := c.cfg.Policy.Asking().Sender(sender)
	if !known {
		s.Name, s.PerMinute = otherSenders, othersPerMinute
	}
	key := fmt.Sprint(known, " ", s.Name) // the policy may have a sender with the name other
	if c.senders[key] == nil {
		c.senders[key] = &limits{requests: perMinute(s.PerMinute), receipts: perMinute(s.PerMinute), log: perMinute(1)}
	}
	return c.senders[key]
}

// tooMany rejects a request over the rate limit. A sender gets at most one receipt a second for such requests, with their number.
func (c *Controller) tooMany(
	ctx context.Context, e schemas.Event, answer schemas.Receipt, l *limits, read func() schemas.Event,
) error {
	now := c.cfg.Now()
	if l.log.AllowN(now, 1) {
		c.cfg.Log.Warn("rejecting requests over the sender's rate limit; raise the limit in the policy if they are legitimate",
			"sender", answer.Sender)
	}
	if now.Before(l.told.Add(tellAgain)) || !l.receipts.AllowN(now, 1) {
		l.untold++
		c.count(answer.Sender, schemas.RequestRejected)
		c.mu.Lock()
		c.dropping[e.Sequence] = true
		c.mu.Unlock()
		c.drops.Add(message{e.Channel, e.Sequence})
		return nil
	}
	l.told = now
	no := request.NewEnd(schemas.ReceiptTooManyRequests, "more than %d requests of this sender in a minute; ask again later",
		l.requests.Burst())
	if l.untold > 0 {
		no.Message += fmt.Sprintf("; %d more were rejected without a receipt", l.untold)
	}
	if err := c.answers.Reject(ctx, read(), answer, no); err != nil {
		return err
	}
	l.untold = 0
	return nil
}

// drop removes a request that was not read.
func (c *Controller) drop(ctx context.Context, m message) error {
	if err := c.cfg.Bus.DropRequest(ctx, schemas.Event{Channel: m.channel, Sequence: m.sequence}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dropping, m.sequence)
	return nil
}

func (c *Controller) count(sender string, state schemas.ReceiptState) {
	if _, known := c.cfg.Policy.Asking().Sender(sender); !known {
		sender = otherSenders
	}
	c.cfg.Count(sender, state)
}
