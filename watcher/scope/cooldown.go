package scope

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// The cooldowns of a group. A controller creates a replacement within about a tenth of a second. A pod that has found
// no node after half a minute will not find one soon. A sample of load can be 15 seconds old when it is read; after two
// minutes, or 21 samples, a smoothed value includes nine tenths of a change.
const (
	Cooldown        = time.Second
	LoadCooldown    = 2 * time.Minute
	PendingCooldown = 30 * time.Second
)

// cooldown delays the scope of a group while its pods are being replaced. An earlier decision would move too many pods.
type cooldown struct {
	last    time.Time               // when the last pod left
	pending map[types.UID]time.Time // pods without a node, with the time since when
}

func (c *cooldown) left(at time.Time) {
	if at.After(c.last) {
		c.last = at
	}
}

// until returns when a cooldown ends. Usage scopes wait only for the replacements of their own moves: pods that have become
// pending since shortly before the last move, because the verdict on a move can arrive after its replacement.
func (ix *indexed) until(c *cooldown) (until time.Time) {
	if !c.last.IsZero() {
		until = c.last.Add(ix.cooldownFor)
	}
	for _, since := range c.pending {
		unrelated := ix.strategy.Scope == schemas.UsageKind && since.Sub(c.last) >= PendingCooldown
		if end := since.Add(PendingCooldown); end.After(until) && !unrelated {
			until = end
		}
	}
	return until
}

func (ix *indexed) cooldown(key string) *cooldown {
	c := ix.cooldowns[key]
	if c == nil {
		c = &cooldown{pending: map[types.UID]time.Time{}}
		ix.cooldowns[key] = c
	}
	return c
}

// pending records that a pod has no node, or now has one.
func (ix *indexed) pending(p *corev1.Pod, pending bool, now time.Time) {
	for _, key := range ix.cooldownKeys(p) {
		c := ix.cooldown(key)
		_, known := c.pending[p.UID]
		switch {
		case !pending:
			delete(c.pending, p.UID)
		case !known:
			c.pending[p.UID] = now
		}
	}
}
