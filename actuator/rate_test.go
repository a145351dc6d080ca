package actuator

import (
	"reflect"
	"testing"
	"time"
)

func TestATokenIsTakenAtTheRateAndCanBeGivenBack(t *testing.T) {
	b := bucket{interval: 100 * time.Millisecond, depth: 200 * time.Millisecond} // 10 a second, burst 3
	var got []time.Duration
	now := noon
	spend := func() {
		wait := b.wait(now)
		now = now.Add(wait)
		b.take(now)
		got = append(got, now.Sub(noon))
	}
	for range 5 { // three at once, then one each 100 ms
		spend()
	}
	b.giveBack()
	spend() // at once again
	spend()
	now = now.Add(time.Hour) // full again, and no fuller
	for range 4 {
		spend()
	}
	ms := time.Millisecond
	hour := time.Hour + 300*ms
	want := []time.Duration{0, 0, 0, 100 * ms, 200 * ms, 200 * ms, 300 * ms, hour, hour, hour, hour + 100*ms}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("tokens at\n got %v\nwant %v", got, want)
	}
}
