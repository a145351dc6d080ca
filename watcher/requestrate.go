package watcher

import "time"

// otherSenders is what metrics call senders that the policy does not have, so that nobody can make up labels.
const otherSenders = "other"

// othersPerMinute is how many requests of all senders that the policy does not have are answered in a minute.
const othersPerMinute = 10

// allowance is so many things a minute, after a pause all of them at once. Make one with newAllowance.
type allowance struct {
	perMinute float64
	left      float64
	at        time.Time // when left was true
}

func newAllowance(perMinute int, now time.Time) *allowance {
	return &allowance{perMinute: float64(perMinute), left: float64(perMinute), at: now}
}

// take says whether one more is allowed now, and counts it if so.
func (a *allowance) take(now time.Time) bool {
	if d := now.Sub(a.at); d > 0 {
		a.left = min(a.perMinute, a.left+a.perMinute*d.Minutes())
		a.at = now
	}
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}

// rates are the allowances of one sender.
type rates struct {
	name     string     // in metrics
	requests *allowance // that are looked at
	receipts *allowance // that say that there were too many
	log      *allowance // lines that say so
	told     time.Time  // when the last of these receipts was
	untold   int        // how many were too many since
}

func newRates(name string, perMinute int, now time.Time) *rates {
	return &rates{
		name: name, requests: newAllowance(perMinute, now), receipts: newAllowance(perMinute, now), log: newAllowance(1, now),
	}
}

// tellAgain is after what time a sender is told again that it sends too many requests.
const tellAgain = time.Second

// tells says whether the sender is to be told now that there were too many, and counts it if so.
func (r *rates) tells(now time.Time) bool {
	if now.Before(r.told.Add(tellAgain)) || !r.receipts.take(now) {
		return false
	}
	r.told = now
	return true
}
