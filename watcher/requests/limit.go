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
	// otherSenders is the name in metrics of all senders that the policy does not have. They share a limit.
	otherSenders    = "other"
	othersPerMinute = 10
	// tellAgain is how often a sender learns that it sends too many requests.
	tellAgain = time.Second
)

// limits are the rate limits of one sender.
type limits struct {
	requests *rate.Limiter // requests that are read
	receipts *rate.Limiter // receipts that say that there are too many
	log      *rate.Limiter
	told     time.Time // when the last of these receipts was published
	untold   int       // requests over the limit since
}

func perMinute(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(float64(n)/60), n) }

// limitsOf are the limits of a sender.
func (c *Controller) limitsOf(sender string) *limits {
	s, known := c.cfg.Policy.Asking().Sender(sender)
	if !known {
		s.Name, s.PerMinute = otherSenders, othersPerMinute
	}
	key := fmt.Sprint(known, " ", s.Name) // the policy may name a sender other
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
		c.cfg.Log.Warn("more requests than the policy allows; the others of this minute are only counted", "sender", answer.Sender)
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
	no := request.Refuse(schemas.ReceiptTooManyRequests, "more than %d requests of this sender in a minute; ask again later",
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

// drop deletes a request that was not read.
func (c *Controller) drop(ctx context.Context, m message) error {
	if err := c.cfg.Bus.DropRequest(ctx, schemas.Event{Channel: m.channel, Sequence: m.sequence}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dropping, m.sequence)
	return nil
}

// count counts a request for its sender.
func (c *Controller) count(sender string, state schemas.ReceiptState) {
	if _, known := c.cfg.Policy.Asking().Sender(sender); !known {
		sender = otherSenders
	}
	c.cfg.Count(sender, state)
}
