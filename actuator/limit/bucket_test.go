package limit

import (
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/policy"
)

const ms = time.Millisecond

func TestBucket(t *testing.T) {
	b := NewBucket(policy.Rate{EvictionsPerSecond: 10, Burst: 3})
	var got []time.Duration
	now := noon
	spend := func() {
		wait := b.Wait(now)
		now = now.Add(wait)
		b.Take()
		b.Return(true, now)
		got = append(got, now.Sub(noon))
	}
	for range 5 { // three at once, then one each 100 ms
		spend()
	}
	now = now.Add(b.Wait(now))
	b.Take()
	b.Return(false, now)
	spend() // at once again
	spend()
	now = now.Add(time.Hour) // full again, and no fuller
	for range 4 {
		spend()
	}
	hour := time.Hour + 400*ms
	want := []time.Duration{0, 0, 0, 100 * ms, 200 * ms, 300 * ms, 400 * ms, hour, hour, hour, hour + 100*ms}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("tokens at\n got %v\nwant %v", got, want)
	}
}

// A clock that is set back delays a token by at most the time that the whole bucket takes.
func TestBucketAfterClockStep(t *testing.T) {
	b := NewBucket(policy.Rate{EvictionsPerSecond: 10, Burst: 3})
	for range 3 {
		b.Take()
		b.Return(true, noon)
	}
	earlier := noon.Add(-time.Hour)
	if got, want := b.Wait(earlier), 100*ms; got != want {
		t.Errorf("the next token in %v, want %v", got, want)
	}
	b.Take()
	b.Return(true, earlier.Add(100*ms))
	if got, want := b.Wait(earlier.Add(100*ms)), 100*ms; got != want {
		t.Errorf("the token after that in %v, want %v", got, want)
	}
}
