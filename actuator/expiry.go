package actuator

import (
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// expired says whether the intent's time is over: at the moment it expires, and after.
func expired(i schemas.Intent, now time.Time) bool { return !now.Before(i.Expires) }

func expiredMessage(i schemas.Intent) string {
	return "expired at " + clock(i.Expires) + " before its turn came"
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// expiries is a heap of claims, the one that expires first on top.
type expiries []*claim

func (x expiries) Len() int { return len(x) }
func (x expiries) Less(i, j int) bool {
	return x[i].open.Intent.Expires.Before(x[j].open.Intent.Expires)
}
func (x expiries) Swap(i, j int) { x[i], x[j] = x[j], x[i]; x[i].index, x[j].index = i, j }
func (x *expiries) Push(c any)   { c.(*claim).index = len(*x); *x = append(*x, c.(*claim)) }
func (x *expiries) Pop() any {
	last := len(*x) - 1
	c := (*x)[last]
	(*x)[last] = nil
	*x = (*x)[:last]
	return c
}
