package limit

import (
	"fmt"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/policy"
)

// callsWithin is how close together the latest calls are that say something about the present.
const callsWithin = 10 * time.Minute

// failures judges the latest eviction calls. They are judged when there are [policy.StormCalls] of them, all made within
// callsWithin. When too many of them failed, nothing is called for [policy.StormPause]. All calls are forgotten then,
// and the first one that ends after the pause decides: if it fails, there is another pause at once. If not, the
// counting begins anew with it. Calls that end in the pause were begun before it, and add nothing to what is known.
type failures struct {
	latest []call // oldest first
	until  time.Time
	why    string // the latest pause in words
	trial  bool
}

type call struct {
	at        time.Time
	namespace string
	ok        bool
}

// ended notes the end of a call. most is the share of failures, in percent, that is too many when they are spread over at least
// so many namespaces.
func (c *failures) ended(one call, most, namespaces int) {
	now := one.at
	switch {
	case now.Before(c.until):
		return
	case c.trial && !one.ok:
		c.pause(now, "the first eviction after a pause failed")
		return
	}
	c.trial = false
	if len(c.latest) == policy.StormCalls {
		c.latest = slices.Delete(c.latest, 0, 1)
	}
	c.latest = append(c.latest, one)
	failed, spread := 0, map[string]bool{}
	for _, one := range c.latest {
		if !one.ok {
			failed++
			spread[one.namespace] = true
		}
	}
	if len(c.latest) == policy.StormCalls && now.Sub(c.latest[0].at) <= callsWithin && failed*100 >= most*len(c.latest) &&
		len(spread) >= namespaces {
		c.pause(now, fmt.Sprintf("%d of the latest %d evictions failed, and %d percent are too many", failed,
			policy.StormCalls, most))
	}
}

func (c *failures) pause(now time.Time, why string) {
	until := now.Add(policy.StormPause)
	*c = failures{until: until, trial: true, why: why + "; one is tried at " + until.UTC().Format(time.RFC3339)}
}

// paused says in words why nothing is called. Empty: there is no pause.
func (c *failures) paused(now time.Time) string {
	if now.Before(c.until) {
		return c.why
	}
	return ""
}
